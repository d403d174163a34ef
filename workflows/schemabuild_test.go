package workflows_test

import (
	"testing"

	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/wire"
)

func TestSchemaBuild(t *testing.T) {
	const step = "BuildSchema " + snapshot + " default.nix"
	run := func(w *world) {
		w.runWithout(wire.WorkflowSchemaBuild, wire.SchemaBuildID(snapshot),
			wire.SchemaBuildInput{Snapshot: snapshot, Entry: "default.nix"})
	}
	tellStories(t, run, []story{{
		name: "of a source that evaluates",
		want: lines(step, "ends"),
	}, {
		name: "of a source that does not",
		arrange: func(w *world) {
			w.during["BuildSchema"] = func(int) error {
				return temporal.NewNonRetryableApplicationError("syntax error", wire.ErrorSourceFailed, nil)
			}
		},
		want: lines(step, "fails: SourceFailed: syntax error"),
	}, {
		name:    "while workers are lost",
		arrange: func(w *world) { w.during["BuildSchema"] = lostWorkers(4) },
		want:    lines(step+" ×5", "ends"),
	}, {
		name: "an operator cancels it",
		arrange: func(w *world) {
			w.during["BuildSchema"] = func(int) error {
				w.operatorCancels()
				return w.untilStopped()
			}
		},
		want: lines(step, "BuildSchema is asked to stop", "ends cancelled"),
	}})
}
