package workflows_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/activities/openbao"
	"slipway.dev/slipway/activities/store"
	schema "slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

const (
	withSet = `{"vm":{"applications":{"forum":{"secretsSet":["key"]}}}}`
	isReady = `submit is answered {"ready":true,"build":0,"evaluation":""}`
	// committed is the answer to a commit.
	committed = `commit is answered {"build":7,"evaluation":"evaluated"}`
	tooLate   = "the submit does not wait for its secrets any more"
)

var key1 = openbao.Field{Application: "forum", Field: "key"}

// asksFor makes the submit one of an application with secrets.
func asksFor(change func(p *openbao.Prepared)) func(w *world) {
	return func(w *world) {
		w.asks = []schema.ApplicationSecrets{{Path: "/vm/applications/forum", Application: "forum", Fields: []string{"key"}, Lists: true}}
		w.prepared = openbao.Prepared{Configuration: json.RawMessage(withSet)}
		if change != nil {
			change(&w.prepared)
		}
		w.ready = func() { w.commit("wrapped") }
	}
}

func writes(p *openbao.Prepared) { p.Write = []openbao.Field{key1} }

func copies(p *openbao.Prepared) { p.Copy = []openbao.Copied{{Field: key1, From: "old"}} }

func clears(p *openbao.Prepared) {
	p.Clear = []schema.ClearedSecret{
		{Application: "forum", Entry: schema.SecretEntry{Field: "key", Version: 2, Created: "then", Live: true}},
		{Application: "forum", Entry: schema.SecretEntry{Field: "other", Version: 1, Created: "then", Live: true}},
	}
}

func all(arrange ...func(w *world)) func(w *world) {
	return func(w *world) {
		for _, f := range arrange {
			f(w)
		}
	}
}

func stepDoes(step string, does func(int) error) func(w *world) {
	return func(w *world) { w.during[step] = does }
}

func toRead() []string { return lines("Recall", "PrepareSecrets", "ReadSecrets") }

func toReady() []string { return lines(toRead(), "CachedNames", "Names", isReady) }

func deployed() []string { return lines("TakeTurn d#7", "Deploy d#7", "Finish d#7") }

// A step of OpenBao that fails for good.
func refuses(errorType string) func(int) error {
	return func(int) error { return temporal.NewNonRetryableApplicationError("it fails", errorType, nil) }
}

