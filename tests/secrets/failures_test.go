package secrets

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/tests/kvstand"
)

// elsewhere sends all requests about the mount to another, with a token of that.
func (s *site) elsewhere(other kvstand.Mount, token string) kvstand.Fault {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		r.URL.Path = strings.Replace(r.URL.Path, "/"+s.mount.Path, "/"+other.Path, 1)
		r.Header.Set("X-Vault-Token", token)
		return false
	}
}

// away is what happens to a submit while OpenBao cannot be used: nothing. Once
// it is back, the same submit succeeds.
func (s *site) away(t *testing.T, id string, breakIt, mend func()) {
	t.Helper()
	value := s.secret(id)
	configuration := forum(members{key: value})
	breakIt()
	s.requireAway(t, id, s.put(t, id, "away", configuration))
	mend()
	s.submit(t, id, "away", configuration)
	require.Equal(t, value, s.value(t, id, key))
	_, preparing := s.rows(t, id)
	require.Zero(t, preparing)
}

// requireAway says that an answer is that of a submit which nothing became of,
// and which would have been the first of its deployment.
func (s *site) requireAway(t *testing.T, id string, a answer) {
	t.Helper()
	require.Equal(t, http.StatusServiceUnavailable, a.Status, a.Body)
	require.Equal(t, "service_unavailable", a.Error)
	for _, inner := range []string{"bao", "vault", "kv", "seal", "mount", "permission", "token", "127.0.0.1", s.mount.Path} {
		require.NotContains(t, strings.ToLower(a.Message), inner, "the caller is told nothing about OpenBao")
	}
	require.Equal(t, http.StatusNotFound, s.do(t, http.MethodGet, "/deployments/"+id, "", nil).Status)
	builds, preparing := s.rows(t, id)
	require.Zero(t, builds, "nothing is recorded")
	require.Zero(t, preparing, "and nothing in hand")
}

// noEngine runs before slipway has found its mount.
func (s *site) noEngine(t *testing.T) {
	first, gone := server.Mount(t, kvstand.MountOptions{Version: 1}), server.Mount(t)
	for id, other := range map[string]kvstand.Mount{"kv-one": first, "no-mount": gone} {
		token, _ := other.Token(t)
		if other == gone {
			require.NoError(t, server.Root().Sys().UnmountWithContext(t.Context(), gone.Path))
		}
		s.away(t, id, func() { s.faults.setAll(s.elsewhere(other, token)) }, func() { s.faults.setAll(nil) })
	}
}

func (s *site) sealed(t *testing.T) {
	s.away(t, "sealed", func() { server.Seal(t) }, func() { server.Unseal(t) })
}

func (s *site) expiredToken(t *testing.T) {
	token, _ := s.mount.Token(t)
	server.Revoke(t, token)
	expired := func(_ http.ResponseWriter, r *http.Request) bool {
		r.Header.Set("X-Vault-Token", token)
		return false
	}
	s.away(t, "expired", func() { s.faults.setAll(expired) }, func() { s.faults.setAll(nil) })
}

// refusals are answers, or none, to the requests about one deployment: to all,
// to the wrapping, to the write. Some say back what they were sent.
func (s *site) refusals(t *testing.T) {
	const wrap = "sys/wrapping/wrap"
	for id, fault := range map[string]kvstand.Fault{
		"read-403":     kvstand.Answer("metadata/", http.StatusForbidden, "permission denied"),
		"read-429":     kvstand.Answer("metadata/", http.StatusTooManyRequests, "rate limit quota exceeded"),
		"read-500":     kvstand.Answer("metadata/", http.StatusInternalServerError, "internal error"),
		"read-503":     kvstand.Answer("metadata/", http.StatusServiceUnavailable, "Vault is sealed"),
		"read-silence": kvstand.Silence("metadata/"),
		"wrap-403":     kvstand.Repeat(wrap, http.StatusForbidden),
		"wrap-400":     kvstand.Repeat(wrap, http.StatusBadRequest),
		"wrap-429":     kvstand.Repeat(wrap, http.StatusTooManyRequests),
		"wrap-silence": kvstand.Silence(wrap),
		"write-403":    kvstand.Repeat("/data/", http.StatusForbidden),
		"write-400":    kvstand.Repeat("/data/", http.StatusBadRequest),
		"write-500":    kvstand.Repeat("/data/", http.StatusInternalServerError),
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			s.away(t, id, func() { s.faults.set(id, fault) }, func() { s.faults.set(id, nil) })
		})
	}
}
