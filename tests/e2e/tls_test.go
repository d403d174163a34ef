package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A second API, with a certificate, for the deployments of the shared stand.
func TestTheAPIWithACertificate(t *testing.T) {
	t.Parallel()
	given := httptest.NewTLSServer(nil) // for its certificate, which is its own authority
	given.Close()
	key, err := x509.MarshalPKCS8PrivateKey(given.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	folder := t.TempDir()
	certFile, keyFile := filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: given.Certificate().Raw}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))

	env := []string{
		"SLIPWAY_LISTEN=127.0.0.1:0", "SLIPWAY_METRICS_LISTEN=127.0.0.1:0", "SLIPWAY_HEALTH_LISTEN=127.0.0.1:0",
		"SLIPWAY_TLS_CERT_FILE=" + certFile,
	}
	r := finishes(t, env, "api")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "SLIPWAY_TLS_KEY_FILE is not set")
	r = finishes(t, append(env, "SLIPWAY_TLS_KEY_FILE="+certFile), "api")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "certificate of the deployments API: ")

	url, _ := runs(t, "api", append(env, "SLIPWAY_TLS_KEY_FILE="+keyFile))
	require.True(t, strings.HasPrefix(url, "https://"), url)
	cmd := deployments(t, "submit", "tls", "-f", file(t, configuration(`"deploy":"lines-3"`)), "--follow")
	cmd.Env = append(cmd.Env, "SLIPWAY_URL="+url, "SLIPWAY_CA_FILE="+certFile)
	r = finish(t, cmd)
	require.Equal(t, 0, r.code, r.err)
	inOrder(t, r.out, since+`submitted tls, build 1 \(evaluated: 1 node\)`, "…", since+`build 1 succeeded`, since+`active`)

	cmd = deployments(t, "show", "tls")
	cmd.Env = append(cmd.Env, "SLIPWAY_URL="+url)
	r = finish(t, cmd)
	require.NotEqual(t, 0, r.code)
	require.Contains(t, r.err, "certificate")

	plain, err := http.Get("http://" + strings.TrimPrefix(url, "https://") + "/schema")
	require.NoError(t, err)
	require.NoError(t, plain.Body.Close())
	require.Equal(t, http.StatusBadRequest, plain.StatusCode)
}
