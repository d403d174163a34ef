package store_test

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
)

const (
	frontEnd  = "https://panel.example/reconcile?row=7"
	frontEnd2 = "https://other.example/reconcile"
)

// destroyCalling asks for a destroy with a callback.
func destroyCalling(t *testing.T, s *store.Store, id, url string) store.RecordedDestroy {
	t.Helper()
	offer, err := s.OfferCallback(t.Context(), id, url, "token of "+url)
	require.NoError(t, err)
	recorded, err := s.RecordDestroy(t.Context(), store.Destroy{Deployment: id, Request: uuid.NewString(), WorkflowID: "destroy/" + id, Callback: offer})
	require.NoError(t, err)
	return recorded
}

// deployed is a deployment that is up, with build 1.
func deployed(t *testing.T, s *store.Store, id string) {
	t.Helper()
	run(t, s, id, submit(t, s, id), 0)
}

func callback(t *testing.T, s *store.Store, id string, n int64) deployment.Callback {
	t.Helper()
	b, err := s.Build(t.Context(), deployment.Ref{Deployment: id, Build: n})
	require.NoError(t, err)
	if b.Callback == nil {
		return deployment.Callback{}
	}
	return *b.Callback
}

func pending() deployment.Callback { return deployment.Callback{State: deployment.CallbackPending} }

func TestACallbackIsClaimedOnce(t *testing.T) {
	s := database(t)
	deployed(t, s, "one")
	require.Equal(t, deployment.Callback{}, callback(t, s, "one", 1), "a deploy calls nobody")
	recorded := destroyCalling(t, s, "one", frontEnd)
	require.Equal(t, store.RecordedDestroy{Build: 2, Ours: true, Callback: true}, recorded)
	ref := deployment.Ref{Deployment: "one", Build: 2}
	require.Equal(t, pending(), callback(t, s, "one", 2))

	claim, err := s.ClaimCallback(t.Context(), ref)
	require.NoError(t, err)
	require.NotNil(t, claim.Instead, "not before the destroy has succeeded")
	run(t, s, "one", 2, 0)
	ended, err := s.Finish(t.Context(), ref, store.End{})
	require.NoError(t, err)
	require.True(t, ended.Callback, "also when Finish is repeated")

	claims := make(chan deployment.Claim, 8)
	var group sync.WaitGroup
	for range cap(claims) {
		group.Go(func() {
			claim, err := s.ClaimCallback(t.Context(), ref)
			if err != nil {
				t.Error(err)
			}
			claims <- claim
		})
	}
	group.Wait()
	close(claims)
	given := 0
	for claim := range claims {
		if claim.Instead == nil {
			given++
			require.Equal(t, deployment.Claim{URL: frontEnd, Token: "token of " + frontEnd}, claim)
		} else {
			require.Equal(t, deployment.CallbackFailed, claim.Instead.State)
			require.Empty(t, claim.Token)
		}
	}
	require.Equal(t, 1, given)
	require.Equal(t, pending(), callback(t, s, "one", 2))
	ended, err = s.Finish(t.Context(), ref, store.End{})
	require.NoError(t, err)
	require.False(t, ended.Callback, "a workflow that is reset does not call again")

	before, err := s.Events(t.Context(), "one", 0, 100)
	require.NoError(t, err)
	delivered := deployment.Callback{State: deployment.CallbackDelivered, Status: 204}
	require.NoError(t, s.SettleCallback(t.Context(), ref, delivered))
	require.Equal(t, delivered, callback(t, s, "one", 2))
	require.NoError(t, s.SettleCallback(t.Context(), ref, deployment.Callback{State: deployment.CallbackFailed}))
	require.Equal(t, delivered, callback(t, s, "one", 2), "what is settled stays")
	events, err := s.Events(t.Context(), "one", before.Newest, 100)
	require.NoError(t, err)
	require.Len(t, events.Events, 1, "the channel tells it, once")
	var told deployment.Build
	require.NoError(t, json.Unmarshal(events.Events[0].Data, &told))
	require.Equal(t, delivered, *told.Callback)
	for _, e := range append(before.Events, events.Events...) {
		require.NotContains(t, string(e.Data), "example", "nobody is told the URL or the token")
	}
}

