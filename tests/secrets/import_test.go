package secrets

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/wire"
)

// imports: an import writes its secrets as a submit does, and none where
// something is refused; its first submit keeps them.
func (s *site) imports(t *testing.T) {
	const id = "imported"
	importAs := func(id, key string, configuration members) answer {
		return s.do(t, http.MethodPost, "/deployments/"+id+"/import", key, members{"configuration": configuration, "deploy": false})
	}
	imports := func(key string, configuration members) answer { return importAs(id, key, configuration) }
	refused := imports("refused", forum(members{key: s.secret(id)}, members{"refuse": true}))
	require.Equal(t, "invalid_configuration", refused.Error, refused.Body)
	require.Nil(t, s.mount.Metadata(t, id, "forum", key))
	builds, preparing := s.rows(t, id)
	require.Zero(t, builds+preparing)

	value := s.secret(id)
	var a answer
	await(t, func() error {
		if a = imports("import", forum(members{key: value})); a.Status == http.StatusServiceUnavailable {
			return errors.New(a.Message)
		}
		return nil
	})
	require.Equal(t, http.StatusCreated, a.Status, a.Body)
	require.Equal(t, []string{"www.example.org", "translated.example.org"}, a.names(), "the evaluation has secretsSet")
	require.Equal(t, value, s.value(t, id, key))
	s.closed(t, wire.ImportID(id, wire.HashRequest("import")))
	require.Equal(t, http.StatusCreated, imports("import", forum(members{key: value})).Status, "the same again")
	known := imports("another", forum(members{key: s.secret(id)}))
	require.Equal(t, "already_exists", known.Error, known.Body)
	require.Equal(t, "1", s.version(t, id, key))

	first := s.deploy(t, id, "first", forum(members{}))
	require.Equal(t, []string{key}, s.stored(t, id, first.Build).SecretsSet)
	require.Equal(t, value, s.value(t, id, key))

	// One that was never deployed is idle, and leaves nothing behind either.
	const idle = "imported-idle"
	await(t, func() error {
		if a = importAs(idle, "import", forum(members{key: s.secret(idle)})); a.Status == http.StatusServiceUnavailable {
			return errors.New(a.Message)
		}
		return nil
	})
	require.Equal(t, http.StatusCreated, a.Status, a.Body)
	require.NotNil(t, s.mount.Metadata(t, idle, "forum", key))
	await(t, func() error {
		if a = s.do(t, http.MethodDelete, "/deployments/"+idle, "", nil); a.Status == http.StatusServiceUnavailable {
			return errors.New(a.Message)
		}
		return nil
	})
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	await(t, func() error {
		if s.mount.Metadata(t, idle, "forum", key) != nil {
			return errors.New("the secret of a deployment that is idle is still there")
		}
		return nil
	})
}
