package workflows_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
)

func TestCallbackOfADestroy(t *testing.T) {
	hauledOut := lines(`RecordDestroy`, "SlipwayBuild=7", `destroy is answered {"build":7,"callback":true}`, "TakeTurn d#7", "Destroy d#7", "Finish d#7")
	calls := func(arrange func(w *world)) func(w *world) {
		return func(w *world) {
			w.haulsOut = store.RecordedDestroy{Build: build, Ours: true, Callback: true}
			w.callback = "offer"
			w.became = deployment.Callback{State: deployment.CallbackDelivered, Status: 204}
			if arrange != nil {
				arrange(w)
			}
		}
	}
	tellStories(t, (*world).runDestroy, []story{{
		name:    "it is delivered",
		arrange: calls(nil),
		want:    lines(hauledOut, "CallBack d#7", "SettleCallback d#7 delivered", succeeded),
	}, {
		name:    "it fails, and is not tried again",
		arrange: calls(func(w *world) { w.became = deployment.Callback{State: deployment.CallbackFailed, Status: 500} }),
		want:    lines(hauledOut, "CallBack d#7", "SettleCallback d#7 failed", succeeded),
	}, {
		name:    "it is skipped",
		arrange: calls(func(w *world) { w.became = deployment.Callback{State: deployment.CallbackSkipped} }),
		want:    lines(hauledOut, "CallBack d#7", "SettleCallback d#7 skipped", succeeded),
	}, {
		name:    "the worker is lost while it calls: it is not called again",
		arrange: calls(func(w *world) { w.during["CallBack"] = lostWorkers(1) }),
		want:    lines(hauledOut, "CallBack d#7", "SettleCallback d#7 failed", succeeded),
	}, {
		name:    "the database is away when it is claimed",
		arrange: calls(func(w *world) { w.during["CallBack"] = away(0) }),
		want:    lines(hauledOut, "CallBack d#7", "SettleCallback d#7 failed", succeeded),
	}, {
		name:    "the database is away when it is noted",
		arrange: calls(func(w *world) { w.during["SettleCallback"] = away(3) }),
		want:    lines(hauledOut, "CallBack d#7", "SettleCallback d#7 delivered ×4", succeeded),
	}, {
		name:    "an operator cancels meanwhile, which changes nothing any more",
		arrange: calls(func(w *world) { w.during["CallBack"] = meanwhile(w.operatorCancels) }),
		want:    lines(hauledOut, "CallBack d#7", "SettleCallback d#7 delivered", succeeded),
	}, {
		name: "the destroy fails",
		arrange: calls(func(w *world) {
			w.during["Destroy"] = meanwhile(func() { w.stage(deployment.Exit{Code: 1, Reason: "it broke"}) })
		}),
		want: lines(hauledOut, "fails: BuildFailed: build 7 failed: it broke"),
	}})
}

func TestDetailsOfACallback(t *testing.T) {
	for want, became := range map[string]deployment.Callback{
		"Build 7 of `d`: succeeded; callback delivered (204).":                          {State: deployment.CallbackDelivered, Status: 204},
		"Build 7 of `d`: succeeded; callback failed (302): the front-end answered 302.": {State: deployment.CallbackFailed, Status: 302, Reason: "the front-end answered 302"},
		"Build 7 of `d`: succeeded; callback skipped: there is a later build.":          {State: deployment.CallbackSkipped, Reason: "there is a later build"},
	} {
		w := newWorld(t)
		w.haulsOut = store.RecordedDestroy{Build: build, Ours: true, Callback: true}
		w.callback, w.became = "offer", became
		var during string
		w.during["CallBack"] = func(int) error { during = w.details(); return nil }
		w.runDestroy()
		require.Equal(t, "Build 7 of `d`: succeeded; calls the front-end back.", during)
		require.Equal(t, want, w.detailsNow())
		require.Equal(t, []deployment.Callback{became}, w.settled)
	}
}

// Errors of a call are not noted as they are: they may name what lies behind the
// front-end.
func TestAnErrorOfACallIsNotNoted(t *testing.T) {
	w := newWorld(t)
	w.haulsOut = store.RecordedDestroy{Build: build, Ours: true, Callback: true}
	w.callback = "offer"
	w.during["CallBack"] = func(int) error {
		return temporal.NewApplicationErrorWithCause("dial 10.0.0.1", "Test", errors.New("refused"))
	}
	w.runDestroy()
	require.Equal(t, []deployment.Callback{{State: deployment.CallbackFailed,
		Reason: "slipway was interrupted while it called; the call may have been made"}}, w.settled)
}