func TestCallbacksOfADestroyThatIsOnItsWay(t *testing.T) {
	s := database(t)
	for _, id := range []string{"one", "none", "refused"} {
		deployed(t, s, id)
	}
	destroyCalling(t, s, "one", frontEnd)
	require.Equal(t, store.RecordedDestroy{Build: 2}, destroy(t, s, "one"), "none given keeps it")
	require.Equal(t, pending(), callback(t, s, "one", 2))
	recorded, err := s.RecordDestroy(t.Context(), store.Destroy{Deployment: "one", Request: uuid.NewString(), WorkflowID: "w", CallbackRefused: "no"})
	require.NoError(t, err)
	require.Equal(t, store.RecordedDestroy{Build: 2}, recorded)
	require.Equal(t, pending(), callback(t, s, "one", 2), "one that is refused keeps it")
	require.Equal(t, store.RecordedDestroy{Build: 2, Callback: true}, destroyCalling(t, s, "one", frontEnd2))
	run(t, s, "one", 2, 0)
	claim, err := s.ClaimCallback(t.Context(), deployment.Ref{Deployment: "one", Build: 2})
	require.NoError(t, err)
	require.Equal(t, frontEnd2, claim.URL, "a later one takes its place")

	require.Equal(t, store.RecordedDestroy{Idle: true, Ours: true, Newest: 2}, destroyCalling(t, s, "one", frontEnd), "nothing to wait for")

	destroy(t, s, "none")
	require.Equal(t, deployment.Callback{State: deployment.CallbackNone}, callback(t, s, "none", 2))
	require.True(t, destroyCalling(t, s, "none", frontEnd).Callback)
	require.Equal(t, pending(), callback(t, s, "none", 2))

	_, err = s.RecordDestroy(t.Context(), store.Destroy{Deployment: "refused", Request: "r", WorkflowID: "w", CallbackRefused: "its origin is not allowed"})
	require.NoError(t, err)
	require.Equal(t, deployment.Callback{State: deployment.CallbackRefused, Reason: "its origin is not allowed"}, callback(t, s, "refused", 2))
	require.True(t, destroyCalling(t, s, "refused", frontEnd).Callback)
	require.Equal(t, pending(), callback(t, s, "refused", 2))
}

func TestTheSameDestroyAgainKeepsItsCallback(t *testing.T) {
	s := database(t)
	deployed(t, s, "one")
	offer, err := s.OfferCallback(t.Context(), "one", frontEnd, "token")
	require.NoError(t, err)
	in := store.Destroy{Deployment: "one", Request: "r", WorkflowID: "w", Callback: offer}
	for range 2 { // the answer to the first was lost
		recorded, err := s.RecordDestroy(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, store.RecordedDestroy{Build: 2, Ours: true, Callback: true}, recorded)
	}
	stolen, err := s.OfferCallback(t.Context(), "another", frontEnd2, "token")
	require.NoError(t, err)
	deployed(t, s, "two")
	recorded, err := s.RecordDestroy(t.Context(), store.Destroy{Deployment: "two", Request: "r", WorkflowID: "w", Callback: stolen})
	require.NoError(t, err)
	require.False(t, recorded.Callback, "an offer is for one deployment")
}

func TestCallbacksThatAreSkipped(t *testing.T) {
	s := database(t)
	skipped := deployment.Callback{State: deployment.CallbackSkipped, Reason: "the destroy did not succeed"}
	deployed(t, s, "failed")
	destroyCalling(t, s, "failed", frontEnd)
	run(t, s, "failed", 2, 1)
	require.Equal(t, skipped, callback(t, s, "failed", 2))

	deployed(t, s, "cancelled")
	destroyCalling(t, s, "cancelled", frontEnd)
	_, err := s.Cancel(t.Context(), deployment.Ref{Deployment: "cancelled", Build: 2})
	require.NoError(t, err)
	require.Equal(t, skipped, callback(t, s, "cancelled", 2))

	deployed(t, s, "later")
	destroyCalling(t, s, "later", frontEnd)
	submit(t, s, "later")
	run(t, s, "later", 2, 0)
	claim, err := s.ClaimCallback(t.Context(), deployment.Ref{Deployment: "later", Build: 2})
	require.NoError(t, err)
	require.Equal(t, deployment.Claim{Instead: &deployment.Callback{State: deployment.CallbackSkipped, Reason: "there is a later build"}}, claim)
}

func TestCallbacksThatAreNotSettledAreListed(t *testing.T) {
	s := database(t)
	deployed(t, s, "one")
	destroyCalling(t, s, "one", frontEnd)
	calling, err := s.Calling(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, calling, "its destroy has not ended")
	run(t, s, "one", 2, 0)
	ref := deployment.Ref{Deployment: "one", Build: 2}
	_, err = s.ClaimCallback(t.Context(), ref)
	require.NoError(t, err)
	calling, err = s.Calling(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Empty(t, calling)
	calling, err = s.Calling(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, []store.Pending{{Ref: ref, WorkflowID: "destroy/one"}}, calling)
	require.NoError(t, s.SettleCallback(t.Context(), ref, deployment.Callback{State: deployment.CallbackFailed, Reason: "lost"}))
	calling, err = s.Calling(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, calling)
}

func TestOffersThatNobodyTakesGo(t *testing.T) {
	s := database(t)
	deployed(t, s, "one")
	offer, err := s.OfferCallback(t.Context(), "one", frontEnd, "token")
	require.NoError(t, err)
	require.NoError(t, s.DropOffers(t.Context(), time.Hour))
	require.NoError(t, s.DropOffers(t.Context(), 0))
	recorded, err := s.RecordDestroy(t.Context(), store.Destroy{Deployment: "one", Request: "r", WorkflowID: "w", Callback: offer})
	require.NoError(t, err)
	require.False(t, recorded.Callback)
	require.Equal(t, deployment.Callback{State: deployment.CallbackNone}, callback(t, s, "one", 2))
}
