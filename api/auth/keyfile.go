package auth

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
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
	return verify(jws, f.current())
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

// readKeys reads the keys of a file.
func readKeys(path string) ([]jose.JSONWebKey, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("keys of the issuer: %w", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxKeySet+1))
	if err != nil {
		return nil, fmt.Errorf("keys of the issuer: %w", err)
	}
	return parseKeys(content, path)
}
