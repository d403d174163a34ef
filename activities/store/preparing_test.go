package store_test

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.uber.org/zap"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

func preparation(run string) store.Preparation {
	return store.Preparation{Deployment: "one", WorkflowID: "submit/one/a", RunID: run}
}

func inHand(t *testing.T, s *store.Store) []store.Preparation {
	t.Helper()
	all, err := s.Preparations(t.Context(), 0)
	require.NoError(t, err)
	return all
}

func TestOneHasTheSecretsInHand(t *testing.T) {
	s := database(t)
	mine, others := preparation("mine"), preparation("other")
	other := others
	other.Deployment = "two"
	require.NoError(t, s.Prepare(t.Context(), mine), "of a deployment that is not known yet")
	require.NoError(t, s.Prepare(t.Context(), mine), "again: the answer may have been lost")
	require.ErrorIs(t, s.Prepare(t.Context(), others), store.ErrInProgress, "another run of the same workflow is another one")
	require.NoError(t, s.Prepare(t.Context(), other), "deployments are apart")

	require.NoError(t, s.Unprepare(t.Context(), others))
	require.Equal(t, []store.Preparation{mine, other}, inHand(t, s), "whoever has them not takes them from nobody")
	young, err := s.Preparations(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Empty(t, young)

	require.NoError(t, s.Unprepare(t.Context(), mine))
	require.NoError(t, s.Unprepare(t.Context(), mine))
	require.NoError(t, s.Prepare(t.Context(), others))
}

func TestManyAtOnceAndOneHasThem(t *testing.T) {
	s := database(t)
	var wg sync.WaitGroup
	results := make(chan error, 20)
	for range cap(results) {
		wg.Go(func() { results <- s.Prepare(t.Context(), preparation(uuid.NewString())) })
	}
	wg.Wait()
	close(results)
	got := 0
	for err := range results {
		if err == nil {
			got++
			continue
		}
		require.ErrorIs(t, err, store.ErrInProgress)
	}
	require.Equal(t, 1, got)
}

// The record and letting go are one: nobody reads OpenBao between them.
func TestRecordLetsGo(t *testing.T) {
	s := database(t)
	mine := preparation("mine")
	in := store.Submit{
		Deployment: "one", Request: "r", WorkflowID: mine.WorkflowID, Snapshot: snapshot,
		Configuration: json.RawMessage(`{"secretsSet":["key"]}`), Asked: json.RawMessage(`{}`), Prepared: &mine,
		Clears: []configuration.ClearedSecret{{Application: "forum", Entry: configuration.SecretEntry{Field: "key", Version: 2}}},
	}
	_, err := s.Record(t.Context(), in)
	require.ErrorIs(t, err, store.ErrInProgress, "it has them not")
	_, err = s.Deployment(t.Context(), "one")
	require.ErrorIs(t, err, deployment.ErrUnknown, "nothing is recorded")

	require.NoError(t, s.Prepare(t.Context(), mine))
	recorded, err := s.Record(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, inHand(t, s))
	again, err := s.Record(t.Context(), in)
	require.NoError(t, err, "its answer may have been lost")
	require.Equal(t, recorded.Build, again.Build)

	require.NoError(t, s.Prepare(t.Context(), mine))
	failing := in
	failing.Asked = json.RawMessage(`{"another":true}`)
	_, err = s.Record(t.Context(), failing)
	require.ErrorIs(t, err, store.ErrOtherConfiguration)
	require.Equal(t, []store.Preparation{mine}, inHand(t, s), "a record that fails keeps them")

	// The same request is known by what it asked, not by what OpenBao had then.
	recalled, err := s.Recall(t.Context(), "one", "r", in.Asked)
	require.NoError(t, err)
	require.Equal(t, recorded.Build, recalled.Build)
	require.Equal(t, in.Clears, recalled.Clears)
	_, err = s.Recall(t.Context(), "one", "r", in.Configuration)
	require.ErrorIs(t, err, store.ErrOtherConfiguration)
	build, err := s.Build(t.Context(), deployment.Ref{Deployment: "one", Build: recorded.Build})
	require.NoError(t, err)
	require.JSONEq(t, string(in.Configuration), string(build.Configuration))
}

func TestNewest(t *testing.T) {
	s := database(t)
	a := &store.Activities{Store: s}
	_, _, err := s.Newest(t.Context(), "one")
	require.ErrorIs(t, err, deployment.ErrUnknown)

	record := func(configuration string) int64 {
		recorded, err := s.Record(t.Context(), store.Submit{
			Deployment: "one", Request: uuid.NewString(), WorkflowID: "w", Snapshot: snapshot, Configuration: json.RawMessage(configuration)})
		require.NoError(t, err)
		return recorded.Build
	}
	unneeded := func() [][2]string {
		left, err := a.Unneeded(t.Context(), store.UnneededInput{Deployment: "one", Cleared: [][2]string{{"forum", "key"}, {"wiki", "key"}}})
		require.NoError(t, err)
		return left
	}
	newest := func(build int64) bool {
		is, err := a.IsNewest(t.Context(), deployment.Ref{Deployment: "one", Build: build})
		require.NoError(t, err)
		return is
	}
	require.True(t, newest(0), "there is none yet")
	first := record(`{"vm":{"applications":{"forum":{"secretsSet":["other"]},"wiki":{}}}}`)
	require.True(t, newest(first))
	require.False(t, newest(0))
	require.Len(t, unneeded(), 2)
	second := record(`{"vm":{"applications":{"forum":{"secretsSet":["key"]},"wiki":{}}}}`)
	require.False(t, newest(first))
	require.Equal(t, [][2]string{{"wiki", "key"}}, unneeded(), "a newer submit keeps it, whether it is deployed or not")
	run(t, s, "one", second, 0)
	hauled := destroy(t, s, "one")
	require.True(t, newest(hauled.Build))
	require.False(t, newest(second))
	require.Equal(t, [][2]string{{"wiki", "key"}}, unneeded(), "a destroy needs what the newest submit needed")
	record(`{}`)
	require.False(t, newest(hauled.Build), "it is about to live again")
}

// Neither secrets nor the callback of a destroy depend on a submit that nobody
// wants any more.
func TestStaysDown(t *testing.T) {
	s := database(t)
	a := &store.Activities{Store: s}
	deployed(t, s, "one")
	down := func(build int64) bool {
		is, err := a.StaysDown(t.Context(), deployment.Ref{Deployment: "one", Build: build})
		require.NoError(t, err)
		return is
	}
	destroyed := deployment.Ref{Deployment: "one", Build: destroyCalling(t, s, "one", frontEnd).Build}
	require.False(t, down(1))
	require.False(t, down(destroyed.Build), "it lives: after a restore a deploy may have the number of a destroy")
	run(t, s, "one", destroyed.Build, 0)
	require.True(t, down(destroyed.Build))

	again := submit(t, s, "one")
	require.False(t, down(destroyed.Build), "it is about to live again")
	claim, err := s.ClaimCallback(t.Context(), destroyed)
	require.NoError(t, err)
	require.Equal(t, deployment.CallbackSkipped, claim.Instead.State)

	_, err = s.Cancel(t.Context(), deployment.Ref{Deployment: "one", Build: again})
	require.NoError(t, err)
	require.True(t, down(destroyed.Build), "it was cancelled before it ran")
	claim, err = s.ClaimCallback(t.Context(), destroyed)
	require.NoError(t, err)
	require.Nil(t, claim.Instead)
	require.Equal(t, frontEnd, claim.URL)

	run(t, s, "one", submit(t, s, "one"), 1)
	require.False(t, down(destroyed.Build), "what failed may be up in parts")
}

// A database that was restored to an earlier time has given the number of a
// workflow's build to another, or has no such build.
func TestWorkflowsKeepToTheirBuilds(t *testing.T) {
	s := database(t)
	ref := deployment.Ref{Deployment: "d", Build: submit(t, s, "d")}
	missing := deployment.Ref{Deployment: "d", Build: ref.Build + 1}
	build, err := s.Build(t.Context(), ref)
	require.NoError(t, err)
	require.NoError(t, s.BelongsTo(t.Context(), ref, build.WorkflowID))
	require.ErrorIs(t, s.BelongsTo(t.Context(), ref, "submit/d/before"), store.ErrNotItsBuild)
	require.ErrorIs(t, s.BelongsTo(t.Context(), missing, build.WorkflowID), store.ErrNotItsBuild)

	// The environment of the SDK is of a workflow that has no build.
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	a := &store.Activities{Store: s, Listener: s.Listener(zap.NewNop())}
	env.RegisterActivity(a)
	for _, c := range []struct{ step, in any }{
		{a.TakeTurn, ref}, {a.AwaitTurn, ref}, {a.Cancel, ref}, {a.Finish, store.FinishInput{Ref: ref}},
	} {
		_, err := env.ExecuteActivity(c.step, c.in)
		var final *temporal.ApplicationError
		require.ErrorAs(t, err, &final)
		require.Equal(t, wire.ErrorNotItsBuild, final.Type())
		require.True(t, final.NonRetryable())
	}
	build, err = s.Build(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, deployment.StatusQueued, build.Status)
}

// A submit waits for another, and is told when that takes too long.
func TestPrepareSecretsWaits(t *testing.T) {
	s := database(t)
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(&store.Activities{Store: s})
	take := func(p store.Preparation) error {
		var a *store.Activities
		_, err := env.ExecuteActivity(a.PrepareSecrets, p)
		return err
	}
	require.NoError(t, take(preparation("first")))
	go func() {
		time.Sleep(300 * time.Millisecond) // it lets go while the second waits
		_ = s.Unprepare(t.Context(), preparation("first"))
	}()
	require.NoError(t, take(preparation("second")))
	start := time.Now()
	err := take(preparation("third"))
	var application *temporal.ApplicationError
	require.True(t, errors.As(err, &application), "%v", err)
	require.Equal(t, wire.ErrorSubmitInProgress, application.Type())
	require.True(t, application.NonRetryable())
	require.GreaterOrEqual(t, time.Since(start), 9*time.Second)
}

// A build that was recorded with another source than that of today is marked,
// since its configuration may hold what is a secret now.
func TestOlderConfigurationsAreMarked(t *testing.T) {
	s := database(t)
	build := submit(t, s, "one")
	older := func() (bool, bool) {
		d, err := s.Deployment(t.Context(), "one")
		require.NoError(t, err)
		b, err := s.Build(t.Context(), deployment.Ref{Deployment: "one", Build: build})
		require.NoError(t, err)
		return d.Older, b.Older
	}
	d, b := older()
	require.False(t, d || b)
	useSnapshot(t, s, "/nix/store/1111111111111111111111111111111111-slipway-source")
	d, b = older()
	require.True(t, d && b)
	destroy(t, s, "one") // the configuration stays that of the submit
	d, _ = older()
	require.True(t, d)
}
