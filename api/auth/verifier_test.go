package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

const (
	testIssuer   = "https://issuer.example"
	testAudience = "slipway"
)

type claims map[string]any

// testKeys are one key of each kind, with their key IDs.
type testKeys struct {
	rsa     *rsa.PrivateKey
	p256    *ecdsa.PrivateKey
	p384    *ecdsa.PrivateKey
	p521    *ecdsa.PrivateKey
	ed25519 ed25519.PrivateKey
}

func newTestKeys(t *testing.T) testKeys {
	t.Helper()
	var k testKeys
	var err error
	k.rsa, err = rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	for _, ec := range []struct {
		key   **ecdsa.PrivateKey
		curve elliptic.Curve
	}{{&k.p256, elliptic.P256()}, {&k.p384, elliptic.P384()}, {&k.p521, elliptic.P521()}} {
		*ec.key, err = ecdsa.GenerateKey(ec.curve, rand.Reader)
		require.NoError(t, err)
	}
	_, k.ed25519, err = ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return k
}

func (k testKeys) set() []jose.JSONWebKey {
	return []jose.JSONWebKey{
		{Key: k.rsa.Public(), KeyID: "rsa", Use: "sig"},
		{Key: k.p256.Public(), KeyID: "p256", Use: "sig", Algorithm: "ES256"},
		{Key: k.p384.Public(), KeyID: "p384"},
		{Key: k.p521.Public(), KeyID: "p521"},
		{Key: k.ed25519.Public(), KeyID: "ed25519"},
	}
}

func writeKeys(t *testing.T, path string, keys ...jose.JSONWebKey) {
	t.Helper()
	content, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	require.NoError(t, err)
	next := path + ".next"
	require.NoError(t, os.WriteFile(next, content, 0o600))
	require.NoError(t, os.Rename(next, path))
}

func sign(t *testing.T, algorithm jose.SignatureAlgorithm, keyID string, key any, payload any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: keyID}}, nil)
	require.NoError(t, err)
	content, err := json.Marshal(payload)
	require.NoError(t, err)
	jws, err := signer.Sign(content)
	require.NoError(t, err)
	token, err := jws.CompactSerialize()
	require.NoError(t, err)
	return token
}

// with changes some claims of a valid token; nil removes one.
func with(now time.Time, changes claims) claims {
	c := claims{
		"iss": testIssuer, "aud": testAudience, "sub": "somebody", "exp": now.Add(time.Hour).Unix(),
		"iat": now.Unix(), "scope": "openid deployments:read",
	}
	for name, value := range changes {
		if value == nil {
			delete(c, name)
		} else {
			c[name] = value
		}
	}
	return c
}

func inFile(issuer, audience, path string) Issuer {
	return Issuer{Issuer: issuer, Audience: audience, JWKSFile: path}
}

func newTestVerifier(t *testing.T, now time.Time, keys testKeys) *Verifier {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jwks.json")
	writeKeys(t, path, keys.set()...)
	v, err := NewVerifier([]Issuer{inFile(testIssuer, testAudience, path)}, func() time.Time { return now }, zap.NewNop())
	require.NoError(t, err)
	return v
}

func TestAlgorithms(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	keys := newTestKeys(t)
	v := newTestVerifier(t, now, keys)
	for _, c := range []struct {
		algorithm jose.SignatureAlgorithm
		keyID     string
		key       any
	}{
		{jose.RS256, "rsa", keys.rsa}, {jose.RS384, "rsa", keys.rsa}, {jose.RS512, "", keys.rsa},
		{jose.PS256, "rsa", keys.rsa}, {jose.PS384, "rsa", keys.rsa}, {jose.PS512, "rsa", keys.rsa},
		{jose.ES256, "p256", keys.p256}, {jose.ES384, "p384", keys.p384}, {jose.ES512, "p521", keys.p521},
		{jose.EdDSA, "ed25519", keys.ed25519},
	} {
		grant, err := v.Verify(context.Background(), sign(t, c.algorithm, c.keyID, c.key, with(now, nil)))
		require.NoError(t, err, c.algorithm)
		require.Equal(t, "somebody", grant.Subject)
		require.Equal(t, testIssuer, grant.Issuer)
		require.True(t, grant.Expires.Equal(now.Add(time.Hour)))
	}
}

