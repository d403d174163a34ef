package secrets

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/kvstand"
	"slipway.dev/slipway/tests/stand"
)

// twoSubmits at once never mix: all secrets are those of the newest build.
func (s *site) twoSubmits(t *testing.T) {
	const id, rounds = "two", 4
	type pair struct{ key, password string }
	pairs := map[string]pair{}
	for round := range rounds {
		var wait sync.WaitGroup
		var mu sync.Mutex
		accepted := 0
		for i := range 2 {
			title := fmt.Sprintf("round %d of %d", round, i)
			p := pair{s.secret(id), s.secret(id)}
			mu.Lock()
			pairs[title] = p
			mu.Unlock()
			wait.Go(func() {
				a, err := s.call(s.URL, http.MethodPut, "/deployments/"+id, "", members{
					"configuration": forum(members{key: p.key, "mail": mail(p.password)}, members{"title": title})})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(err)
				case a.Status == http.StatusAccepted:
					accepted++
				case a.Status != http.StatusConflict || a.Error != "submit_in_progress":
					t.Error(a.Body)
				}
			})
		}
		wait.Wait()
		require.NotZero(t, accepted)
		var title string
		require.NoError(t, s.database.QueryRow(t.Context(),
			`SELECT configuration::jsonb #>> '{test,title}' FROM builds WHERE deployment_id = $1 ORDER BY number DESC LIMIT 1`, id).Scan(&title))
		require.Equal(t, pairs[title], pair{fmt.Sprint(s.value(t, id, key)), fmt.Sprint(s.value(t, id, password))}, title)
	}
}

// somebodyElseWrites between the look at an entry and the write: theirs stays.
func (s *site) somebodyElseWrites(t *testing.T) {
	const id = "else"
	theirs := s.secret(id)
	var once sync.Once
	s.faults.set(id, func(_ http.ResponseWriter, r *http.Request) bool {
		if isWrite(r) {
			once.Do(func() { s.mount.Put(t, id, "forum", key, map[string]any{"value": theirs}) })
		}
		return false
	})
	a := s.put(t, id, "ours", forum(members{key: s.secret(id)}))
	require.Equal(t, http.StatusServiceUnavailable, a.Status, a.Body)
	require.Equal(t, theirs, s.value(t, id, key))
	builds, preparing := s.rows(t, id)
	require.Zero(t, builds+preparing)
	ours := s.secret(id)
	s.submit(t, id, "ours", forum(members{key: ours}))
	require.Equal(t, ours, s.value(t, id, key))
}

// isWrite reports whether a request writes a value.
func isWrite(r *http.Request) bool {
	return (r.Method == http.MethodPost || r.Method == http.MethodPut) && strings.Contains(r.URL.Path, "/data/")
}

// workerDies between the write and the record: nothing is recorded, and the next
// submit heals what OpenBao has. The first part, in which all of slipway has no
// worker, returns before the submit is answered.
func (s *site) workerDies(t *testing.T) (healed func(t *testing.T)) {
	const id = "worker"
	before, lost := s.secret(id), s.secret(id)
	s.deploy(t, id, "before", forum(members{key: before}))
	written := make(chan struct{}, 100)
	s.faults.set(id, func(_ http.ResponseWriter, r *http.Request) bool {
		if !isWrite(r) {
			return false
		}
		forward(r)
		written <- struct{}{}
		<-r.Context().Done() // no answer
		return true
	})
	type outcome struct {
		answer
		err error
	}
	answered := make(chan outcome, 1)
	go func() {
		a, err := s.call(s.URL, http.MethodPut, "/deployments/"+id, "lost", members{"configuration": forum(members{key: lost})})
		answered <- outcome{a, err}
	}()
	<-written
	require.NoError(t, s.Restart(stand.Worker))
	s.faults.set(id, nil)
	return func(t *testing.T) {
		a := <-answered
		require.NoError(t, a.err)
		require.Equal(t, http.StatusServiceUnavailable, a.Status, a.Body)
		require.Equal(t, lost, s.value(t, id, key), "it was written")
		builds, preparing := s.rows(t, id)
		require.Equal(t, 1, builds)
		require.Zero(t, preparing)
		after := s.secret(id)
		s.deploy(t, id, "after", forum(members{key: after}))
		require.Equal(t, after, s.value(t, id, key))
	}
}

// forward takes a request to the server, and its answer to nobody.
func forward(r *http.Request) {
	request, err := http.NewRequestWithContext(r.Context(), r.Method, server.URL()+r.URL.RequestURI(), r.Body)
	if err != nil {
		return
	}
	request.Header = r.Header.Clone()
	if response, err := http.DefaultClient.Do(request); err == nil {
		_ = response.Body.Close()
	}
}

// behindADestroy: a submit that waits for a destroy keeps its secrets.
func (s *site) behindADestroy(t *testing.T) {
	const id = "behind"
	s.deploy(t, id, "before", forum(members{key: s.secret(id)}, members{"destroy": "gate"}))
	a := s.destroy(t, id)
	s.atGate(t, id, "destroy")
	value := s.secret(id)
	s.submit(t, id, "behind", forum(members{key: value}))
	s.open(t, id)
	s.hauledOut(t, id, a.Build)
	s.ended(t, id, "behind")
	require.Equal(t, deployment.StateActive, s.settled(t, id).State)
	require.Equal(t, value, s.value(t, id, key))
}

// clearedBefore: a clear deletes nothing that a later submit gives or keeps,
// whether its own deploy lasts or OpenBao refuses the deletion for a while.
func (s *site) clearedBefore(t *testing.T) {
	clear := members{"secretsClear": []string{key}}
	// refuse lets everything through but deletions.
	refuse := func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodDelete && kvstand.Answer("", http.StatusInternalServerError)(w, r) ||
			kvstand.Answer("/destroy/", http.StatusInternalServerError)(w, r)
	}
	for _, late := range []string{"deploy", "openbao"} {
		for _, then := range []string{"given", "kept", "cleared"} {
			id := "clear-" + late + "-" + then
			t.Run(id, func(t *testing.T) {
				t.Parallel()
				value := s.secret(id)
				s.deploy(t, id, "before", forum(members{key: value}))
				if late == "openbao" {
					s.faults.set(id, refuse)
					s.submit(t, id, "clear", forum(clear))
					await(t, func() error { return s.triesToDelete(id) })
					require.Equal(t, deployment.StateActive, s.settled(t, id).State, "it does not hold the build back")
				} else {
					s.submit(t, id, "clear", forum(clear, members{"deploy": "gate"}))
					s.atGate(t, id, "deploy")
				}
				application := members{}
				switch then {
				case "given":
					value = s.secret(id)
					application[key] = value
				case "cleared":
					application = clear
				}
				a := s.submit(t, id, "again", forum(application))
				s.open(t, id)
				s.faults.set(id, nil)
				s.ended(t, id, "clear")
				s.ended(t, id, "again")
				if then == "cleared" {
					require.Nil(t, s.mount.Metadata(t, id, "forum", key))
					return
				}
				require.Equal(t, value, s.value(t, id, key))
				require.Equal(t, []string{key}, s.stored(t, id, a.Build).SecretsSet)
			})
		}
	}
}

func (s *site) triesToDelete(id string) error {
	deletes := func(request string) bool {
		return strings.Contains(request, "/destroy/") || strings.HasPrefix(request, http.MethodDelete)
	}
	if !slices.ContainsFunc(s.faults.requests(id), deletes) {
		return errors.New("nothing is deleted")
	}
	return nil
}