func TestSubmitWithSecrets(t *testing.T) {
	tellStories(t, (*world).runSubmit, []story{{
		name:    "new values are written before the record",
		arrange: asksFor(writes),
		want:    lines(toReady(), `WriteSecrets by "wrapped"`, `Record with evaluation "k"`, "SlipwayBuild=7", committed, deployed(), succeeded),
	}, {
		name:    "kept ones need no commit",
		arrange: asksFor(nil),
		want:    lines(toRead(), "CachedNames", "Names", recorded(), deployed(), succeeded),
	}, {
		name:    "copies need no commit",
		arrange: asksFor(copies),
		want: lines(toRead(), "CachedNames", "Names", `WriteSecrets by ""`, recorded(),
			deployed(), succeeded),
	}, {
		name:    "the caller never brings them",
		arrange: all(asksFor(writes), func(w *world) { w.ready = nil }),
		want:    lines(toReady(), "LetGoOfSecrets", `ends with {"outcome":"no secrets"}`),
	}, {
		name: "the caller brings them too late",
		arrange: all(asksFor(writes), func(w *world) {
			w.ready = nil
			w.during["LetGoOfSecrets"] = meanwhile(func() { w.main(func() { w.commit("wrapped") }) })
		}),
		want: lines(toReady(), "LetGoOfSecrets", "commit is refused: NothingRecorded: "+tooLate, `ends with {"outcome":"no secrets"}`),
	}, {
		name:    "stored values that are still the newest",
		arrange: all(asksFor(nil), func(w *world) { w.stored = new(int64(6)) }),
		want:    lines("Recall", "PrepareSecrets", "IsNewest d#6", "ReadSecrets", "CachedNames", "Names", recorded(), deployed(), succeeded),
	}, {
		name:    "stored values that a submit meanwhile may have cleared",
		arrange: all(asksFor(nil), func(w *world) { w.stored, w.newer = new(int64(6)), true }),
		want: lines("Recall", "PrepareSecrets", "IsNewest d#6", "LetGoOfSecrets",
			"submit is refused: SubmitInProgress: another submit of the deployment was recorded meanwhile",
			`ends with {"outcome":"refused","reason":"another submit of the deployment was recorded meanwhile"}`),
	}, {
		name:    "the caller gives up",
		arrange: all(asksFor(writes), func(w *world) { w.ready = func() { w.commit("") } }),
		want: lines(toReady(), "LetGoOfSecrets", "commit is refused: NothingRecorded: the secrets could not be handed over",
			`ends with {"outcome":"refused","reason":"the secrets could not be handed over"}`),
	}, {
		name:    "their token is spent: nothing is tried again",
		arrange: all(asksFor(writes), stepDoes("WriteSecrets", refuses(wire.ErrorSecretsSpent))),
		want: lines(toReady(), `WriteSecrets by "wrapped"`, "LetGoOfSecrets", "commit is refused: SecretsSpent: it fails",
			`ends with {"outcome":"refused","reason":"it fails"}`),
	}, {
		name:    "OpenBao is away when they are written: nobody unwraps twice",
		arrange: all(asksFor(writes), stepDoes("WriteSecrets", away(0))),
		want: lines(toReady(), `WriteSecrets by "wrapped"`, "LetGoOfSecrets", "commit is refused: NothingRecorded: connection refused",
			`ends with {"outcome":"refused","reason":"connection refused"}`),
	}, {
		name:    "OpenBao is away when they are copied",
		arrange: all(asksFor(copies), stepDoes("WriteSecrets", away(0))),
		want: lines(toRead(), "CachedNames", "Names", `WriteSecrets by ""`, "LetGoOfSecrets", "submit is refused: NothingRecorded: connection refused",
			`ends with {"outcome":"refused","reason":"connection refused"}`),
	}, {
		name:    "OpenBao is away when it is read",
		arrange: all(asksFor(writes), stepDoes("ReadSecrets", away(0))),
		want: lines("Recall", "PrepareSecrets", "ReadSecrets ×3", "LetGoOfSecrets", "submit is refused: NothingRecorded: connection refused",
			`ends with {"outcome":"refused","reason":"connection refused"}`),
	}, {
		name:    "another submit is in progress",
		arrange: all(asksFor(writes), stepDoes("PrepareSecrets", refuses(wire.ErrorSubmitInProgress))),
		want: lines("Recall", "PrepareSecrets", "LetGoOfSecrets", "submit is refused: SubmitInProgress: it fails",
			`ends with {"outcome":"refused","reason":"it fails"}`),
	}, {
		name: "the module refuses: nothing was written",
		arrange: all(asksFor(writes), func(w *world) {
			w.evaluated = []wire.Evaluated{{Refusal: &wire.Refusal{Type: wire.ErrorInvalidConfiguration, Message: "no"}}}
		}),
		want: lines(toRead(), "CachedNames", "Names", "LetGoOfSecrets", "submit is refused: InvalidConfiguration: no",
			`ends with {"outcome":"refused","reason":"no"}`),
	}, {
		name:    "the database is away at the record",
		arrange: all(asksFor(writes), stepDoes("Record", away(0))),
		want: lines(toReady(), `WriteSecrets by "wrapped"`, `Record with evaluation "k" ×5`, "LetGoOfSecrets",
			"commit is refused: Unavailable: connection refused", `ends with {"outcome":"refused","reason":"connection refused"}`),
	}, {
		name: "somebody took them out of its hands before the record",
		arrange: all(asksFor(writes), func(w *world) {
			w.during["WriteSecrets"] = meanwhile(func() { w.set(func() { w.inHand = false }) })
		}),
		want: lines(toReady(), `WriteSecrets by "wrapped"`, `Record with evaluation "k"`, "LetGoOfSecrets",
			"commit is refused: SubmitInProgress: not in hand", `ends with {"outcome":"refused","reason":"not in hand"}`),
	}, {
		name:    "a commit of a submit that waits for none",
		arrange: all(asksFor(nil), func(w *world) { w.during["Deploy"] = meanwhile(func() { w.main(func() { w.commit("wrapped") }) }) }),
		want: lines(toRead(), "CachedNames", "Names", recorded(), "TakeTurn d#7", "Deploy d#7",
			"commit is refused: Unavailable: the submit does not wait for secrets", "Finish d#7", succeeded),
	}})
}