func TestForgedTokens(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	keys, others := newTestKeys(t), newTestKeys(t)
	v := newTestVerifier(t, now, keys)
	good := sign(t, jose.RS256, "rsa", keys.rsa, with(now, nil))
	parts := strings.Split(good, ".")

	der, err := x509.MarshalPKIXPublicKey(keys.rsa.Public())
	require.NoError(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	raw := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	payload, err := json.Marshal(with(now, nil))
	require.NoError(t, err)
	jws, err := jose.ParseSignedCompact(good, algorithms())
	require.NoError(t, err)

	for name, token := range map[string]string{
		"empty":                     "",
		"no dots":                   "token",
		"two dots":                  "..",
		"not base64":                "a.!.c",
		"payload not JSON":          raw(`{"alg":"RS256"}`) + "." + raw("nonsense") + "." + parts[2],
		"alg none":                  raw(`{"alg":"none"}`) + "." + raw(string(payload)) + ".",
		"alg None":                  raw(`{"alg":"None"}`) + "." + raw(string(payload)) + ".",
		"no signature":              parts[0] + "." + parts[1] + ".",
		"HS256 with the public key": sign(t, jose.HS256, "rsa", publicPEM, with(now, nil)),
		"HS512 with the modulus":    sign(t, jose.HS512, "rsa", keys.rsa.N.Bytes(), with(now, nil)),
		"another payload":           parts[0] + "." + raw(strings.Replace(string(payload), "read", "write", 1)) + "." + parts[2],
		"another key, same ID":      sign(t, jose.RS256, "rsa", others.rsa, with(now, nil)),
		"another key, no ID":        sign(t, jose.ES256, "", others.p256, with(now, nil)),
		"unknown key ID":            sign(t, jose.RS256, "nobody", keys.rsa, with(now, nil)),
		"key ID of another key":     sign(t, jose.RS256, "p256", keys.rsa, with(now, nil)),
		"embedded key":              embedded(t, others.p256, with(now, nil)),
		"JSON serialization":        jws.FullSerialize(),
		"trailing dot":              good + ".",
		"too long":                  good + strings.Repeat("a", MaxToken),
		"unknown critical header":   critical(t, keys.rsa, with(now, nil)),
	} {
		_, err := v.Verify(context.Background(), token)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), `"`, name) // it becomes part of a header
	}
}

func embedded(t *testing.T, key crypto.Signer, payload any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, &jose.SignerOptions{EmbedJWK: true})
	require.NoError(t, err)
	content, err := json.Marshal(payload)
	require.NoError(t, err)
	jws, err := signer.Sign(content)
	require.NoError(t, err)
	token, err := jws.CompactSerialize()
	require.NoError(t, err)
	return token
}

func critical(t *testing.T, key any, payload any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key},
		(&jose.SignerOptions{}).WithHeader("crit", []string{"exp"}).WithHeader("exp", 1))
	require.NoError(t, err)
	content, err := json.Marshal(payload)
	require.NoError(t, err)
	jws, err := signer.Sign(content)
	require.NoError(t, err)
	token, err := jws.CompactSerialize()
	require.NoError(t, err)
	return token
}

