package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// What slipway-dev puts into its tokens and tells slipway to trust.
const (
	DefaultIssuer   = "http://slipway-dev"
	DefaultAudience = "slipway"
	DefaultSubject  = "slipway-dev"
	// DefaultScope allows everything that the deployments API offers; the
	// names are separated by a space.
	DefaultScope = "deployments:read deployments:write"
	DefaultTTL   = 30 * 24 * time.Hour
)

// Issuer signs tokens.
type Issuer struct {
	// JWKSFile is the absolute path of the public key, as a JSON Web Key Set.
	JWKSFile string
	// KeyID is the kid of every token: the key's RFC 7638 thumbprint.
	KeyID string

	signer jose.Signer
}

// Claims is what a token says.
type Claims struct {
	Issuer   string
	Audience string
	Subject  string
	// Scope is a list of scopes, separated by spaces.
	Scope string
	// Deployments limits the token to these identifiers, an empty list to none
	// of them; nil does not limit it.
	Deployments []string
	// IssuedAt and Expires have a resolution of a second. Expires may lie
	// before IssuedAt: that is how an expired token is made.
	IssuedAt, Expires time.Time
}

// Open reads the key pair of a folder. Where the folder or its key is absent
// it makes them first; a JWKS file that is missing, or is of another key, is
// written again.
func Open(folder string) (*Issuer, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	key, err := readOrMakeKey(filepath.Join(folder, "key.pem"))
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	public := jose.JSONWebKey{Key: key.Public(), Algorithm: string(jose.ES256), Use: "sig"}
	thumbprint, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	public.KeyID = base64.RawURLEncoding.EncodeToString(thumbprint)

	i := &Issuer{JWKSFile: filepath.Join(folder, "jwks.json"), KeyID: public.KeyID}
	set, err := json.MarshalIndent(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	set = append(set, '\n')
	if now, err := os.ReadFile(i.JWKSFile); err != nil || string(now) != string(set) {
		if err := write(i.JWKSFile, set, 0o644); err != nil {
			return nil, fmt.Errorf("issuer: %w", err)
		}
	}
	i.signer, err = jose.NewSigner(
		jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: i.KeyID}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	return i, nil
}

// Token signs claims as a compact JWT.
func (i *Issuer) Token(claims Claims) (string, error) {
	registered := jwt.Claims{
		Issuer:   claims.Issuer,
		Audience: jwt.Audience{claims.Audience},
		Subject:  claims.Subject,
		IssuedAt: jwt.NewNumericDate(claims.IssuedAt),
		Expiry:   jwt.NewNumericDate(claims.Expires),
	}
	private := map[string]any{"scope": claims.Scope}
	if claims.Deployments != nil {
		private["deployments"] = claims.Deployments
	}
	token, err := jwt.Signed(i.signer).Claims(registered).Claims(private).Serialize()
	if err != nil {
		return "", fmt.Errorf("issuer: sign: %w", err)
	}
	return token, nil
}

func readOrMakeKey(path string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return makeKey(path)
	case err != nil:
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not a PEM file; remove it to get a new key", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to get a new key", path, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s is not an ECDSA P-256 key; remove it to get a new one", path)
	}
	return key, nil
}

func makeKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, write(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// write puts a whole file in its place or none, whatever ends the program
// meanwhile.
func write(path string, content []byte, mode fs.FileMode) error {
	next := path + ".new"
	if err := os.WriteFile(next, content, mode); err != nil {
		return err
	}
	return os.Rename(next, path)
}