func TestTheSameSubmitWithSecretsAgain(t *testing.T) {
	again := func(w *world) { w.main(func() { w.submit(configuration) }) }
	bothReady := all(asksFor(writes), func(w *world) {
		first := true
		w.ready = func() {
			if first {
				first = false
				w.submit(configuration)
				return
			}
			w.commit("wrapped")
			w.commit("wrapped again")
		}
	})
	tellStories(t, (*world).runSubmit, []story{{
		name: "while it is ready: both are, and the first that comes is written",
		arrange: all(bothReady, func(w *world) {
			w.during["WriteSecrets"] = refuses(wire.ErrorSecretsSpent)
		}),
		want: lines(toRead(), "CachedNames", "Names", isReady+" ×2", `WriteSecrets by "wrapped"`, "LetGoOfSecrets",
			"commit is refused: SecretsSpent: it fails ×2", `ends with {"outcome":"refused","reason":"it fails"}`),
	}, {
		name: "while it is written",
		arrange: all(asksFor(writes), func(w *world) {
			w.during["WriteSecrets"] = meanwhile(func() { w.main(func() { w.ready = nil; w.submit(configuration) }) })
		}),
		want: lines(toReady(), `WriteSecrets by "wrapped"`, isReady, `Record with evaluation "k"`, "SlipwayBuild=7",
			committed, deployed(), succeeded),
	}, {
		name:    "after the commit",
		arrange: all(asksFor(writes), func(w *world) { w.during["Deploy"] = meanwhile(func() { again(w) }) }),
		want: lines(toReady(), `WriteSecrets by "wrapped"`, `Record with evaluation "k"`, "SlipwayBuild=7", committed,
			"TakeTurn d#7", "Deploy d#7", answered, "Finish d#7", succeeded),
	}, {
		name: "after a refused commit: it hears the same",
		arrange: all(asksFor(writes), stepDoes("WriteSecrets", refuses(wire.ErrorSecretsSpent)), func(w *world) {
			// The first lets go before it answers.
			w.during["LetGoOfSecrets"] = meanwhile(func() {
				w.main(func() { w.ready = nil; w.submit(configuration); w.commit("wrapped again") })
			})
		}),
		want: lines(toReady(), `WriteSecrets by "wrapped"`, "LetGoOfSecrets", isReady, "commit is refused: SecretsSpent: it fails ×2",
			`ends with {"outcome":"refused","reason":"it fails"}`),
	}, {
		name: "in another run, which finds the build",
		arrange: all(asksFor(writes), func(w *world) {
			w.before(deployment.StatusQueued, withSet)
			w.recorded.Asked = json.RawMessage(configuration)
		}),
		want: lines("Recall", "SlipwayBuild=7", answered, deployed(), succeeded),
	}, {
		name: "in another run, which finds the build and clears for it",
		arrange: all(asksFor(clears), func(w *world) {
			w.before(deployment.StatusQueued, withSet)
			w.recorded.Asked = json.RawMessage(configuration)
			w.recorded.Clears = []schema.ClearedSecret{{Application: "forum", Entry: schema.SecretEntry{Field: "key"}}}
		}),
		want: lines("Recall", "SlipwayBuild=7", answered, deployed(), clearing(1), succeeded),
	}})
}

