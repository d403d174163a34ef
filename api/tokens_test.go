package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"slipway.dev/slipway/api/auth"
)

// needs is what each call asks of a token; an empty scope is a public call.
var needs = map[string]string{
	"GET /deployments":                         auth.ScopeRead,
	"POST /deployments/list":                   auth.ScopeRead,
	"PUT /deployments/{id}":                    auth.ScopeWrite,
	"GET /deployments/{id}":                    auth.ScopeRead,
	"DELETE /deployments/{id}":                 auth.ScopeWrite,
	"POST /deployments/{id}/preview":           auth.ScopeWrite,
	"POST /deployments/{id}/import":            auth.ScopeWrite,
	"GET /deployments/{id}/builds":             auth.ScopeRead,
	"GET /deployments/{id}/builds/{n}":         auth.ScopeRead,
	"GET /deployments/{id}/builds/{n}/log":     auth.ScopeRead,
	"POST /deployments/{id}/builds/{n}/cancel": auth.ScopeWrite,
	"GET /deployments/{id}/events":             auth.ScopeRead,
	"POST /deployments/{id}/events/ticket":     auth.ScopeRead,
	"GET /sbom-list/{id}":                      auth.ScopeRead,
	"GET /sbom/{id}":                           auth.ScopeRead,
	"GET /sbom-diff/{id}":                      auth.ScopeRead,
	"GET /components":                          auth.ScopeRead,
	"POST /codec/decode":                       auth.ScopeRead,
	"POST /codec/encode":                       auth.ScopeRead,
	"POST /application-paths":                  "",
	"POST /sections":                           "",
	"GET /schema":                              "",
	"GET /openapi.yaml":                        "",
	"GET /docs":                                "",
	"GET /docs/{asset}":                        "",
}

const (
	secondIssuer = "https://second.example"
	awayIssuer   = "https://away.example"
)

// kindOfToken is one and what it gets from a call: 0 where the call goes on.
type kindOfToken struct {
	name, header string
	gets         func(scope, route string) int
}

func always(status int) func(string, string) int { return func(string, string) int { return status } }

func (b *bundle) kindsOfTokens(second *ecdsa.PrivateKey) []kindOfToken {
	t := b.t
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	all := func(changes claims) claims {
		c := claims{"iss": testIssuer, "aud": testAudience, "exp": time.Now().Add(time.Hour).Unix(), "scope": both}
		for name, value := range changes {
			c[name] = value
		}
		return c
	}
	of := func(key *ecdsa.PrivateKey, changes claims) string {
		return "Bearer " + signed(t, jose.ES256, key, all(changes))
	}
	der, err := x509.MarshalPKIXPublicKey(b.key.Public())
	require.NoError(t, err)
	publicKey := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	payload, err := json.Marshal(all(nil))
	require.NoError(t, err)
	encoded := base64.RawURLEncoding.EncodeToString
	hasScope := func(had string) func(string, string) int {
		return func(scope, _ string) int {
			if strings.Contains(had, scope) {
				return 0
			}
			return http.StatusForbidden
		}
	}
	onlyLists := func(_, route string) int {
		if strings.Contains(route, "{id}") || strings.HasPrefix(route, "/codec/") {
			return http.StatusForbidden
		}
		return 0
	}
	notTheCodec := func(_, route string) int {
		if strings.HasPrefix(route, "/codec/") {
			return http.StatusForbidden
		}
		return 0
	}
	ago, soon := time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Hour/2).Unix()
	refused, passes := always(http.StatusUnauthorized), always(0)
	return []kindOfToken{
		{"none", "", refused},
		{"another scheme", "Basic dXNlcjpwYXNz", refused},
		{"empty", "Bearer ", refused},
		{"malformed", "Bearer nonsense", refused},
		{"expired", of(b.key, claims{"exp": ago}), refused},
		{"not yet valid", of(b.key, claims{"nbf": soon}), refused},
		{"issued in the future", of(b.key, claims{"iat": soon}), refused},
		{"without an end", of(b.key, claims{"exp": nil}), refused},
		{"wrong issuer", of(b.key, claims{"iss": "https://else.example"}), refused},
		{"wrong audience", of(b.key, claims{"aud": "else"}), refused},
		{"no audience", of(b.key, claims{"aud": ""}), refused},
		{"HS256 with the public key", "Bearer " + signed(t, jose.HS256, publicKey, all(nil)), refused},
		{"alg none", "Bearer " + encoded([]byte(`{"alg":"none"}`)) + "." + encoded(payload) + ".", refused},
		{"wrong key", of(stranger, nil), refused},
		{"key of another issuer", of(second, nil), refused},
		{"another issuer with our key", of(b.key, claims{"iss": secondIssuer}), refused},
		{"deployments not a list", of(b.key, claims{"deployments": "one"}), refused},
		{"missing scope", of(b.key, claims{"scope": "openid"}), always(http.StatusForbidden)},
		{"read only", of(b.key, claims{"scope": auth.ScopeRead}), hasScope(auth.ScopeRead)},
		{"write only", of(b.key, claims{"scope": auth.ScopeWrite}), hasScope(auth.ScopeWrite)},
		{"limited to another deployment", of(b.key, claims{"deployments": []string{"two"}}), onlyLists},
		{"limited to none", of(b.key, claims{"deployments": []string{}}), onlyLists},
		{"limited to this one", of(b.key, claims{"deployments": []string{"one"}}), notTheCodec},
		{"good", of(b.key, nil), passes},
		{"good, of another issuer", of(second, claims{"iss": secondIssuer}), passes},
		{"of an issuer that is away", of(b.key, claims{"iss": awayIssuer}), always(http.StatusServiceUnavailable)},
	}
}

