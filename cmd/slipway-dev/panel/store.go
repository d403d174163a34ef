package panel

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// maxDrafts is how many drafts a user may have: as many as one list of the API
// takes, and as an access token can name.
const maxDrafts = 100

// Refusals of the store.
var (
	errNoDraft  = errors.New("there is no such draft")
	errRevision = errors.New("the draft was changed meanwhile")
	errTooMany  = fmt.Errorf("a user may have %d drafts", maxDrafts)
	errToken    = errors.New("the token is not one of this draft")
)

// Draft is what a person wants a deployment to be.
type Draft struct {
	// ID is the identifier of the deployment, a UUID.
	ID    string `json:"id"`
	Name  string `json:"name"`
	Owner string `json:"owner"`
	// Configuration is an object, without the values of secrets.
	Configuration json.RawMessage `json:"configuration"`
	// Revision counts the changes.
	Revision int       `json:"revision"`
	Created  time.Time `json:"created"`
	Updated  time.Time `json:"updated"`
	// Deletions are those that have begun and may still be reconciled: two tabs
	// may each have begun one.
	Deletions []secret `json:"deletions,omitempty"`
}

// secret is what is kept of a random text that opens something.
type secret struct {
	// Hash is the SHA-256, in hexadecimal digits.
	Hash    string    `json:"hash"`
	User    string    `json:"user,omitempty"`
	Expires time.Time `json:"expires"`
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// find compares with each in constant time.
func find(secrets []secret, text string, now time.Time) (secret, bool) {
	hash := []byte(hashOf(text))
	var found secret
	ok := false
	for _, s := range secrets {
		if subtle.ConstantTimeCompare([]byte(s.Hash), hash) == 1 && now.Before(s.Expires) {
			found, ok = s, true
		}
	}
	return found, ok
}

func unexpired(secrets []secret, now time.Time) []secret {
	return slices.DeleteFunc(slices.Clone(secrets), func(s secret) bool { return !now.Before(s.Expires) })
}

// content is the file of the store.
type content struct {
	Drafts   []Draft  `json:"drafts"`
	Sessions []secret `json:"sessions"`
}

// store keeps drafts and sessions in one file. A change is in the file before
// it is seen.
type store struct {
	path string
	mu   sync.Mutex
	now  content
}

func openStore(path string) (*store, error) {
	s := &store{path: path}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(text, &s.now); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func (s *store) read() content {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// change writes what f makes of the content. What f gets is shared with
// readers, so it replaces slices and changes none.
func (s *store) change(f func(c *content) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.now
	if err := f(&next); err != nil {
		return err
	}
	text, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return err
	}
	if err := replace(s.path, append(text, '\n')); err != nil {
		return err
	}
	s.now = next
	return nil
}

// replace puts a whole file in its place or none, also when the machine stops.
func replace(path string, text []byte) error {
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// draftsOf are the drafts of a user, oldest first.
func (s *store) draftsOf(user string) []Draft {
	drafts := []Draft{}
	for _, d := range s.read().Drafts {
		if d.Owner == user {
			drafts = append(drafts, d)
		}
	}
	return drafts
}

func (s *store) draft(user, id string) (Draft, error) {
	drafts := s.read().Drafts
	at := indexOf(drafts, user, id)
	if at < 0 {
		return Draft{}, errNoDraft
	}
	return drafts[at], nil
}

// indexOf finds a draft of a user; another's is not there.
func indexOf(drafts []Draft, user, id string) int {
	return slices.IndexFunc(drafts, func(d Draft) bool { return d.ID == id && d.Owner == user })
}

func (s *store) create(user, name string, now time.Time) (Draft, error) {
	d := Draft{
		ID: uuid.NewString(), Name: name, Owner: user, Configuration: json.RawMessage(`{}`),
		Revision: 1, Created: now, Updated: now,
	}
	if len(s.draftsOf(user)) >= maxDrafts {
		return Draft{}, errTooMany
	}
	return d, s.change(func(c *content) error {
		c.Drafts = append(slices.Clone(c.Drafts), d)
		return nil
	})
}

// update changes a draft of a user.
func (s *store) update(user, id string, f func(d *Draft) error) (Draft, error) {
	var changed Draft
	return changed, s.change(func(c *content) error {
		at := indexOf(c.Drafts, user, id)
		if at < 0 {
			return errNoDraft
		}
		c.Drafts = slices.Clone(c.Drafts)
		if err := f(&c.Drafts[at]); err != nil {
			return err
		}
		changed = c.Drafts[at]
		return nil
	})
}

// save stores a new version of what was read as a revision. It withdraws the
// deletions: whoever changes a draft wants it.
func (s *store) save(user, id, name string, configuration json.RawMessage, revision int, now time.Time) (Draft, error) {
	return s.update(user, id, func(d *Draft) error {
		if d.Revision != revision {
			return errRevision
		}
		d.Name, d.Configuration, d.Updated, d.Deletions = name, configuration, now, nil
		d.Revision++
		return nil
	})
}

// begin notes a deletion that the holder of a token may finish.
func (s *store) begin(user, id, token string, now, expires time.Time) error {
	_, err := s.update(user, id, func(d *Draft) error {
		d.Deletions = append(unexpired(d.Deletions, now), secret{Hash: hashOf(token), Expires: expires})
		return nil
	})
	return err
}

// confirm removes a draft of a user.
func (s *store) confirm(user, id string) error {
	return s.change(func(c *content) error {
		at := indexOf(c.Drafts, user, id)
		if at < 0 {
			return errNoDraft
		}
		c.Drafts = slices.Delete(slices.Clone(c.Drafts), at, at+1)
		return nil
	})
}

// reconcile removes the draft that a token is for, and the token with it. That
// there is no such draft cannot be told from a wrong token.
func (s *store) reconcile(id, token string, now time.Time) error {
	return s.change(func(c *content) error {
		at := slices.IndexFunc(c.Drafts, func(d Draft) bool { return d.ID == id })
		if at < 0 {
			return errToken
		}
		if _, ok := find(c.Drafts[at].Deletions, token, now); !ok {
			return errToken
		}
		c.Drafts = slices.Delete(slices.Clone(c.Drafts), at, at+1)
		return nil
	})
}

func (s *store) signIn(user, session string, now, expires time.Time) error {
	return s.change(func(c *content) error {
		c.Sessions = append(unexpired(c.Sessions, now), secret{Hash: hashOf(session), User: user, Expires: expires})
		return nil
	})
}

func (s *store) signOut(session string) error {
	return s.change(func(c *content) error {
		hash := hashOf(session)
		c.Sessions = slices.DeleteFunc(slices.Clone(c.Sessions), func(s secret) bool { return s.Hash == hash })
		return nil
	})
}

func (s *store) userOf(session string, now time.Time) (string, bool) {
	found, ok := find(s.read().Sessions, session, now)
	return found.User, ok
}
