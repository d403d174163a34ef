package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
)

// importer is an import of a deployment by one run.
func importer(id, request string, deploy bool) store.Import {
	workflow := "import/" + id + "/" + request
	return store.Import{Deploy: deploy, Submit: store.Submit{
		Deployment: id, Request: request, WorkflowID: workflow, Snapshot: snapshot,
		Configuration: json.RawMessage(`{"vm":{"imported":1.0}}`), Asked: json.RawMessage(`{"vm":{}}`), EvaluationKey: "names",
		Prepared: &store.Preparation{Deployment: id, WorkflowID: workflow, RunID: request, Import: true},
	}}
}

func imports(t *testing.T, s *store.Store, in store.Import) (store.Recorded, error) {
	t.Helper()
	if err := s.Prepare(t.Context(), *in.Prepared); err != nil {
		return store.Recorded{}, err
	}
	return s.Import(t.Context(), in)
}

func TestImportStoresWithoutABuild(t *testing.T) {
	s := database(t)
	require.NoError(t, s.KeepEvaluation(t.Context(), "names", json.RawMessage(`{"nodes":[{"name":"web","names":["a.example"]}]}`), nil))
	in := importer("one", "r", false)
	recorded, err := imports(t, s, in)
	require.NoError(t, err)
	require.Equal(t, store.Recorded{Evaluation: deployment.EvaluationEvaluated}, recorded)
	require.Empty(t, inHand(t, s))

	d, err := s.Deployment(t.Context(), "one")
	require.NoError(t, err)
	require.Equal(t, deployment.StateIdle, d.State)
	require.WithinDuration(t, time.Now(), d.Since, time.Minute)
	require.Nil(t, d.LatestBuild)
	require.Nil(t, d.Live)
	require.Equal(t, `{"vm":{"imported":1.0}}`, string(d.Configuration))
	require.Equal(t, []deployment.Node{{Name: "web", Names: []string{"a.example"}}}, d.Nodes)
	require.False(t, d.Older)
	place, err := s.Snapshot(t.Context(), "one")
	require.NoError(t, err)
	require.Zero(t, place.Sequence, "the channel begins")
	builds, err := s.Builds(t.Context(), "one", 10, 0)
	require.NoError(t, err)
	require.Empty(t, builds)
	require.True(t, destroy(t, s, "one").Idle)
	useSnapshot(t, s, snapshot+"-2")
	d, err = s.Deployment(t.Context(), "one")
	require.NoError(t, err)
	require.True(t, d.Older, "the schema of today may mark more as secret")

	// The same request is the same import, and nothing else is one.
	again, err := s.Import(t.Context(), in)
	require.NoError(t, err)
	require.True(t, again.Before)
	recalled, err := s.RecallImport(t.Context(), "one", "r", in.Asked, false)
	require.NoError(t, err)
	require.Equal(t, again, recalled)
	_, err = s.RecallImport(t.Context(), "one", "r", in.Asked, true)
	require.ErrorIs(t, err, store.ErrOtherConfiguration)
	_, err = s.RecallImport(t.Context(), "one", "r", in.Configuration, false)
	require.ErrorIs(t, err, store.ErrOtherConfiguration)
	_, err = s.RecallImport(t.Context(), "one", "other", in.Asked, false)
	require.ErrorIs(t, err, deployment.ErrUnknown)
	_, err = imports(t, s, importer("one", "other", false))
	require.ErrorIs(t, err, store.ErrAlreadyExists)
	_, err = s.Import(t.Context(), importer("one", "other", false))
	require.ErrorIs(t, err, store.ErrAlreadyExists)

	// A submit goes on from there.
	require.EqualValues(t, 1, submit(t, s, "one"))
	run(t, s, "one", 1, 0)
	require.Equal(t, "active live=1", state(t, s, "one"))
	d, err = s.Deployment(t.Context(), "one")
	require.NoError(t, err)
	require.NotContains(t, string(d.Configuration), "imported")
	require.EqualValues(t, 2, destroy(t, s, "one").Build)
}

func TestImportDeploys(t *testing.T) {
	s := database(t)
	in := importer("one", "r", true)
	recorded, err := imports(t, s, in)
	require.NoError(t, err)
	require.Equal(t, store.Recorded{Build: 1, Evaluation: deployment.EvaluationEvaluated}, recorded)
	require.Equal(t, "building live=-", state(t, s, "one"))
	recalled, err := s.RecallImport(t.Context(), "one", "r", in.Asked, true)
	require.NoError(t, err)
	require.Equal(t, store.Recorded{Build: 1, Evaluation: deployment.EvaluationEvaluated, Before: true}, recalled)

	// A submit with the same key is another request.
	next, err := s.Record(t.Context(), store.Submit{Deployment: "one", Request: "r", WorkflowID: "submit/one/r", Snapshot: snapshot, Configuration: json.RawMessage(`{}`)})
	require.NoError(t, err)
	require.EqualValues(t, 2, next.Build)
}

func TestImportNeedsTheDeploymentInHand(t *testing.T) {
	s := database(t)
	_, err := s.Import(t.Context(), importer("one", "r", false))
	require.ErrorIs(t, err, store.ErrInProgress)
	_, err = s.Deployment(t.Context(), "one")
	require.ErrorIs(t, err, deployment.ErrUnknown)

	in := importer("one", "r", false)
	require.NoError(t, s.Prepare(t.Context(), *in.Prepared))
	require.NoError(t, s.Prepare(t.Context(), *in.Prepared), "again: the answer may have been lost")
	_, err = s.Deployment(t.Context(), "one")
	require.ErrorIs(t, err, deployment.ErrUnknown, "an import that may be refused makes nothing known")
	_, err = s.Record(t.Context(), store.Submit{Deployment: "one", Request: "s", WorkflowID: "w", Snapshot: snapshot, Configuration: json.RawMessage(`{}`)})
	require.ErrorIs(t, err, store.ErrInProgress, "a submit would make it known meanwhile")
	require.ErrorIs(t, s.Prepare(t.Context(), preparation("submit")), store.ErrInProgress)
	require.ErrorIs(t, s.Prepare(t.Context(), *importer("one", "other", false).Prepared), store.ErrInProgress)
	require.NoError(t, s.Unprepare(t.Context(), *in.Prepared))
	require.EqualValues(t, 1, submit(t, s, "one"))
	require.ErrorIs(t, s.Prepare(t.Context(), *in.Prepared), store.ErrAlreadyExists)
}

// Of many that would make a deployment known at once, one does. A submit that
// comes after the import is a submit to it.
func TestImportsAndSubmitsRace(t *testing.T) {
	s := database(t)
	for round := range 15 {
		id := fmt.Sprintf("race-%d", round)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var imported, first int
		for i := range 8 {
			wg.Go(func() {
				var recorded store.Recorded
				var err error
				if i%2 == 0 {
					in := importer(id, uuid.NewString(), i%4 == 0)
					recorded, err = imports(t, s, in)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						imported++
					}
				} else {
					recorded, err = s.Record(t.Context(), store.Submit{Deployment: id, Request: uuid.NewString(), WorkflowID: "w", Snapshot: snapshot, Configuration: json.RawMessage(`{}`)})
					mu.Lock()
					defer mu.Unlock()
				}
				if err != nil && !errors.Is(err, store.ErrInProgress) && !errors.Is(err, store.ErrAlreadyExists) {
					t.Error(err)
				}
				if err == nil && recorded.Build == 1 {
					first++
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, imported, 1)
		require.LessOrEqual(t, first, 1)
		require.NotZero(t, imported+first, "somebody made it known")
		require.Empty(t, inHand(t, s))
	}
}
