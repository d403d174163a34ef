package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api"
	"slipway.dev/slipway/cmd/slipway/config"
)

// pair is a certificate for 127.0.0.1 that is signed by itself, and its key.
type pair struct{ certificate, key []byte }

func makePair(t *testing.T, serial int64) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	about := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	made, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}
}

// put replaces a file as a whole.
func put(t *testing.T, path string, text []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", text, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func TestAListenerWithACertificateThatIsRenewed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	certFile, keyFile := filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	first, second := makePair(t, 1), makePair(t, 2)
	put(t, certFile, first.certificate)
	put(t, keyFile, first.key)

	core, logged := observer.New(zap.InfoLevel)
	ctx, stop := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	p := &process{cfg: config.Config{ShutdownTimeout: time.Minute}, group: group, log: zap.New(core), asked: ctx}
	certificates, err := watchCertificate("a test", certFile, keyFile, p.log)
	require.NoError(t, err)
	server := api.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.TLSConfig = certificates.config()
	require.NoError(t, p.listen(ctx, "a test", "127.0.0.1:0", server))
	address, _ := logged.FilterMessage("listens").All()[0].ContextMap()["address"].(string)

	trusted := x509.NewCertPool()
	require.True(t, trusted.AppendCertsFromPEM(first.certificate) && trusted.AppendCertsFromPEM(second.certificate))
	get := func(http2 bool) string {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: http2}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get("https://" + address)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, "HTTP/2.0", get(true))
	require.Equal(t, "HTTP/1.1", get(false))
	serial := func() int64 {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: trusted})
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	require.EqualValues(t, 1, serial())

	// In the middle of the change the two do not fit, and the last one is good.
	put(t, keyFile, second.key)
	const warning = "the certificate cannot be read again; the last good one stays in use"
	require.Eventually(t, func() bool {
		require.EqualValues(t, 1, serial())
		return logged.FilterMessage(warning).Len() > 0
	}, time.Minute, 50*time.Millisecond)
	put(t, certFile, second.certificate)
	require.Eventually(t, func() bool { return serial() == 2 }, time.Minute, 50*time.Millisecond)
	require.Equal(t, "HTTP/2.0", get(true))

	_, err = tls.Dial("tcp", address, &tls.Config{RootCAs: trusted, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	require.ErrorContains(t, err, "protocol version")
	plain, err := http.Get("http://" + address)
	require.NoError(t, err)
	require.NoError(t, plain.Body.Close())
	require.Equal(t, http.StatusBadRequest, plain.StatusCode)
	stop()
	require.NoError(t, group.Wait())
	require.NotEmpty(t, logged.FilterMessageSnippet("TLS handshake error").All(), "the server logs as everything else does")
}

func TestACertificateMustBeGoodAtTheStart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	one, other := makePair(t, 1), makePair(t, 2)
	for name, text := range map[string][]byte{"crt": one.certificate, "key": one.key, "other": other.key, "empty": nil} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	for _, test := range []struct{ certificate, key, want string }{
		{"none", "key", "none: no such file"},
		{"crt", "none", "none: no such file"},
		{"crt", "other", "private key does not match"},
		{"empty", "key", "failed to find any PEM data"},
		{"key", "crt", "failed to find certificate PEM data"},
	} {
		_, err := watchCertificate("the deployments API", filepath.Join(folder, test.certificate), filepath.Join(folder, test.key), zap.NewNop())
		require.ErrorContains(t, err, "certificate of the deployments API: ")
		require.ErrorContains(t, err, test.want)
	}
}

func TestACertificateHasAKey(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env  []string
		want string
	}{
		{nil, ""},
		{[]string{"SLIPWAY_TLS_CERT_FILE=a", "SLIPWAY_TLS_KEY_FILE=b"}, ""},
		{[]string{"SLIPWAY_TLS_CERT_FILE=a"}, "SLIPWAY_TLS_KEY_FILE is not set"},
		{[]string{"SLIPWAY_TLS_KEY_FILE=b", "SLIPWAY_TLS_CERT_FILE="}, "SLIPWAY_TLS_CERT_FILE is not set"},
	} {
		cfg, values, err := config.Read(test.env, nil)
		require.NoError(t, err)
		err = requireTLS(cfg, values)
		if test.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, test.want)
		}
	}
}
