package workflows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

const (
	destroyAnswered = `destroy is answered {"build":7}`
)

// toHaulOut are the steps of a destroy up to its answer, which comes before
// the deployer runs.
func toHaulOut() []string { return lines("RecordDestroy", "SlipwayBuild=7", destroyAnswered) }

func TestDestroy(t *testing.T) {
	tellStories(t, (*world).runDestroy, []story{{
		name: "of what is up",
		want: lines(toHaulOut(), "TakeTurn d#7", "Destroy d#7", "Finish d#7", succeeded),
	}, {
		name:    "of what is idle",
		arrange: func(w *world) { w.haulsOut = store.RecordedDestroy{Idle: true} },
		want:    lines("RecordDestroy", `destroy is answered {"idle":true}`, `ends with {"outcome":"idle","reason":"nothing was up"}`),
	}, {
		name:    "while another destroy is on its way",
		arrange: func(w *world) { w.haulsOut = store.RecordedDestroy{Build: build} },
		want: lines(toHaulOut(),
			`ends with {"outcome":"joined","build":7,"reason":"an earlier destroy is on its way"}`),
	}, {
		name:    "of an unknown deployment",
		arrange: func(w *world) { w.unknown = true },
		want: lines("RecordDestroy", "destroy is refused: UnknownDeployment: unknown",
			`ends with {"outcome":"refused","reason":"unknown"}`),
	}, {
		name:    "while the database is away",
		arrange: func(w *world) { w.during["RecordDestroy"] = away(0) },
		want: lines("RecordDestroy ×5", "destroy is refused: Unavailable: connection refused",
			`ends with {"outcome":"refused","reason":"connection refused"}`),
	}, {
		name: "the database is away for a moment at every step",
		arrange: func(w *world) {
			for _, step := range []string{"RecordDestroy", "TakeTurn", "Destroy", "Finish"} {
				w.during[step] = away(1)
			}
		},
		want: lines("RecordDestroy ×2", "SlipwayBuild=7", destroyAnswered, "TakeTurn d#7", "AwaitTurn d#7", "Destroy d#7 ×2", "Finish d#7 ×2", succeeded),
	}, {
		name: "after the older build",
		arrange: func(w *world) {
			w.older = true
			w.during["AwaitTurn"] = meanwhile(func() { w.set(func() { w.older = false }) })
		},
		want: lines(toHaulOut(), "TakeTurn d#7", "AwaitTurn d#7", "Destroy d#7", "Finish d#7", succeeded),
	}, {
		name: "the deployer fails, and is not tried again",
		arrange: func(w *world) {
			w.during["Destroy"] = meanwhile(func() { w.stage(deployment.Exit{Code: 1, Reason: "it broke"}) })
		},
		want: lines(toHaulOut(), "TakeTurn d#7", "Destroy d#7", "Finish d#7", "fails: BuildFailed: build 7 failed: it broke"),
	}, {
		name:    "two workers are lost",
		arrange: func(w *world) { w.during["Destroy"] = lostWorkers(2) },
		want:    lines(toHaulOut(), "TakeTurn d#7", "Destroy d#7 ×3", "Finish d#7", succeeded),
	}, {
		name:    "three workers are lost",
		arrange: func(w *world) { w.during["Destroy"] = lostWorkers(3) },
		want: lines(toHaulOut(), "TakeTurn d#7", "Destroy d#7 ×3", "Finish d#7",
			"fails: BuildFailed: build 7 failed: the worker that ran the deployer was lost"),
	}, {
		name: "a worker is lost after a staged success",
		arrange: func(w *world) {
			w.during["Destroy"] = func(call int) error {
				w.stage(deployment.Exit{})
				if call == 1 {
					return temporal.NewHeartbeatTimeoutError()
				}
				return alreadyRan(call)
			}
		},
		want: lines(toHaulOut(), "TakeTurn d#7", "Destroy d#7 ×2", "Finish d#7", succeeded),
	}, {
		name: "again, while the first is recorded",
		arrange: func(w *world) {
			w.during["RecordDestroy"] = meanwhile(func() { w.main(func() { w.update(wire.UpdateDestroy) }) })
		},
		want: lines("RecordDestroy", "SlipwayBuild=7", destroyAnswered+" ×2", "TakeTurn d#7", "Destroy d#7", "Finish d#7", succeeded),
	}, {
		name: "again, while it hauls out",
		arrange: func(w *world) {
			w.during["Destroy"] = meanwhile(func() { w.main(func() { w.update(wire.UpdateDestroy) }) })
		},
		want: lines(toHaulOut(), "TakeTurn d#7", "Destroy d#7", destroyAnswered, "Finish d#7", succeeded),
	}, {
		name:    "after a reset, when it has ended",
		arrange: func(w *world) { w.build, w.status = build, deployment.StatusSucceeded },
		want:    lines(toHaulOut(), "TakeTurn d#7", "Finish d#7", succeeded),
	}})
}

// lostWorkers is an activity whose first workers die.
func lostWorkers(n int) func(int) error {
	return func(call int) error {
		if call <= n {
			return temporal.NewHeartbeatTimeoutError()
		}
		return nil
	}
}

