package issuer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
)

func TestTokenIsVerifiedByTheJWKSFile(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "issuer")
	i, err := issuer.Open(folder)
	require.NoError(t, err)
	now := time.Now()
	text, err := i.Token(issuer.Claims{
		Issuer: "http://one", Audience: "two", Subject: "three", Scope: "a b", Deployments: []string{"x", "y"},
		IssuedAt: now, Expires: now.Add(time.Hour),
	})
	require.NoError(t, err)

	content, err := os.ReadFile(i.JWKSFile)
	require.NoError(t, err)
	require.NotContains(t, string(content), `"d"`, "the private key must not be in the JWKS file")
	var set jose.JSONWebKeySet
	require.NoError(t, json.Unmarshal(content, &set))

	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	require.NoError(t, err)
	require.Equal(t, i.KeyID, token.Headers[0].KeyID)
	keys := set.Key(token.Headers[0].KeyID)
	require.Len(t, keys, 1)
	var registered jwt.Claims
	var all map[string]any
	require.NoError(t, token.Claims(keys[0].Key, &registered, &all))
	require.NoError(t, registered.Validate(jwt.Expected{
		Issuer: "http://one", AnyAudience: jwt.Audience{"two"}, Subject: "three", Time: now,
	}))
	require.Equal(t, "a b", all["scope"])
	require.Equal(t, []any{"x", "y"}, all["deployments"])
}

func TestTokenWithoutALimitHasNoDeploymentsClaim(t *testing.T) {
	i, err := issuer.Open(t.TempDir())
	require.NoError(t, err)
	text, err := i.Token(issuer.Claims{Scope: "a"})
	require.NoError(t, err)
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, token.UnsafeClaimsWithoutVerification(&all))
	require.NotContains(t, all, "deployments")
}

func TestTokenForNoDeploymentHasAnEmptyClaim(t *testing.T) {
	i, err := issuer.Open(t.TempDir())
	require.NoError(t, err)
	text, err := i.Token(issuer.Claims{Scope: "a", Deployments: []string{}})
	require.NoError(t, err)
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, token.UnsafeClaimsWithoutVerification(&all))
	require.Equal(t, []any{}, all["deployments"])
}

func TestOpenAgainKeepsTheKey(t *testing.T) {
	folder := t.TempDir()
	first, err := issuer.Open(folder)
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(folder, "key.pem"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.Remove(first.JWKSFile))
	second, err := issuer.Open(folder)
	require.NoError(t, err)
	require.Equal(t, first.KeyID, second.KeyID)
	require.FileExists(t, second.JWKSFile)
}

func TestOpenRefusesAKeyThatIsNotOne(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "key.pem"), []byte("nonsense"), 0o600))
	_, err := issuer.Open(folder)
	require.ErrorContains(t, err, "key.pem is not a PEM file; remove it to get a new key")
}
