package auth

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

const (
	maxKeySet  = 1 << 20 // bytes
	minRSABits = 2048
)

// verify returns the payload of a JWS that one of the keys signed.
func verify(jws *jose.JSONWebSignature, keys []jose.JSONWebKey) ([]byte, error) {
	header := jws.Signatures[0].Header
	for _, key := range keys {
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

// parseKeys finds the keys of a set that can verify signatures: at least one.
// Keys of other kinds are passed over, as the standard has it; a private or a
// symmetric key is an error, since the set is meant to be public. from is the
// place of the set, for errors.
func parseKeys(content []byte, from string) ([]jose.JSONWebKey, error) {
	if len(content) > maxKeySet {
		return nil, fmt.Errorf("keys of the issuer: %s has more than %d bytes", from, maxKeySet)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, fmt.Errorf("keys of the issuer: %s is not a JSON Web Key Set: %w", from, err)
	}
	var keys []jose.JSONWebKey
	for i, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		if !key.IsPublic() {
			return nil, fmt.Errorf("keys of the issuer: key %d of %s is not a public key", i+1, from)
		}
		if public, ok := key.Key.(*rsa.PublicKey); ok && public.N.BitLen() < minRSABits {
			return nil, fmt.Errorf("keys of the issuer: key %d of %s has %d bits, at least %d are needed", i+1, from, public.N.BitLen(), minRSABits)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("keys of the issuer: %s has no key that verifies signatures", from)
	}
	return keys, nil
}