func TestCancelOfADestroy(t *testing.T) {
	tellStories(t, (*world).runDestroy, []story{{
		name:    "before there is a build",
		arrange: func(w *world) { w.during["RecordDestroy"] = meanwhile(w.callerCancels) },
		want: lines("RecordDestroy", "cancel is refused: Unavailable: there is no build to cancel yet",
			"SlipwayBuild=7", destroyAnswered, "TakeTurn d#7", "Destroy d#7", "Finish d#7", succeeded),
	}, {
		name: "while it is queued",
		arrange: func(w *world) {
			w.older = true
			w.during["AwaitTurn"] = func(int) error {
				w.callerCancels()
				return w.untilTold("cancel is answered")
			}
		},
		want: lines(toHaulOut(), "TakeTurn d#7", "AwaitTurn d#7", "Cancel d#7", `cancel is answered {"status":"cancelled"}`,
			"Finish d#7", queuedCancelled),
	}, {
		name: "while it hauls out",
		arrange: func(w *world) {
			w.during["Destroy"] = func(int) error {
				w.stage(deployment.Exit{Code: 143, Reason: "stopped", Cancelled: true})
				w.callerCancels()
				return w.untilStopped()
			}
		},
		want: lines(toHaulOut(), "TakeTurn d#7", "Destroy d#7", "Cancel d#7", `cancel is answered {"status":"running"}`,
			"Destroy is asked to stop", "Finish d#7", `ends with {"outcome":"cancelled","build":7,"reason":"stopped"}`),
	}, {
		name: "while it ends: its run waits for the answer",
		arrange: func(w *world) {
			w.during["Finish"] = w.cancelledMeanwhile
			w.during["Cancel"] = w.untilFinished
		},
		want: lines(toHaulOut(), "TakeTurn d#7", "Destroy d#7", "Finish d#7", "Cancel d#7", `cancel is answered {"status":"succeeded"}`, succeeded),
	}})
}

func TestOperatorCancelsADestroy(t *testing.T) {
	during := func(step string) func(w *world) {
		return func(w *world) { w.during[step] = meanwhile(w.operatorCancels) }
	}
	hauling := func(exit deployment.Exit) func(w *world) {
		return func(w *world) {
			w.during["Destroy"] = func(int) error {
				w.stage(exit)
				w.operatorCancels()
				return w.untilStopped()
			}
		}
	}
	tellStories(t, (*world).runDestroy, []story{{
		name:    "at RecordDestroy",
		arrange: during("RecordDestroy"),
		want:    lines(toHaulOut(), "Cancel d#7", "Finish d#7", "ends cancelled"),
	}, {
		name: "at RecordDestroy, when the database is away",
		arrange: func(w *world) {
			w.during["RecordDestroy"] = func(call int) error {
				if call == 1 {
					w.operatorCancels()
				}
				return away(0)(call)
			}
		},
		want: lines("RecordDestroy ×5", "destroy is refused: Unavailable: connection refused", "ends cancelled"),
	}, {
		name:    "at TakeTurn",
		arrange: during("TakeTurn"),
		want:    lines(toHaulOut(), "TakeTurn d#7", "Cancel d#7", "Finish d#7", "ends cancelled"),
	}, {
		name:    "at Destroy",
		arrange: hauling(deployment.Exit{Code: 143, Reason: "stopped", Cancelled: true}),
		want:    lines(toHaulOut(), "TakeTurn d#7", "Destroy d#7", "Destroy is asked to stop", "Finish d#7", "ends cancelled"),
	}, {
		name:    "at Destroy, which succeeds all the same",
		arrange: hauling(deployment.Exit{}),
		want:    lines(toHaulOut(), "TakeTurn d#7", "Destroy d#7", "Destroy is asked to stop", "Finish d#7", succeeded),
	}})
}

func TestDestroyWithoutARequestEnds(t *testing.T) {
	w := newWorld(t)
	start := w.env.Now()
	w.runWithout(wire.WorkflowDestroy, wire.DestroyID(id, request), wire.DestroyInput{Deployment: id, Request: request})
	require.Equal(t, []string{`ends with {"outcome":"no request"}`}, w.story())
	require.Equal(t, time.Minute, w.env.Now().Sub(start))
}

func TestDetailsOfADestroy(t *testing.T) {
	for _, test := range []struct {
		name     string
		haulsOut store.RecordedDestroy
		want     map[string]string
	}{
		{"ours", store.RecordedDestroy{Build: build, Ours: true}, map[string]string{
			"RecordDestroy 1": "Destroy of `d`: waits for its request.",
			"Destroy 1":       "Build 7 of `d`: the deployer hauls out (or waits for a slot); its output is the log of the build.",
			"end":             "Build 7 of `d`: succeeded.",
		}},
		{"idle", store.RecordedDestroy{Idle: true}, map[string]string{
			"RecordDestroy 1": "Destroy of `d`: waits for its request.",
			"end":             "`d` is idle already.",
		}},
		{"joined", store.RecordedDestroy{Build: build}, map[string]string{
			"RecordDestroy 1": "Destroy of `d`: waits for its request.",
			"end":             "Build 7 of `d`: an earlier destroy is on its way.",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.haulsOut = test.haulsOut
			got := map[string]string{}
			for _, step := range []string{"RecordDestroy", "Destroy"} {
				w.during[step] = func(call int) error { got[fmt.Sprintf("%s %d", step, call)] = w.details(); return nil }
			}
			w.runDestroy()
			got["end"] = w.detailsNow()
			require.Equal(t, test.want, got)
		})
	}
}