func TestSubmitRecordsWhatItClears(t *testing.T) {
	w := newWorld(t)
	asksFor(clears)(w)
	w.runSubmit()
	require.Equal(t, w.prepared.Clear, w.recorded.Clears)
}

func TestTwoCommitsOfOneSubmit(t *testing.T) {
	w := newWorld(t)
	asksFor(writes)(w)
	w.ready = func() { w.commit("wrapped"); w.commit("wrapped again") }
	w.runSubmit()
	require.Len(t, w.wrote, 1)
	answers := slices.DeleteFunc(w.lines, func(line string) bool { return line != committed })
	require.Len(t, answers, 2)
}

func TestSubmitWithSecretsRecordsWhatItWasAsked(t *testing.T) {
	w := newWorld(t)
	asksFor(func(p *openbao.Prepared) { writes(p); copies(p) })(w)
	w.runSubmit()
	require.JSONEq(t, withSet, string(w.recorded.Configuration))
	require.JSONEq(t, configuration, string(w.recorded.Asked), "the same request is known without secretsSet")
	require.Equal(t, []openbao.WriteInput{{Deployment: id, Wrapped: "wrapped", Write: w.prepared.Write, Copy: w.prepared.Copy}}, w.wrote)
}

func TestOperatorCancelsASubmitWithSecrets(t *testing.T) {
	cancelledAt := func(step string) func(w *world) {
		return all(asksFor(writes), func(w *world) { w.during[step] = meanwhile(w.operatorCancels) })
	}
	const nothing = "submit is refused: NothingRecorded: canceled"
	tellStories(t, (*world).runSubmit, []story{{
		name: "while it waits for another submit",
		arrange: all(asksFor(writes), stepDoes("PrepareSecrets", nil), func(w *world) {
			w.during["PrepareSecrets"] = func(int) error { w.operatorCancels(); return w.untilStopped() }
		}),
		want: lines("Recall", "PrepareSecrets", "PrepareSecrets is asked to stop", "LetGoOfSecrets", nothing, "ends cancelled"),
	}, {
		name: "while OpenBao is read",
		arrange: all(asksFor(writes), func(w *world) {
			w.during["ReadSecrets"] = func(int) error { w.operatorCancels(); return w.untilStopped() }
		}),
		want: lines(toRead(), "ReadSecrets is asked to stop", "LetGoOfSecrets", nothing, "ends cancelled"),
	}, {
		name:    "while it waits for its secrets",
		arrange: all(asksFor(writes), func(w *world) { w.ready = w.env.CancelWorkflow }),
		want:    lines(toReady(), "LetGoOfSecrets", "ends cancelled"),
	}, {
		name: "while it waits for its secrets, which come all the same",
		arrange: all(asksFor(writes), func(w *world) {
			w.ready = w.env.CancelWorkflow
			w.during["LetGoOfSecrets"] = meanwhile(func() { w.main(func() { w.commit("wrapped") }) })
		}),
		want: lines(toReady(), "LetGoOfSecrets", "commit is refused: NothingRecorded: "+tooLate, "ends cancelled"),
	}, {
		name:    "while they are written: what was begun is recorded, and the build cancelled",
		arrange: cancelledAt("WriteSecrets"),
		want: lines(toReady(), `WriteSecrets by "wrapped"`, `Record with evaluation "k"`, "SlipwayBuild=7", committed,
			"Cancel d#7", "Finish d#7", "ends cancelled"),
	}, {
		name:    "while it is recorded",
		arrange: cancelledAt("Record"),
		want: lines(toReady(), `WriteSecrets by "wrapped"`, `Record with evaluation "k"`, "SlipwayBuild=7", committed,
			"Cancel d#7", "Finish d#7", "ends cancelled"),
	}, {
		name: "while they are written, which fails",
		arrange: all(asksFor(writes), func(w *world) {
			w.during["WriteSecrets"] = func(call int) error { w.operatorCancels(); return away(0)(call) }
		}),
		want: lines(toReady(), `WriteSecrets by "wrapped"`, "LetGoOfSecrets", "commit is refused: NothingRecorded: connection refused", "ends cancelled"),
	}, {
		name: "while it waits to clear again",
		arrange: all(asksFor(clears), func(w *world) {
			w.during["ClearSecrets"] = func(call int) error {
				if call == 2 {
					w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Second)
				}
				return away(0)(call)
			}
		}),
		want: lines(toRead(), "CachedNames", "Names", recorded(), deployed(), clearing(2), succeeded),
	}})
}

