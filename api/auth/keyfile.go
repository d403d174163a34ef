package auth

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
)

const (
	maxKeyFile = 1 << 20 // bytes
	minRSABits = 2048
)

// keyFile is an oidc.KeySet of a JWKS file. The file is looked at with each
// token and read when it is another one than before, so that a rotation needs
// no restart, also where a mount swaps symbolic links.
type keyFile struct {
	path string
	log  *zap.Logger

	mu   sync.Mutex
	seen os.FileInfo
	keys []jose.JSONWebKey
}

func newKeyFile(path string, log *zap.Logger) (*keyFile, error) {
	f := &keyFile{path: path, log: log}
	seen, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("keys of the issuer: %w", err)
	}
	if f.keys, err = readKeys(path); err != nil {
		return nil, err
	}
	f.seen = seen
	return f, nil
}

// VerifySignature returns the payload of a compact JWS that one of the keys
// signed.
func (f *keyFile) VerifySignature(_ context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, algorithms())
	if err != nil {
		return nil, fmt.Errorf("parse the token: %w", err)
	}
	header := jws.Signatures[0].Header
	for _, key := range f.current() {
		if header.KeyID != "" && key.KeyID != "" && header.KeyID != key.KeyID ||
			key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := jws.Verify(key.Key); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("no key of the issuer signed the token")
}

func (f *keyFile) current() []jose.JSONWebKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := os.Stat(f.path)
	if err != nil {
		if f.seen != nil {
			f.log.Warn("the keys of an issuer are away, the last ones stay", zap.Error(err))
			f.seen = nil
		}
		return f.keys
	}
	if f.seen != nil && os.SameFile(f.seen, now) && f.seen.ModTime().Equal(now.ModTime()) && f.seen.Size() == now.Size() {
		return f.keys
	}
	f.seen = now
	keys, err := readKeys(f.path)
	if err != nil {
		f.log.Warn("the keys of an issuer changed to something unusable, the last ones stay", zap.Error(err))
		return f.keys
	}
	f.log.Info("the keys of an issuer were read again", zap.Int("keys", len(keys)))
	f.keys = keys
	return keys
}

// readKeys reads the keys of a set that can verify signatures: at least one.
// Keys of other kinds are passed over, as the standard has it; a private or a
// symmetric key is an error, since the file is meant to be public.
func readKeys(path string) ([]jose.JSONWebKey, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("keys of the issuer: %w", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("keys of the issuer: %w", err)
	}
	if len(content) > maxKeyFile {
		return nil, fmt.Errorf("keys of the issuer: %s has more than %d bytes", path, maxKeyFile)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, fmt.Errorf("keys of the issuer: %s is not a JSON Web Key Set: %w", path, err)
	}
	var keys []jose.JSONWebKey
	for i, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		if !key.IsPublic() {
			return nil, fmt.Errorf("keys of the issuer: key %d of %s is not a public key", i+1, path)
		}
		if public, ok := key.Key.(*rsa.PublicKey); ok && public.N.BitLen() < minRSABits {
			return nil, fmt.Errorf("keys of the issuer: key %d of %s has %d bits, at least %d are needed", i+1, path, public.N.BitLen(), minRSABits)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("keys of the issuer: %s has no key that verifies signatures", path)
	}
	return keys, nil
}
