package kube

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCertificatesAreKeptUntilTheyAreAboutToExpire(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := func(name string) string {
		text, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		return string(text)
	}
	now := time.Now()
	require.NoError(t, certificateFiles(folder, now))
	ca, served := file("ca.crt"), file("tls.crt")
	for _, key := range []string{"ca.key", "apiserver.key", "lease-ca.key", "tls.key"} {
		info, err := os.Stat(filepath.Join(folder, key))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), key)
	}

	require.NoError(t, certificateFiles(folder, now.Add(300*24*time.Hour)))
	require.Equal(t, served, file("tls.crt"))

	later := now.Add(340 * 24 * time.Hour)
	require.NoError(t, certificateFiles(folder, later))
	require.Equal(t, ca, file("ca.crt"))
	require.NotEqual(t, served, file("tls.crt"))

	loaded, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(file("lease-ca.crt"))))
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "bloodraven.bloodraven.svc.cluster.local"} {
		_, err := loaded.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: later})
		require.NoError(t, err, name)
	}
	other := x509.NewCertPool()
	require.True(t, other.AppendCertsFromPEM([]byte(ca)))
	_, err = loaded.Leaf.Verify(x509.VerifyOptions{Roots: other, DNSName: "localhost", CurrentTime: later})
	require.Error(t, err, "the lease API's CA is one of its own")
}

func TestACertificateWhoseKeyWasReplacedIsMadeAnew(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, certificateFiles(folder, time.Now()))
	key, err := os.ReadFile(filepath.Join(folder, "ca.key"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "tls.key"), key, 0o600))
	require.NoError(t, certificateFiles(folder, time.Now()))
	_, err = tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(filepath.Join(folder, "tls.crt"), []byte("nonsense"), 0o600))
	require.ErrorContains(t, certificateFiles(folder, time.Now()), "tls.crt is not a PEM file; remove it to get a new one")
}
