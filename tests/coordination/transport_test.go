package coordination

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/tests/stand"
)

// Not parallel: everybody's grants wait.
func TestTemporalThatIsAway(t *testing.T) {
	r := enter(t)
	tokens := map[string]string{migration: r.granted(migration, operation, 60), hold: r.granted(hold, operation, 60)}
	require.NoError(t, all.Kill(stand.Temporal))
	var waiting sync.WaitGroup
	waiting.Go(func() {
		begin := time.Now()
		a := r.grant(migration, operation, 60)
		require.Less(t, time.Since(begin), 12*time.Second)
		a.refused(t, http.StatusServiceUnavailable, "unavailable")
	})
	waiting.Go(func() { r.release(hold, operation, tokens[hold]).is(t, http.StatusNoContent, "") })
	for range 3 {
		require.Equal(t, http.StatusOK, r.renew(migration, operation, tokens[migration], 60).status)
		require.Equal(t, http.StatusOK, r.get().status)
		r.grant(migration, another, 60).is(t, http.StatusConflict, // a refusal needs no workflow
			`{"error":"held","holder":{"operationId":"%s","instance":"orders-app","expiresAt":"<time>"}}`, operation)
	}
	waiting.Wait()
	require.Equal(t, lease.StateReleased, r.record(hold, operation).State)
	require.NoError(t, all.Start(stand.Temporal))
	await(t, 20*time.Second, func() error {
		// 200 where an answer came too late for the one before.
		if a := r.grant(hold, operation, 60); a.status != http.StatusCreated && a.status != http.StatusOK {
			return fmt.Errorf("%d %s", a.status, a.body)
		}
		return nil
	})
	require.Equal(t, http.StatusOK, r.renew(migration, operation, tokens[migration], 60).status)
	r.release(migration, operation, tokens[migration]).is(t, http.StatusNoContent, "")
	r.ends(migration, operation, "released", "")
}

// serial is the serial number of the certificate that a new connection is shown.
func serial(t testing.TB) *big.Int {
	t.Helper()
	address, err := url.Parse(all.LeaseURL(stand.API))
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", address.Host, &tls.Config{RootCAs: all.roots, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber
}

func TestACertificateThatChanges(t *testing.T) {
	t.Parallel()
	r := enter(t)
	client := all.newClient()
	get := func() answer {
		a, err := all.send(t.Context(), client, http.MethodGet, all.LeaseURL(stand.API)+"/groups/"+r.group, authorization("Bearer "+r.token), "")
		require.NoError(t, err)
		return a
	}
	require.Equal(t, http.StatusOK, get().status)
	before := serial(t)
	ca, err := tls.LoadX509KeyPair(all.kube.Kube.File("lease-ca.crt"), all.kube.Kube.File("lease-ca.key"))
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	made, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(4711), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
	}, ca.Leaf, key.Public(), ca.PrivateKey)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	replace := func(file string, text []byte) {
		path := all.kube.Kube.File(file)
		require.NoError(t, os.WriteFile(path+".new", text, 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	// In the middle of the change the two do not fit, and the last one is good.
	replace("tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	time.Sleep(1100 * time.Millisecond) // it looks once a second
	require.Equal(t, before, serial(t))
	replace("tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made}))
	await(t, 5*time.Second, func() error {
		if got := serial(t); got.Int64() != 4711 {
			return errors.New("still the old certificate")
		}
		return nil
	})
	require.Equal(t, http.StatusOK, get().status, "on the old connection")
	client.CloseIdleConnections()
	require.Equal(t, http.StatusOK, get().status)
	// Nothing older than TLS 1.2.
	address, err := url.Parse(all.LeaseURL(stand.API))
	require.NoError(t, err)
	_, err = tls.Dial("tcp", address.Host, &tls.Config{RootCAs: all.roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	require.ErrorContains(t, err, "protocol version")
}
