package workflows_test

import (
	"encoding/json"
	"testing"

	"slipway.dev/slipway/schema/wire"
)

func TestPreview(t *testing.T) {
	run := func(w *world) {
		w.runWithout(wire.WorkflowPreview, wire.PreviewID(request), wire.PreviewInput{
			Deployment: id, Snapshot: snapshot, Configuration: json.RawMessage(configuration),
		})
	}
	tellStories(t, run, []story{{
		name: "of a new configuration",
		want: lines("CachedNames", "Names", `ends with {"key":"k"}`),
	}, {
		name:    "of one that was evaluated before",
		arrange: func(w *world) { w.cached = wire.Evaluated{Key: key} },
		want:    lines("CachedNames", `ends with {"key":"k"}`),
	}, {
		name: "of one that the module refuses",
		arrange: func(w *world) {
			w.evaluated = []wire.Evaluated{{Refusal: &wire.Refusal{Type: wire.ErrorInvalidConfiguration, Message: "no"}}}
		},
		want: lines("CachedNames", "Names", `ends with {"refusal":{"type":"InvalidConfiguration","message":"no"}}`),
	}, {
		name:    "without a slot at two workers",
		arrange: func(w *world) { w.evaluated = []wire.Evaluated{{NoSlot: true}, {NoSlot: true}} },
		want:    lines("CachedNames", "Names ×2", `ends with {"noSlot":true}`),
	}, {
		name:    "while the database is away",
		arrange: func(w *world) { w.during["CachedNames"] = away(0) },
		want:    lines("CachedNames ×5", "fails: Unavailable: connection refused"),
	}, {
		name:    "two workers are lost",
		arrange: func(w *world) { w.during["Names"] = lostWorkers(2) },
		want:    lines("CachedNames", "Names ×2", "fails: Unavailable: heartbeat timeout (type: Heartbeat)"),
	}, {
		name: "an operator cancels it",
		arrange: func(w *world) {
			w.during["Names"] = func(int) error {
				w.operatorCancels()
				return w.untilStopped()
			}
		},
		want: lines("CachedNames", "Names", "Names is asked to stop", "ends cancelled"),
	}})
}