// clearing are n tries of a clear.
func clearing(n int) (steps []string) {
	for range n {
		steps = append(steps, "PrepareSecrets", "Unneeded", "ClearSecrets", "LetGoOfSecrets")
	}
	return steps
}

func TestClear(t *testing.T) {
	before := lines(toRead(), "CachedNames", "Names", recorded())
	tellStories(t, (*world).runSubmit, []story{{
		name:    "after the deploy",
		arrange: asksFor(clears),
		want:    lines(before, deployed(), clearing(1), succeeded),
	}, {
		name: "not after a deploy that failed",
		arrange: all(asksFor(clears), func(w *world) {
			w.during["Deploy"] = meanwhile(func() { w.stage(deployment.Exit{Code: 1, Reason: "it broke"}) })
		}),
		want: lines(before, deployed(), "fails: BuildFailed: build 7 failed: it broke"),
	}, {
		name:    "until OpenBao is back",
		arrange: all(asksFor(clears), stepDoes("ClearSecrets", away(3))),
		want:    lines(before, deployed(), clearing(4), succeeded),
	}, {
		name:    "until the database is back",
		arrange: all(asksFor(clears), stepDoes("Unneeded", away(5))),
		want: lines(before, deployed(), "PrepareSecrets", "Unneeded ×5", "LetGoOfSecrets",
			clearing(1), succeeded),
	}, {
		name: "until another submit has let go",
		arrange: all(asksFor(clears), func(w *world) {
			w.during["PrepareSecrets"] = func(call int) error {
				if call == 2 {
					return refuses(wire.ErrorSubmitInProgress)(call)
				}
				return nil
			}
		}),
		want: lines(before, deployed(), "PrepareSecrets", "LetGoOfSecrets", clearing(1), succeeded),
	}, {
		name:    "nothing, where a newer submit names all",
		arrange: all(asksFor(clears), func(w *world) { w.unneeded = func([][2]string) [][2]string { return nil } }),
		want:    lines(before, deployed(), "PrepareSecrets", "Unneeded", "LetGoOfSecrets", succeeded),
	}})
}

func TestClearSkipsWhatANewerSubmitNames(t *testing.T) {
	w := newWorld(t)
	asksFor(clears)(w)
	w.unneeded = func(asked [][2]string) [][2]string {
		require.Equal(t, [][2]string{{"forum", "key"}, {"forum", "other"}}, asked)
		return asked[1:]
	}
	w.runSubmit()
	require.Equal(t, w.prepared.Clear[1:], w.cleared)
}

// A clear holds nobody up and does not go on for ever; its run stays as short as
// a run should.
func TestClearGivesUp(t *testing.T) {
	w := newWorld(t)
	asksFor(clears)(w)
	w.during["ClearSecrets"] = away(0)
	start := w.env.Now()
	w.runSubmit()
	require.InDelta(t, 7*24*time.Hour, w.env.Now().Sub(start), float64(time.Hour))
	require.LessOrEqual(t, w.calls["ClearSecrets"], 520)
	require.False(t, w.inHand)
	story := w.story()
	require.Equal(t, "fails: SecretsLeft: OpenBao still has the secrets that the submit cleared, after a week of tries: connection refused",
		story[len(story)-1], "an operator finds it")
}