func TestClaims(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	keys := newTestKeys(t)
	v := newTestVerifier(t, now, keys)
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	for _, c := range []struct {
		name    string
		changes claims
		refused string // a part of the error; empty: accepted
	}{
		{"as it is", nil, ""},
		{"audience among others", claims{"aud": []string{"else", testAudience}}, ""},
		{"another audience", claims{"aud": "else"}, "another audience"},
		{"no audience", claims{"aud": nil}, "another audience"},
		{"audience in capitals", claims{"aud": "SLIPWAY"}, "another audience"},
		{"another issuer", claims{"iss": "https://else.example"}, "issuer"},
		{"issuer with a slash", claims{"iss": testIssuer + "/"}, "issuer"},
		{"no issuer", claims{"iss": nil}, "issuer"},
		{"issuer not a string", claims{"iss": 7}, "not a JWT"},
		{"no exp", claims{"exp": nil}, "no claim exp"},
		{"exp within the skew", claims{"exp": at(-59 * time.Second)}, ""},
		{"exp beyond it", claims{"exp": at(-60 * time.Second)}, "expired"},
		{"exp with a fraction", claims{"exp": float64(at(0)) + .5}, ""},
		{"exp in words", claims{"exp": "tomorrow"}, "malformed"},
		{"nbf in words", claims{"nbf": "today"}, "malformed"},
		{"iat in words", claims{"iat": "today"}, "malformed"},
		{"exp null", claims{"exp": json.RawMessage("null")}, "malformed"},
		{"exp beyond time", claims{"exp": 1e300}, ""},
		{"exp before time", claims{"exp": -1e300}, "expired"},
		{"nbf within the skew", claims{"nbf": at(60 * time.Second)}, ""},
		{"nbf beyond it", claims{"nbf": at(61 * time.Second)}, "nbf"},
		{"iat within the skew", claims{"iat": at(60 * time.Second)}, ""},
		{"iat beyond it", claims{"iat": at(61 * time.Second)}, "iat"},
		{"no iat", claims{"iat": nil}, ""},
		{"scope an array", claims{"scope": []string{"deployments:read"}}, "scope"},
		{"scope null", claims{"scope": json.RawMessage("null")}, "scope"},
		{"deployments a string", claims{"deployments": "one"}, "deployments"},
		{"deployments an object", claims{"deployments": claims{}}, "deployments"},
		{"deployments null", claims{"deployments": json.RawMessage("null")}, "deployments"},
		{"deployments with a number", claims{"deployments": []any{"one", 2}}, "deployments"},
		{"deployments with null", claims{"deployments": []any{"one", nil}}, "deployments"},
		{"deployments empty", claims{"deployments": []string{}}, ""},
	} {
		_, err := v.Verify(context.Background(), sign(t, jose.ES256, "p256", keys.p256, with(now, c.changes)))
		if c.refused == "" {
			require.NoError(t, err, c.name)
		} else {
			require.ErrorContains(t, err, c.refused, c.name)
		}
	}
}

func TestGrant(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	keys := newTestKeys(t)
	v := newTestVerifier(t, now, keys)
	grant := func(changes claims) Grant {
		g, err := v.Verify(context.Background(), sign(t, jose.EdDSA, "ed25519", keys.ed25519, with(now, changes)))
		require.NoError(t, err)
		return g
	}
	type rights struct{ read, write, one, two bool }
	of := func(g Grant) rights {
		return rights{g.Has(ScopeRead), g.Has(ScopeWrite), g.Covers("one"), g.Covers("two")}
	}
	require.Equal(t, rights{true, false, true, true}, of(grant(nil)))
	require.Equal(t, rights{true, true, true, true}, of(grant(claims{"scope": " deployments:write  deployments:read "})))
	require.Equal(t, rights{false, true, true, true}, of(grant(claims{"scope": "deployments:write"})))
	require.Equal(t, rights{false, false, true, true}, of(grant(claims{"scope": nil})))
	require.Equal(t, rights{false, false, true, true}, of(grant(claims{"scope": nil, "SCOPE": "deployments:read"})))
	require.Equal(t, rights{false, false, true, true}, of(grant(claims{"scope": "deployments:reader deployments DEPLOYMENTS:READ"})))
	require.Equal(t, rights{true, false, true, false}, of(grant(claims{"deployments": []string{"one"}})))
	require.Equal(t, rights{true, false, false, false}, of(grant(claims{"deployments": []string{}})))
	require.Equal(t, rights{true, false, true, true}, of(grant(claims{"Deployments": []string{"one"}})))
}

func TestSeveralIssuers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	ours, theirs := newTestKeys(t), newTestKeys(t)
	folder := t.TempDir()
	writeKeys(t, filepath.Join(folder, "ours"), ours.set()...)
	writeKeys(t, filepath.Join(folder, "theirs"), theirs.set()...)
	v, err := NewVerifier([]Issuer{
		inFile("a", "x", filepath.Join(folder, "ours")),
		inFile("b", "x", filepath.Join(folder, "theirs")),
		inFile("b", "y", filepath.Join(folder, "ours")),
	}, func() time.Time { return now }, zap.NewNop())
	require.NoError(t, err)
	for _, c := range []struct {
		issuer, audience string
		keys             testKeys
		ok               bool
	}{
		{"a", "x", ours, true}, {"a", "x", theirs, false}, {"a", "y", ours, false},
		{"b", "x", theirs, true}, {"b", "x", ours, false}, {"b", "y", ours, true}, {"b", "y", theirs, false},
	} {
		_, err := v.Verify(context.Background(), sign(t, jose.ES256, "p256", c.keys.p256, with(now, claims{"iss": c.issuer, "aud": c.audience})))
		require.Equal(t, c.ok, err == nil, "%s %s: %v", c.issuer, c.audience, err)
	}
}

