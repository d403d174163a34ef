package auth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
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
	// Skew is how far the clocks of an issuer and ours may be apart.
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
	JWKSFile string `json:"jwksFile,omitempty"`
	// JWKSURL is the URL of its public keys. With neither, Issuer is a URL
	// where OpenID Connect Discovery finds them.
	JWKSURL string `json:"jwksUrl,omitempty"`
	// CAFile is the path of the certificates (PEM) that a fetch trusts; empty:
	// those of the system.
	CAFile string `json:"caFile,omitempty"`
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

// Deployments are the identifiers that the grant is limited to, sorted; nil
// where it is for every deployment.
func (g Grant) Deployments() []string {
	if !g.limited {
		return nil
	}
	ids := slices.AppendSeq(make([]string, 0, len(g.deployments)), maps.Keys(g.deployments))
	slices.Sort(ids)
	return ids
}

// Verifier checks tokens. It may be used from several goroutines.
type Verifier struct {
	// An issuer may be trusted more than once, for other audiences or keys.
	issuers map[string][]trusted
	remote  []*remoteKeys
	now     func() time.Time
}

type trusted struct {
	Issuer
	keys oidc.KeySet
}

// NewVerifier trusts the issuers, at least one. It reads keys from files, and
// returns an error that names the issuer where that fails. It fetches none:
// that is for Run, and for the first token of the issuer. Keys that change for
// the worse later are told to log.
func NewVerifier(issuers []Issuer, now func() time.Time, log *zap.Logger) (*Verifier, error) {
	if len(issuers) == 0 {
		return nil, errors.New("no issuer of tokens is trusted: nobody could call the API")
	}
	v := &Verifier{issuers: map[string][]trusted{}, now: now}
	for i, issuer := range issuers {
		switch {
		case issuer.Issuer == "" || issuer.Audience == "":
			return nil, fmt.Errorf("trusted issuer %d: issuer and audience are both needed", i+1)
		case issuer.JWKSFile != "" && (issuer.JWKSURL != "" || issuer.CAFile != ""):
			return nil, fmt.Errorf("trusted issuer %q: jwksFile goes with neither jwksUrl nor caFile", issuer.Issuer)
		}
		log := log.With(zap.String("issuer", issuer.Issuer))
		t := trusted{Issuer: issuer}
		var err error
		if issuer.JWKSFile != "" {
			t.keys, err = newKeyFile(issuer.JWKSFile, log)
		} else {
			var keys *remoteKeys
			keys, err = newRemoteKeys(issuer, now, log)
			t.keys, v.remote = keys, append(v.remote, keys)
		}
		if err != nil {
			return nil, fmt.Errorf("trusted issuer %q: %w", issuer.Issuer, err)
		}
		v.issuers[issuer.Issuer] = append(v.issuers[issuer.Issuer], t)
	}
	return v, nil
}

// Run keeps the keys that are fetched as they are at their issuers, until ctx
// ends.
func (v *Verifier) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, keys := range v.remote {
		group.Go(func() { keys.run(ctx) })
	}
	group.Wait()
}

// Verify checks a token. Its error is ErrKeysAway, or else for the caller of
// the API: it says what is wrong with the token, and nothing of ours.
func (v *Verifier) Verify(ctx context.Context, token string) (Grant, error) {
	if len(token) > MaxToken {
		return Grant{}, fmt.Errorf("the token has more than %d bytes", MaxToken)
	}
	issuer, err := issuerOf(token)
	if err != nil {
		return Grant{}, err
	}
	entries, ok := v.issuers[issuer]
	if !ok {
		return Grant{}, errors.New("the issuer of the token is not trusted")
	}
	refused := errors.New("the token is not signed with a key of its issuer, is for another audience, or is malformed")
	for _, entry := range entries {
		verified, err := entry.verify(ctx, token)
		if err == nil {
			return v.grant(verified)
		}
		if errors.Is(err, ErrKeysAway) {
			refused = err
		}
	}
	return Grant{}, refused
}

func (t trusted) verify(ctx context.Context, token string) (*oidc.IDToken, error) {
	keys := &remembering{KeySet: t.keys}
	verified, err := oidc.NewVerifier(t.Issuer.Issuer, keys, &oidc.Config{
		ClientID:             t.Audience,
		SupportedSigningAlgs: algorithmNames(),
		SkipExpiryCheck:      true, // with Skew, see grant
	}).Verify(ctx, token)
	if errors.Is(keys.err, ErrKeysAway) {
		return nil, keys.err
	}
	return verified, err
}

// remembering keeps the error of a key set, of which package oidc passes on
// the text alone.
type remembering struct {
	oidc.KeySet
	err error
}

func (r *remembering) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, r.err = r.KeySet.VerifySignature(ctx, token)
	return payload, r.err
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
	case !now.Before(expires.Add(Skew)):
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
