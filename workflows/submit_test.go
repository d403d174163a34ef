package workflows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

const (
	answered  = `submit is answered {"build":7,"evaluation":"evaluated"}`
	succeeded = `ends with {"outcome":"succeeded","build":7}`
	// queuedCancelled is a build that never ran.
	queuedCancelled = `ends with {"outcome":"cancelled","build":7,"reason":"cancelled while queued"}`
	conflict        = `submit is refused: IdempotencyConflict: the same request came before with another configuration`
)

// toRecord are the steps of a submit up to its answer, which comes before the
// deployer runs.
func toRecord() []string {
	return lines("Recall", "CachedNames", "Names", recorded())
}

func recorded() []string {
	return lines(`Record with evaluation "k"`, "SlipwayBuild=7", answered)
}

func TestSubmit(t *testing.T) {
	tellStories(t, (*world).runSubmit, []story{{
		name: "a new configuration",
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name:    "a configuration that was evaluated before",
		arrange: func(w *world) { w.cached = wire.Evaluated{Key: key} },
		want:    lines("Recall", "CachedNames", recorded(), "TakeTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name:    "no slot at the first worker",
		arrange: func(w *world) { w.evaluated = []wire.Evaluated{{NoSlot: true}, {Key: key}} },
		want:    lines("Recall", "CachedNames", "Names ×2", recorded(), "TakeTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name:    "no slot at two workers: it goes on without an evaluation",
		arrange: func(w *world) { w.evaluated = []wire.Evaluated{{NoSlot: true}, {NoSlot: true}} },
		want: lines("Recall", "CachedNames", "Names ×2", `Record with evaluation ""`, "SlipwayBuild=7",
			`submit is answered {"build":7,"evaluation":"skipped"}`, "TakeTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name: "a worker is lost while it evaluates",
		arrange: func(w *world) {
			w.during["Names"] = func(call int) error {
				if call == 1 {
					return temporal.NewHeartbeatTimeoutError()
				}
				return nil
			}
		},
		want: lines("Recall", "CachedNames", "Names ×2", recorded(), "TakeTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name: "the deployer fails",
		arrange: func(w *world) {
			w.during["Deploy"] = meanwhile(func() { w.stage(deployment.Exit{Code: 1, Reason: "it broke"}) })
		},
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Finish d#7", "fails: BuildFailed: build 7 failed: it broke"),
	}, {
		name: "the database is away for a moment at every step",
		arrange: func(w *world) {
			for _, step := range []string{"Recall", "CachedNames", "Record", "TakeTurn", "Finish"} {
				w.during[step] = away(1)
			}
		},
		want: lines("Recall ×2", "CachedNames ×2", "Names", `Record with evaluation "k" ×2`, "SlipwayBuild=7", answered,
			"TakeTurn d#7", "AwaitTurn d#7", "Deploy d#7", "Finish d#7 ×2", succeeded),
	}, {
		name:    "the database is away when the build should end",
		arrange: func(w *world) { w.during["Finish"] = away(9) },
		want:    lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Finish d#7 ×10", succeeded),
	}})
}

// The database was restored to a time before the build, and may have given its
// number to another since.
func TestSubmitLosesItsBuild(t *testing.T) {
	lost := func(steps ...string) func(w *world) {
		return func(w *world) {
			for _, step := range steps {
				w.during[step] = func(int) error {
					return temporal.NewNonRetryableApplicationError("not its build", wire.ErrorNotItsBuild, nil)
				}
			}
		}
	}
	tellStories(t, (*world).runSubmit, []story{{
		name:    "before its turn",
		arrange: lost("TakeTurn", "AwaitTurn"),
		want:    lines(toRecord(), "TakeTurn d#7", "AwaitTurn d#7", "fails: NotItsBuild: not its build"),
	}, {
		name:    "before its deployer",
		arrange: lost("Deploy", "Finish"),
		want:    lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Finish d#7 ×2", "fails: NotItsBuild: not its build"),
	}})
}

// What is refused has stored nothing, and the caller hears the type and the
// message of the refusal.
func TestSubmitRefused(t *testing.T) {
	refusal := func(errorType string) func(w *world) {
		return func(w *world) {
			w.evaluated = []wire.Evaluated{{Refusal: &wire.Refusal{Type: errorType, Message: "disk too small"}}}
		}
	}
	tellStories(t, (*world).runSubmit, []story{{
		name:    "by the module",
		arrange: refusal(wire.ErrorInvalidConfiguration),
		want: lines("Recall", "CachedNames", "Names", "submit is refused: InvalidConfiguration: disk too small",
			`ends with {"outcome":"refused","reason":"disk too small"}`),
	}, {
		name:    "by the limits of an evaluation",
		arrange: refusal(wire.ErrorEvaluationFailed),
		want: lines("Recall", "CachedNames", "Names", "submit is refused: EvaluationFailed: disk too small",
			`ends with {"outcome":"refused","reason":"disk too small"}`),
	}, {
		name: "by the module, known from before",
		arrange: func(w *world) {
			w.cached = wire.Evaluated{Refusal: &wire.Refusal{Type: wire.ErrorInvalidConfiguration, Message: "disk too small"}}
		},
		want: lines("Recall", "CachedNames", "submit is refused: InvalidConfiguration: disk too small",
			`ends with {"outcome":"refused","reason":"disk too small"}`),
	}, {
		name:    "the database is away at the first step",
		arrange: func(w *world) { w.during["Recall"] = away(0) },
		want: lines("Recall ×5", "submit is refused: Unavailable: connection refused",
			`ends with {"outcome":"refused","reason":"connection refused"}`),
	}, {
		name:    "the database is away when the evaluation is looked up",
		arrange: func(w *world) { w.during["CachedNames"] = away(0) },
		want: lines("Recall", "CachedNames ×5", "submit is refused: NothingRecorded: connection refused",
			`ends with {"outcome":"refused","reason":"connection refused"}`),
	}, {
		name:    "the workers with Nix are away",
		arrange: func(w *world) { w.during["Names"] = away(0) },
		want: lines("Recall", "CachedNames", "Names ×2", "submit is refused: NothingRecorded: connection refused",
			`ends with {"outcome":"refused","reason":"connection refused"}`),
	}, {
		name:    "the database is away when the build is recorded",
		arrange: func(w *world) { w.during["Record"] = away(0) },
		want: lines("Recall", "CachedNames", "Names", `Record with evaluation "k" ×5`,
			"submit is refused: Unavailable: connection refused",
			`ends with {"outcome":"refused","reason":"connection refused"}`),
	}})
}

func TestSubmitRecordsWhatItWasAsked(t *testing.T) {
	w := newWorld(t)
	w.runSubmit()
	require.Equal(t, id, w.recorded.Deployment)
	require.Equal(t, request, w.recorded.Request)
	require.Equal(t, wire.SubmitID(id, request), w.recorded.WorkflowID)
	require.Equal(t, snapshot, w.recorded.Snapshot)
	require.JSONEq(t, configuration, string(w.recorded.Configuration))
}

func TestSubmitWithoutARequestEnds(t *testing.T) {
	w := newWorld(t)
	start := w.env.Now()
	w.runWithout(wire.WorkflowSubmit, wire.SubmitID(id, request), wire.SubmitInput{Deployment: id, Request: request})
	require.Equal(t, []string{`ends with {"outcome":"no request"}`}, w.story())
	require.Equal(t, time.Minute, w.env.Now().Sub(start))
}

// A request without a configuration is refused by the store; it must not leave
// a run behind that takes itself for one without a request.
func TestSubmitOfNothingIsARequest(t *testing.T) {
	w := newWorld(t)
	w.during["Recall"] = away(0)
	w.env.RegisterDelayedCallback(func() { w.update(wire.UpdateSubmit) }, 0)
	w.runWithout(wire.WorkflowSubmit, wire.SubmitID(id, request), wire.SubmitInput{Deployment: id, Request: request})
	require.Equal(t, lines("Recall ×5", "submit is refused: Unavailable: connection refused",
		`ends with {"outcome":"refused","reason":"connection refused"}`), w.story())
}

func TestSubmitAgain(t *testing.T) {
	again := func(w *world, c string) func(int) error {
		return meanwhile(func() { w.main(func() { w.submit(c) }) })
	}
	tellStories(t, (*world).runSubmit, []story{{
		name:    "while the first is evaluated",
		arrange: func(w *world) { w.during["Names"] = again(w, configuration) },
		want:    lines("Recall", "CachedNames", "Names", `Record with evaluation "k"`, "SlipwayBuild=7", answered+" ×2", "TakeTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name: "while the first is evaluated, and refused",
		arrange: func(w *world) {
			w.during["Names"] = again(w, configuration)
			w.evaluated = []wire.Evaluated{{Refusal: &wire.Refusal{Type: wire.ErrorInvalidConfiguration, Message: "no"}}}
		},
		want: lines("Recall", "CachedNames", "Names", "submit is refused: InvalidConfiguration: no ×2",
			`ends with {"outcome":"refused","reason":"no"}`),
	}, {
		name:    "while the first deploys",
		arrange: func(w *world) { w.during["Deploy"] = again(w, configuration) },
		want:    lines(toRecord(), "TakeTurn d#7", "Deploy d#7", answered, "Finish d#7", succeeded),
	}, {
		name:    "with another configuration while the first is evaluated",
		arrange: func(w *world) { w.during["Names"] = again(w, another) },
		want: lines("Recall", "CachedNames", "Names", conflict, recorded(),
			"TakeTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name:    "with another configuration while the first deploys",
		arrange: func(w *world) { w.during["Deploy"] = again(w, another) },
		want:    lines(toRecord(), "TakeTurn d#7", "Deploy d#7", conflict, "Finish d#7", succeeded),
	}, {
		name:    "in another run, which carries the build on",
		arrange: func(w *world) { w.before(deployment.StatusQueued, configuration) },
		want: lines("Recall", "SlipwayBuild=7", answered,
			"TakeTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name:    "in another run, when the build has ended",
		arrange: func(w *world) { w.before(deployment.StatusSucceeded, configuration) },
		want:    lines("Recall", "SlipwayBuild=7", answered, "TakeTurn d#7", "Finish d#7", succeeded),
	}, {
		name:    "in another run, with another configuration",
		arrange: func(w *world) { w.before(deployment.StatusRunning, another) },
		want: lines("Recall", "submit is refused: IdempotencyConflict: other",
			`ends with {"outcome":"refused","reason":"other"}`),
	}, {
		name: "after a reset, when the deployer ran and its exit is staged",
		arrange: func(w *world) {
			w.before(deployment.StatusRunning, configuration)
			w.exit = &deployment.Exit{}
			w.during["Deploy"] = alreadyRan
		},
		want: lines("Recall", "SlipwayBuild=7", answered, "TakeTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name: "after a reset, when the deployer ran and left nothing",
		arrange: func(w *world) {
			w.before(deployment.StatusRunning, configuration)
			w.during["Deploy"] = alreadyRan
		},
		want: lines("Recall", "SlipwayBuild=7", answered, "TakeTurn d#7", "Deploy d#7", "Finish d#7",
			"fails: BuildFailed: build 7 failed: the worker that ran the deployer was lost"),
	}, {
		name: "after a reset, while the deployer of before still runs",
		arrange: func(w *world) {
			w.before(deployment.StatusRunning, configuration)
			w.during["Deploy"] = alreadyRan
			w.during["Finish"] = func(call int) error {
				if call <= 4 {
					return fenceHeld()
				}
				w.stage(deployment.Exit{})
				return nil
			}
		},
		want: lines("Recall", "SlipwayBuild=7", answered, "TakeTurn d#7", "Deploy d#7", "Finish d#7 ×5", succeeded),
	}})
}

func TestSubmitQueues(t *testing.T) {
	queued := func(happens func(w *world)) func(w *world) {
		return func(w *world) {
			w.older = true
			w.during["AwaitTurn"] = meanwhile(func() { happens(w) })
		}
	}
	tellStories(t, (*world).runSubmit, []story{{
		name:    "until the older build ends",
		arrange: queued(func(w *world) { w.set(func() { w.older = false }) }),
		want:    lines(toRecord(), "TakeTurn d#7", "AwaitTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name: "until a newer submit takes its place",
		arrange: queued(func(w *world) {
			w.set(func() { w.status, w.reason = deployment.StatusSuperseded, "superseded by build 8" })
		}),
		want: lines(toRecord(), "TakeTurn d#7", "AwaitTurn d#7", "Finish d#7",
			`ends with {"outcome":"superseded","build":7,"reason":"superseded by build 8"}`),
	}, {
		name: "until the sweeper ends it",
		arrange: queued(func(w *world) {
			w.set(func() { w.status, w.reason = deployment.StatusFailed, "swept" })
		}),
		want: lines(toRecord(), "TakeTurn d#7", "AwaitTurn d#7", "Finish d#7", "fails: BuildFailed: build 7 failed: swept"),
	}, {
		name: "through lost workers and a database that is away",
		arrange: func(w *world) {
			w.older = true
			w.during["AwaitTurn"] = func(call int) error {
				switch {
				case call <= 3:
					return temporal.NewHeartbeatTimeoutError()
				case call <= 9:
					return away(0)(call)
				}
				w.set(func() { w.older = false })
				return nil
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "AwaitTurn d#7 ×10", "Deploy d#7", "Finish d#7", succeeded),
	}})
}

func TestSubmitLosesTheWorkerThatDeploys(t *testing.T) {
	lost := func(exit *deployment.Exit) func(w *world) {
		return func(w *world) {
			w.during["Deploy"] = func(call int) error {
				if call > 1 {
					return alreadyRan(call)
				}
				w.set(func() { w.exit = exit })
				return temporal.NewHeartbeatTimeoutError()
			}
		}
	}
	tellStories(t, (*world).runSubmit, []story{{
		name:    "after a staged success",
		arrange: lost(&deployment.Exit{}),
		want:    lines(toRecord(), "TakeTurn d#7", "Deploy d#7 ×2", "Finish d#7", succeeded),
	}, {
		name:    "before the deployer ran: another one deploys",
		arrange: func(w *world) { w.during["Deploy"] = lostWorkers(2) },
		want:    lines(toRecord(), "TakeTurn d#7", "Deploy d#7 ×3", "Finish d#7", succeeded),
	}, {
		name:    "before the deployer ran, each time",
		arrange: func(w *world) { w.during["Deploy"] = lostWorkers(9) },
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7 ×3", "Finish d#7",
			"fails: BuildFailed: build 7 failed: the worker that ran the deployer was lost"),
	}, {
		name:    "after a staged failure",
		arrange: lost(&deployment.Exit{Code: 137, Reason: "killed"}),
		want:    lines(toRecord(), "TakeTurn d#7", "Deploy d#7 ×2", "Finish d#7", "fails: BuildFailed: build 7 failed: killed"),
	}, {
		name:    "without an exit: it does not deploy again",
		arrange: lost(nil),
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7 ×2", "Finish d#7",
			"fails: BuildFailed: build 7 failed: the worker that ran the deployer was lost"),
	}, {
		name: "and waits until its fence has lapsed",
		arrange: func(w *world) {
			lost(nil)(w)
			w.during["Finish"] = func(call int) error {
				if call <= 2 {
					return fenceHeld()
				}
				return nil
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7 ×2", "Finish d#7 ×3",
			"fails: BuildFailed: build 7 failed: the worker that ran the deployer was lost"),
	}})
}

func TestCancelOfASubmit(t *testing.T) {
	tellStories(t, (*world).runSubmit, []story{{
		name:    "before there is a build",
		arrange: func(w *world) { w.during["Names"] = meanwhile(w.callerCancels) },
		want: lines("Recall", "CachedNames", "Names", "cancel is refused: Unavailable: there is no build to cancel yet",
			recorded(), "TakeTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name: "while it is queued",
		arrange: func(w *world) {
			w.older = true
			w.during["AwaitTurn"] = func(int) error {
				w.callerCancels()
				return w.untilTold("cancel is answered")
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "AwaitTurn d#7", "Cancel d#7", `cancel is answered {"status":"cancelled"}`,
			"Finish d#7", queuedCancelled),
	}, {
		name: "while it deploys",
		arrange: func(w *world) {
			w.during["Deploy"] = func(int) error {
				w.stage(deployment.Exit{Code: 143, Reason: "stopped", Cancelled: true})
				w.callerCancels()
				return w.untilStopped()
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Cancel d#7", `cancel is answered {"status":"running"}`,
			"Deploy is asked to stop", "Finish d#7", `ends with {"outcome":"cancelled","build":7,"reason":"stopped"}`),
	}, {
		name: "while it deploys, and leaves no exit",
		arrange: func(w *world) {
			w.during["Deploy"] = func(int) error {
				w.callerCancels()
				return w.untilStopped()
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Cancel d#7", `cancel is answered {"status":"running"}`,
			"Deploy is asked to stop", "Finish d#7",
			`ends with {"outcome":"cancelled","build":7,"reason":"cancelled before the deployer ran"}`),
	}, {
		name: "while it deploys, too late",
		arrange: func(w *world) {
			w.during["Deploy"] = func(int) error {
				w.stage(deployment.Exit{})
				w.callerCancels()
				return w.untilStopped()
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Cancel d#7", `cancel is answered {"status":"running"}`,
			"Deploy is asked to stop", "Finish d#7", succeeded),
	}, {
		name: "between its turn and its deployer",
		arrange: func(w *world) {
			w.during["TakeTurn"] = func(int) error {
				w.set(func() { w.status = deployment.StatusRunning })
				w.callerCancels()
				return w.untilTold("cancel is answered")
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "Cancel d#7", `cancel is answered {"status":"running"}`,
			"Deploy is asked to stop", "Finish d#7",
			`ends with {"outcome":"cancelled","build":7,"reason":"cancelled before the deployer ran"}`),
	}, {
		name: "when it has ended",
		arrange: func(w *world) {
			w.during["Finish"] = func(call int) error {
				if call == 1 {
					return fenceHeld()
				}
				w.set(func() { w.status = deployment.StatusSucceeded })
				w.callerCancels()
				return w.untilTold("cancel is answered")
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Finish d#7 ×2", "Cancel d#7", `cancel is answered {"status":"succeeded"}`, succeeded),
	}, {
		name: "while it ends: its run waits for the answer",
		arrange: func(w *world) {
			w.during["Finish"] = w.cancelledMeanwhile
			w.during["Cancel"] = w.untilFinished
		},
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Finish d#7", "Cancel d#7", `cancel is answered {"status":"succeeded"}`, succeeded),
	}, {
		name: "while the database is away",
		arrange: func(w *world) {
			w.during["Cancel"] = away(0)
			w.during["Deploy"] = func(int) error {
				w.callerCancels()
				return w.untilTold("cancel is refused")
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Cancel d#7 ×5",
			"cancel is refused: Unavailable: connection refused", "Finish d#7", succeeded),
	}})
}

// An operator may cancel the workflow at any step. A build that is recorded
// ends in any case, and a deploy that succeeded is never called anything else.
func TestOperatorCancelsASubmit(t *testing.T) {
	during := func(step string) func(w *world) {
		return func(w *world) { w.during[step] = meanwhile(w.operatorCancels) }
	}
	deploying := func(exit *deployment.Exit) func(w *world) {
		return func(w *world) {
			w.during["Deploy"] = func(int) error {
				w.set(func() { w.exit = exit })
				w.operatorCancels()
				return w.untilStopped()
			}
		}
	}
	const nothing = "submit is refused: NothingRecorded: canceled"
	tellStories(t, (*world).runSubmit, []story{{
		name:    "at Recall",
		arrange: during("Recall"),
		want:    lines("Recall", "submit is refused: Unavailable: canceled", "ends cancelled"),
	}, {
		name:    "at CachedNames",
		arrange: during("CachedNames"),
		want:    lines("Recall", "CachedNames", nothing, "ends cancelled"),
	}, {
		name: "at Names",
		arrange: func(w *world) {
			w.during["Names"] = func(int) error {
				w.operatorCancels()
				return w.untilStopped()
			}
		},
		want: lines("Recall", "CachedNames", "Names", "Names is asked to stop", nothing, "ends cancelled"),
	}, {
		name:    "at Record",
		arrange: during("Record"),
		want:    lines(toRecord(), "Cancel d#7", "Finish d#7", "ends cancelled"),
	}, {
		name:    "at TakeTurn",
		arrange: during("TakeTurn"),
		want:    lines(toRecord(), "TakeTurn d#7", "Cancel d#7", "Finish d#7", "ends cancelled"),
	}, {
		name: "at TakeTurn, when the turn was taken all the same",
		arrange: func(w *world) {
			w.during["TakeTurn"] = meanwhile(func() {
				w.set(func() { w.status = deployment.StatusRunning })
				w.operatorCancels()
			})
		},
		want: lines(toRecord(), "TakeTurn d#7", "Cancel d#7", "Finish d#7", "ends cancelled"),
	}, {
		name: "at AwaitTurn",
		arrange: func(w *world) {
			w.older = true
			w.during["AwaitTurn"] = func(int) error {
				w.operatorCancels()
				return w.untilStopped()
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "AwaitTurn d#7", "AwaitTurn is asked to stop", "Cancel d#7", "Finish d#7", "ends cancelled"),
	}, {
		name: "at AwaitTurn, when the database is away",
		arrange: func(w *world) {
			w.older = true
			w.during["Cancel"] = away(9)
			w.during["Finish"] = away(9)
			w.during["AwaitTurn"] = func(int) error {
				w.operatorCancels()
				return w.untilStopped()
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "AwaitTurn d#7", "AwaitTurn is asked to stop", "Cancel d#7 ×10", "Finish d#7 ×10", "ends cancelled"),
	}, {
		name: "at AwaitTurn, when it was superseded",
		arrange: func(w *world) {
			w.older = true
			w.during["AwaitTurn"] = func(int) error {
				w.set(func() { w.status, w.reason = deployment.StatusSuperseded, "superseded by build 8" })
				w.operatorCancels()
				return w.untilStopped()
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "AwaitTurn d#7", "AwaitTurn is asked to stop", "Cancel d#7", "Finish d#7",
			`ends with {"outcome":"superseded","build":7,"reason":"superseded by build 8"}`),
	}, {
		name:    "at Deploy",
		arrange: deploying(&deployment.Exit{Code: 143, Reason: "stopped", Cancelled: true}),
		want:    lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Deploy is asked to stop", "Finish d#7", "ends cancelled"),
	}, {
		name:    "at Deploy, which leaves no exit",
		arrange: deploying(nil),
		want:    lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Deploy is asked to stop", "Finish d#7", "ends cancelled"),
	}, {
		name:    "at Deploy, which succeeds all the same",
		arrange: deploying(&deployment.Exit{}),
		want:    lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Deploy is asked to stop", "Finish d#7", succeeded),
	}, {
		name:    "at Deploy, which fails by itself",
		arrange: deploying(&deployment.Exit{Code: 1, Reason: "it broke"}),
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Deploy is asked to stop", "Finish d#7",
			"fails: BuildFailed: build 7 failed: it broke"),
	}, {
		name:    "at Finish",
		arrange: during("Finish"),
		want:    lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Finish d#7", succeeded),
	}, {
		name: "at Deploy, and its caller cancels it too",
		arrange: func(w *world) {
			w.during["Deploy"] = func(int) error {
				w.stage(deployment.Exit{Code: 143, Reason: "stopped", Cancelled: true})
				w.operatorCancels()
				return w.untilStopped()
			}
			w.during["Finish"] = func(int) error {
				w.callerCancels()
				return w.untilTold("cancel is answered")
			}
		},
		want: lines(toRecord(), "TakeTurn d#7", "Deploy d#7", "Deploy is asked to stop", "Finish d#7",
			"Cancel d#7", `cancel is answered {"status":"running"}`, "ends cancelled"),
	}})
}

func TestOperatorCancelsASubmitWithoutARequest(t *testing.T) {
	w := newWorld(t)
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, 10*time.Second)
	w.runWithout(wire.WorkflowSubmit, wire.SubmitID(id, request), wire.SubmitInput{Deployment: id, Request: request})
	require.Equal(t, []string{"ends cancelled"}, w.story())
}

func TestDetailsOfASubmit(t *testing.T) {
	w := newWorld(t)
	w.older = true
	got := map[string]string{}
	look := func(step string) func(int) error {
		return func(call int) error { got[fmt.Sprintf("%s %d", step, call)] = w.details(); return nil }
	}
	for _, step := range []string{"CachedNames", "Names", "Record", "TakeTurn", "Deploy"} {
		w.during[step] = look(step)
	}
	w.during["AwaitTurn"] = func(call int) error {
		w.set(func() { w.older = false })
		return look("AwaitTurn")(call)
	}
	w.during["Finish"] = func(call int) error {
		if call == 1 {
			return fenceHeld()
		}
		return look("Finish")(call)
	}
	w.env.RegisterDelayedCallback(func() { got["start"] = w.detailsNow() }, time.Second)
	w.env.RegisterDelayedCallback(func() { w.submit(configuration) }, 2*time.Second)
	w.runWithout(wire.WorkflowSubmit, wire.SubmitID(id, request), wire.SubmitInput{Deployment: id, Request: request})
	got["end"] = w.detailsNow()
	require.Equal(t, map[string]string{
		"start":         "Submit of `d`: waits for its configuration.",
		"CachedNames 1": "Submit of `d`: evaluates the configuration.",
		"Names 1":       "Submit of `d`: evaluates the configuration.",
		"Record 1":      "Submit of `d`: records it.",
		"TakeTurn 1":    "Build 7 of `d`: takes its turn.",
		"AwaitTurn 1":   "Build 7 of `d`: waits until the older builds of the deployment have ended.",
		"Deploy 1":      "Build 7 of `d`: the deployer runs (or waits for a slot); its output is the log of the build.",
		"Finish 2":      "Build 7 of `d`: waits to be finished: a deployer may still run, for at most 9s.",
		"end":           "Build 7 of `d`: succeeded.",
	}, got)
}