func TestKeysAreReadAgain(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	first, second := newTestKeys(t), newTestKeys(t)
	path := filepath.Join(t.TempDir(), "jwks.json")
	writeKeys(t, path, first.set()...)
	v, err := NewVerifier([]Issuer{inFile(testIssuer, testAudience, path)}, func() time.Time { return now }, zap.NewNop())
	require.NoError(t, err)
	valid := func(keys testKeys) bool {
		_, err := v.Verify(context.Background(), sign(t, jose.ES384, "p384", keys.p384, with(now, nil)))
		return err == nil
	}
	require.True(t, valid(first))
	require.False(t, valid(second))

	writeKeys(t, path, second.set()...)
	require.True(t, valid(second))
	require.False(t, valid(first))

	require.NoError(t, os.Remove(path))
	require.True(t, valid(second), "a file that is away leaves the keys")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	require.True(t, valid(second), "a file that is broken leaves the keys")

	writeKeys(t, path, append(first.set(), second.set()...)...)
	require.True(t, valid(first))
	require.True(t, valid(second))
}

func TestIssuersAreChecked(t *testing.T) {
	keys := newTestKeys(t)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	set := func(keys ...jose.JSONWebKey) string {
		content, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
		require.NoError(t, err)
		return string(content)
	}
	for _, c := range []struct {
		name    string
		issuers []Issuer
		want    string
	}{
		{"none", nil, "no issuer"},
		{"no name", []Issuer{inFile("", "x", file("a", set(keys.set()...)))}, "both needed"},
		{"no audience", []Issuer{inFile("a", "", file("a", set(keys.set()...)))}, "both needed"},
		{"no file, and no URL", []Issuer{inFile("a", "x", "")}, "not a URL"},
		{"discovery in plain text", []Issuer{inFile("http://issuer.example", "x", "")}, "not https"},
		{"keys in plain text", []Issuer{{Issuer: "a", Audience: "x", JWKSURL: "http://issuer.example/keys"}}, "not https"},
		{"file and URL", []Issuer{{Issuer: "a", Audience: "x", JWKSFile: "f", JWKSURL: "https://issuer.example"}}, "neither"},
		{"certificates absent", []Issuer{{Issuer: "https://issuer.example", Audience: "x", CAFile: filepath.Join(folder, "absent")}}, "certificates"},
		{"no certificates", []Issuer{{Issuer: "https://issuer.example", Audience: "x", CAFile: file("ca", "nonsense")}}, "has no certificate"},
		{"absent", []Issuer{inFile("a", "x", filepath.Join(folder, "absent"))}, `"a"`},
		{"a folder", []Issuer{inFile("a", "x", folder)}, `"a"`},
		{"not JSON", []Issuer{inFile("a", "x", file("b", "nonsense"))}, "not a JSON Web Key Set"},
		{"empty set", []Issuer{inFile("a", "x", file("c", `{"keys":[]}`))}, "no key"},
		{"only for encryption", []Issuer{inFile("a", "x", file("d", set(jose.JSONWebKey{Key: keys.rsa.Public(), Use: "enc"})))}, "no key"},
		{"only unknown kinds", []Issuer{inFile("a", "x", file("e", `{"keys":[{"kty":"ZZZ"}]}`))}, "no key"},
		{"private", []Issuer{inFile("a", "x", file("f", set(jose.JSONWebKey{Key: keys.p256})))}, "not a public key"},
		{"symmetric", []Issuer{inFile("a", "x", file("g", set(jose.JSONWebKey{Key: []byte("secret")})))}, "not a public key"},
		{"weak", []Issuer{inFile("a", "x", file("h", set(jose.JSONWebKey{Key: weak.Public()})))}, "1024 bits"},
		{"huge", []Issuer{inFile("a", "x", file("i", strings.Repeat(" ", maxKeySet+1)))}, "more than"},
	} {
		_, err := NewVerifier(c.issuers, time.Now, zap.NewNop())
		require.ErrorContains(t, err, c.want, c.name)
	}
	_, err = NewVerifier([]Issuer{inFile("a", "x", file("j", `{"keys":[{"kty":"ZZZ"},`+strings.TrimPrefix(set(keys.set()...), `{"keys":[`)))}, time.Now, zap.NewNop())
	require.NoError(t, err, "an unknown kind of key beside others is passed over")
}
