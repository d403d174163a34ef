package auth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
)

// Scopes of the deployments API ("Who may" of its contract).
const (
	ScopeRead  = "deployments:read"
	ScopeWrite = "deployments:write"
)

const (
	// Skew is how far the clock of an issuer may run ahead of ours.
	Skew = 60 * time.Second
	// MaxToken is the longest token, in bytes.
	MaxToken = 16 << 10
)

// Issuer is an issuer of tokens that the API trusts.
type Issuer struct {
	// Issuer is the exact claim iss of its tokens.
	Issuer string `json:"issuer"`
	// Audience must be among the claim aud of its tokens.
	Audience string `json:"audience"`
	// JWKSFile is the path of its public keys, a JSON Web Key Set.
	JWKSFile string `json:"jwksFile"`
}

// Grant is what a token allows.
type Grant struct {
	Issuer  string
	Subject string
	// Expires is when the token ends, and every stream that it opened.
	Expires time.Time

	scopes      []string
	limited     bool
	deployments map[string]struct{}
}

// Has reports whether the grant has a scope.
func (g Grant) Has(scope string) bool {
	for _, s := range g.scopes {
		if s == scope {
			return true
		}
	}
	return false
}

// Covers reports whether the grant is for a deployment.
func (g Grant) Covers(deployment string) bool {
	_, named := g.deployments[deployment]
	return named || !g.limited
}

// Verifier checks tokens. It may be used from several goroutines.
type Verifier struct {
	// An issuer may be trusted more than once, for other audiences or keys.
	issuers map[string][]*oidc.IDTokenVerifier
	now     func() time.Time
}

// NewVerifier trusts the issuers, at least one. It reads their keys, and
// returns an error that names the issuer where that fails. Keys that change
// for the worse later are told to log.
func NewVerifier(issuers []Issuer, now func() time.Time, log *zap.Logger) (*Verifier, error) {
	if len(issuers) == 0 {
		return nil, errors.New("no issuer of tokens is trusted: nobody could call the API")
	}
	v := &Verifier{issuers: map[string][]*oidc.IDTokenVerifier{}, now: now}
	for i, issuer := range issuers {
		if issuer.Issuer == "" || issuer.Audience == "" || issuer.JWKSFile == "" {
			return nil, fmt.Errorf("trusted issuer %d: issuer, audience and jwksFile are all needed", i+1)
		}
		keys, err := newKeyFile(issuer.JWKSFile, log.With(zap.String("issuer", issuer.Issuer)))
		if err != nil {
			return nil, fmt.Errorf("trusted issuer %q: %w", issuer.Issuer, err)
		}
		v.issuers[issuer.Issuer] = append(v.issuers[issuer.Issuer], oidc.NewVerifier(issuer.Issuer, keys, &oidc.Config{
			ClientID:             issuer.Audience,
			SupportedSigningAlgs: algorithmNames(),
			SkipExpiryCheck:      true, // ours is stricter, see grant
		}))
	}
	return v, nil
}

// Verify checks a token. Its error is for the caller of the API: it says what
// is wrong with the token, and nothing of ours.
func (v *Verifier) Verify(ctx context.Context, token string) (Grant, error) {
	if len(token) > MaxToken {
		return Grant{}, fmt.Errorf("the token has more than %d bytes", MaxToken)
	}
	issuer, err := issuerOf(token)
	if err != nil {
		return Grant{}, err
	}
	trusted, ok := v.issuers[issuer]
	if !ok {
		return Grant{}, errors.New("the issuer of the token is not trusted")
	}
	for _, verifier := range trusted {
		verified, err := verifier.Verify(ctx, token)
		if err == nil {
			return v.grant(verified)
		}
	}
	return Grant{}, errors.New("the token is not signed with a key of its issuer, is for another audience, or is malformed")
}

// issuerOf reads the claim iss before anything is verified, only to find the
// keys to verify it with.
func issuerOf(token string) (string, error) {
	malformed := errors.New("the token is not a JWT")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", malformed
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", malformed
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", malformed
	}
	return claims.Issuer, nil
}

func (v *Verifier) grant(token *oidc.IDToken) (Grant, error) {
	// A map, because the fields of a struct would also take names in capitals.
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return Grant{}, errors.New("the claims of the token are not an object")
	}
	g := Grant{Issuer: token.Issuer, Subject: token.Subject}
	now := v.now()

	expires, given, err := seconds(claims, "exp")
	switch {
	case err != nil:
		return Grant{}, err
	case !given:
		return Grant{}, errors.New("the token has no claim exp")
	case !now.Before(expires):
		return Grant{}, errors.New("the token has expired")
	}
	g.Expires = expires
	for _, name := range []string{"nbf", "iat"} {
		from, given, err := seconds(claims, name)
		if err != nil {
			return Grant{}, err
		}
		if given && from.After(now.Add(Skew)) {
			return Grant{}, fmt.Errorf("the claim %s of the token lies in the future", name)
		}
	}

	if raw, ok := claims["scope"]; ok {
		var scope *string
		if err := json.Unmarshal(raw, &scope); err != nil || scope == nil {
			return Grant{}, errors.New("the claim scope of the token is not a string")
		}
		g.scopes = strings.Fields(*scope)
	}
	if raw, ok := claims["deployments"]; ok {
		var ids []*string
		if err := json.Unmarshal(raw, &ids); err != nil || ids == nil {
			return Grant{}, errors.New("the claim deployments of the token is not an array of strings")
		}
		g.limited, g.deployments = true, make(map[string]struct{}, len(ids))
		for _, id := range ids {
			if id == nil {
				return Grant{}, errors.New("the claim deployments of the token is not an array of strings")
			}
			g.deployments[*id] = struct{}{}
		}
	}
	return g, nil
}

// seconds reads a NumericDate (RFC 7519): seconds since 1970, maybe with a
// fraction. Years that time.Time cannot count are cut to some far future.
func seconds(claims map[string]json.RawMessage, name string) (at time.Time, given bool, err error) {
	raw, ok := claims[name]
	if !ok {
		return time.Time{}, false, nil
	}
	var value *float64
	if err := json.Unmarshal(raw, &value); err != nil || value == nil {
		return time.Time{}, false, fmt.Errorf("the claim %s of the token is not a number", name)
	}
	const farFuture = 1 << 40 // seconds; about the year 36,000
	whole, fraction := math.Modf(math.Max(0, math.Min(*value, farFuture)))
	return time.Unix(int64(whole), int64(fraction*1e9)), true, nil
}

// algorithms are the signature algorithms of tokens: asymmetric ones only, so
// that nobody who knows a public key can sign.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

func algorithmNames() []string {
	var names []string
	for _, a := range algorithms() {
		names = append(names, string(a))
	}
	return names
}
