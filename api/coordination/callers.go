package coordination

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

const (
	// callerAge is how long an accepted token is not reviewed again.
	callerAge = 15 * time.Second
	// maxCallers bounds the memory that callers can make this process use.
	maxCallers = 1024
)

// tokenKey stands for a token, which is not kept.
type tokenKey [sha256.Size]byte

func keyOf(token string) tokenKey { return sha256.Sum256([]byte(token)) }

// callers are the tokens that were accepted a moment ago.
type callers struct {
	now   func() time.Time
	mutex sync.Mutex
	known map[tokenKey]accepted
}

type accepted struct {
	account
	at time.Time
}

func newCallers(now func() time.Time) *callers {
	return &callers{now: now, known: map[tokenKey]accepted{}}
}

// valid says whether an entry still counts. One from the future does not: the
// clock has been set back, and nobody knows how old it is.
func (a accepted) valid(now time.Time) bool {
	age := now.Sub(a.at)
	return age >= 0 && age < callerAge
}

func (c *callers) find(key tokenKey) (account, bool) {
	now := c.now()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	found, ok := c.known[key]
	if !ok || !found.valid(now) {
		return account{}, false
	}
	return found.account, true
}

// add remembers an accepted token, unless that would cost the place of another
// that is still valid.
func (c *callers) add(key tokenKey, who account) {
	now := c.now()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, ok := c.known[key]; !ok && len(c.known) >= maxCallers {
		maps.DeleteFunc(c.known, func(_ tokenKey, a accepted) bool { return !a.valid(now) })
		if len(c.known) >= maxCallers {
			return
		}
	}
	c.known[key] = accepted{who, now}
}
