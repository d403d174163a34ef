package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

// MaxTicket is the longest life of a ticket.
const MaxTicket = time.Hour

// minKey is the shortest key, in bytes.
const minKey = 32

// Tickets signs and checks tickets for the channel of one deployment. A ticket
// is
//
//	base64url(expiry in seconds, 8 bytes ‖ deployment) "." base64url(HMAC-SHA256)
//
// and may be used until it expires, by whoever has it.
type Tickets struct{ key []byte }

// NewTickets takes the key that all replicas share, at least 32 random bytes.
func NewTickets(key []byte) (Tickets, error) {
	if len(key) < minKey {
		return Tickets{}, fmt.Errorf("the key of the tickets has %d bytes, at least %d are needed", len(key), minKey)
	}
	return Tickets{key: key}, nil
}

// Issue makes a ticket that ends with the token that buys it, and after
// MaxTicket at the latest. The end is in whole seconds.
func (t Tickets) Issue(deployment string, now, tokenExpires time.Time) (ticket string, expires time.Time) {
	expires = now.Add(MaxTicket)
	if tokenExpires.Before(expires) {
		expires = tokenExpires
	}
	expires = time.Unix(expires.Unix(), 0).UTC()
	statement := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix()))
	statement = append(statement, deployment...)
	return base64.RawURLEncoding.EncodeToString(statement) + "." + base64.RawURLEncoding.EncodeToString(t.sign(statement)), expires
}

// Check says until when a ticket lets its holder read the channel of a
// deployment. Its error is for the caller of the API.
func (t Tickets) Check(ticket, deployment string, now time.Time) (expires time.Time, err error) {
	invalid := errors.New("the ticket is not valid for this channel")
	left, right, _ := strings.Cut(ticket, ".")
	statement, err := base64.RawURLEncoding.Strict().DecodeString(left)
	if err != nil {
		return time.Time{}, invalid
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(right)
	if err != nil || !hmac.Equal(signature, t.sign(statement)) {
		return time.Time{}, invalid
	}
	if len(statement) < 8 || string(statement[8:]) != deployment {
		return time.Time{}, invalid
	}
	expires = time.Unix(int64(binary.BigEndian.Uint64(statement)), 0)
	if !now.Before(expires) {
		return time.Time{}, errors.New("the ticket has expired")
	}
	return expires, nil
}

// sign keeps these signatures apart from whatever else the key may sign.
func (t Tickets) sign(statement []byte) []byte {
	mac := hmac.New(sha256.New, t.key)
	mac.Write([]byte("slipway channel ticket 1\x00"))
	mac.Write(statement)
	return mac.Sum(nil)
}
