package secrets

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/tests/kvstand"
)

// goneByThemselves: an entry whose current version was deleted, by a person or
// by its delete_version_after, or destroyed, is not set, and can be written.
func (s *site) goneByThemselves(t *testing.T) {
	for id, end := range map[string]func(id string){
		"soft-deleted": func(id string) { s.mount.SoftDelete(t, id, "forum", key) },
		"shredded":     func(id string) { s.mount.Destroy(t, id, "forum", key, 1) },
		"expires":      func(string) {}, // by itself
	} {
		if id == "expires" {
			s.mount.Configure(t, id, "forum", key, map[string]any{"delete_version_after": "1s"})
		}
		s.mount.Put(t, id, "forum", key, map[string]any{"value": s.secret(id)})
		end(id)
		await(t, func() error {
			if s.value(t, id, key) != nil {
				return errors.New("it has a value")
			}
			return nil
		})
		a := s.submit(t, id, "none", forum(members{}))
		require.Empty(t, s.stored(t, id, a.Build).SecretsSet, id)
		require.NotContains(t, a.names(), "translated.example.org", id)

		s.mount.Configure(t, id, "forum", key, map[string]any{"delete_version_after": "0s"})
		value := s.secret(id)
		a = s.submit(t, id, "again", forum(members{key: value}))
		require.Equal(t, []string{key}, s.stored(t, id, a.Build).SecretsSet, id)
		require.Equal(t, value, s.value(t, id, key), id)
		require.Equal(t, "2", s.version(t, id, key), id)
	}
}

// casRequired: a mount that takes no write without check-and-set.
func (s *site) casRequired(t *testing.T) {
	const id = "strict"
	strict := server.Mount(t, kvstand.MountOptions{CASRequired: true})
	token, _ := strict.Token(t)
	s.faults.set(id, s.elsewhere(strict, token))
	for _, submit := range []string{"first", "second"} {
		value := s.secret(id)
		s.deploy(t, id, submit, forum(members{key: value}))
		require.Equal(t, map[string]any{"value": value}, strict.Get(t, id, "forum", key))
	}
	a := s.deploy(t, id, "clear", forum(members{"secretsClear": []string{key}}))
	require.Empty(t, s.stored(t, id, a.Build).SecretsSet)
	require.Nil(t, strict.Metadata(t, id, "forum", key))
	require.Nil(t, s.mount.Metadata(t, id, "forum", key), "it was all in the other one")
}

// writtenByHand: an entry without the key value is set, but is no value to copy;
// a submit may replace it.
func (s *site) writtenByHand(t *testing.T) {
	const kept, renamed = "by-hand", "by-hand-renamed"
	s.mount.Put(t, kept, "forum", key, map[string]any{"other": s.secret(kept)})
	a := s.submit(t, kept, "keep", forum(members{}))
	require.Equal(t, []string{key}, s.stored(t, kept, a.Build).SecretsSet)
	require.Equal(t, "1", s.version(t, kept, key))
	value := s.secret(kept)
	s.submit(t, kept, "replace", forum(members{key: value}))
	require.Equal(t, map[string]any{"value": value}, s.mount.Get(t, kept, "forum", key))

	s.mount.Put(t, renamed, "forum", "translateKey", map[string]any{"other": s.secret(renamed)})
	s.requireAway(t, renamed, s.put(t, renamed, "copy", forum(members{})))
	require.Nil(t, s.mount.Metadata(t, renamed, "forum", key))
	value = s.secret(renamed)
	s.submit(t, renamed, "give", forum(members{key: value}))
	require.Equal(t, value, s.value(t, renamed, key))
}