func TestDestroyDeletesSecrets(t *testing.T) {
	run := func(w *world) {
		w.env.RegisterDelayedCallback(func() { w.update(wire.UpdateDestroy) }, 0)
		w.runWithout(wire.WorkflowDestroy, wire.DestroyID(id, request), wire.DestroyInput{Deployment: id, Request: request, Secrets: true})
	}
	hauled := lines(toHaulOut(), "TakeTurn d#7", "Destroy d#7", "Finish d#7")
	idle := func(w *world) { w.haulsOut = store.RecordedDestroy{Idle: true, Newest: 3} }
	isIdle := lines("RecordDestroy", `destroy is answered {"idle":true}`)
	tellStories(t, run, []story{{
		name:    "of what is idle: a submit that never ran may have left some",
		arrange: idle,
		want: lines(isIdle, "PrepareSecrets", "StaysDown d#3", "DeleteSecrets d", "LetGoOfSecrets",
			`ends with {"outcome":"idle","reason":"nothing was up"}`),
	}, {
		name:    "not of what was idle and lives again",
		arrange: all(idle, func(w *world) { w.newer = true }),
		want:    lines(isIdle, "PrepareSecrets", "StaysDown d#3", "LetGoOfSecrets", `ends with {"outcome":"idle","reason":"nothing was up"}`),
	}, {
		name: "after it is idle",
		want: lines(hauled, "PrepareSecrets", "StaysDown d#7", "DeleteSecrets d", "LetGoOfSecrets", succeeded),
	}, {
		name:    "not where it is about to live again",
		arrange: func(w *world) { w.newer = true },
		want:    lines(hauled, "PrepareSecrets", "StaysDown d#7", "LetGoOfSecrets", succeeded),
	}, {
		name: "until OpenBao is back, if nothing came in between",
		arrange: func(w *world) {
			w.during["DeleteSecrets"] = func(call int) error {
				w.newer = call == 2
				return away(0)(call)
			}
		},
		want: lines(hauled, "PrepareSecrets", "StaysDown d#7", "DeleteSecrets d", "LetGoOfSecrets",
			"PrepareSecrets", "StaysDown d#7", "DeleteSecrets d", "LetGoOfSecrets",
			"PrepareSecrets", "StaysDown d#7", "LetGoOfSecrets", succeeded),
	}, {
		name: "not after a failed one",
		arrange: func(w *world) {
			w.during["Destroy"] = meanwhile(func() { w.stage(deployment.Exit{Code: 1, Reason: "it broke"}) })
		},
		want: lines(hauled, "fails: BuildFailed: build 7 failed: it broke"),
	}, {
		name:    "not by a run that joined another",
		arrange: func(w *world) { w.haulsOut.Ours = false },
		want: lines(toHaulOut(),
			`ends with {"outcome":"joined","build":7,"reason":"an earlier destroy is on its way"}`),
	}})
}

func TestDetailsOfSecrets(t *testing.T) {
	w := newWorld(t)
	asksFor(func(p *openbao.Prepared) { writes(p); clears(p) })(w)
	got := map[string]string{}
	for _, step := range []string{"ReadSecrets", "WriteSecrets", "ClearSecrets"} {
		w.during[step] = func(call int) error { got[step] = w.details(); return nil }
	}
	w.ready = func() { got["ready"] = w.detailsNow(); w.commit("wrapped") }
	w.runSubmit()
	got["end"] = w.detailsNow()
	require.Equal(t, map[string]string{
		"ReadSecrets":  "Submit of `d`: looks which secrets OpenBao has.",
		"ready":        "Submit of `d`: waits for its secrets.",
		"WriteSecrets": "Submit of `d`: writes its secrets to OpenBao.",
		"ClearSecrets": "`d`: deletes the secrets that the submit cleared.",
		"end":          "`d`: has deleted the secrets that the submit cleared, where they were not needed.",
	}, got)
	require.NotContains(t, strings.Join(w.story(), "\n"), "fails")
}