func TestEveryCallWithEveryKindOfToken(t *testing.T) {
	second, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	b := start(t, nil)
	folder := t.TempDir()
	keyFile := func(name string, key *ecdsa.PrivateKey) string {
		set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: name}}})
		require.NoError(t, err)
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, set, 0o600))
		return path
	}
	b.api.Verifier, err = auth.NewVerifier([]auth.Issuer{
		{Issuer: testIssuer, Audience: testAudience, JWKSFile: keyFile("first", b.key)},
		{Issuer: secondIssuer, Audience: testAudience, JWKSFile: keyFile("second", second)},
		{Issuer: awayIssuer, Audience: testAudience, JWKSURL: "http://127.0.0.1:1/keys"},
	}, time.Now, zap.NewNop())
	require.NoError(t, err)

	asked := func() int {
		n := b.workflows.called()
		for _, read := range []string{"Deployment", "Build", "Builds", "Snapshot", "SBOMs", "ComponentUses"} {
			n += b.Reads(read)
		}
		return n
	}
	seen := 0
	kinds := b.kindsOfTokens(second)
	require.NoError(t, chi.Walk(b.api.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		call := method + " " + route
		scope, known := needs[call]
		require.True(t, known, "what does %s need?", call)
		seen++
		// No deployment exists, so that a call that goes on ends soon.
		path := strings.NewReplacer("{id}", "one", "{n}", "1", "{asset}", "x").Replace(route)
		for _, kind := range kinds {
			want := kind.gets(scope, route)
			if scope == "" {
				want = 0
			}
			before := asked()
			a := b.do(method, path, "", "Authorization", kind.header)
			if want == 0 {
				require.NotContains(t, []int{401, 403, 500, 503}, a.status, "%s with %s: %s", call, kind.name, a.body)
				continue
			}
			require.Equal(t, want, a.status, "%s with %s: %s", call, kind.name, a.body)
			require.Equal(t, want != http.StatusServiceUnavailable, a.header.Get("WWW-Authenticate") != "" ||
				strings.HasPrefix(kind.name, "limited"), "%s with %s", call, kind.name)
			require.Equal(t, before, asked(), "%s with %s: nothing was looked at", call, kind.name)
		}
		return nil
	}))
	require.Len(t, needs, seen, "calls that there are no more")
}
