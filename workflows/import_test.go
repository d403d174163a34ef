package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/activities/openbao"
	"slipway.dev/slipway/schema/wire"
)

const (
	importedBuild  = `import is answered {"build":7,"evaluation":"evaluated"}`
	importedStored = `import is answered {"build":0,"evaluation":"evaluated"}`
	stored         = `ends with {"outcome":"stored"}`
)

func deploys(w *world) { w.deploy = true }

func toSystems() []string {
	return lines("RecallImport", "PrepareSecrets", "CachedNames", "Names", "Systems of k")
}

func TestImport(t *testing.T) {
	recordedBuild := lines(`RecordImport with evaluation "k", deploy true`, "SlipwayBuild=7", importedBuild)
	refusal := func(errorType string) wire.NodeProblem {
		return wire.NodeProblem{Node: "web", Refusal: wire.Refusal{Type: errorType, Message: "no"}}
	}
	invalid, timeout := refusal(wire.ErrorInvalidConfiguration), refusal(wire.ErrorEvaluationFailed)
	tellStories(t, (*world).runImport, []story{{
		name:    "deploys",
		arrange: deploys,
		want:    lines(toSystems(), recordedBuild, deployed(), succeeded),
	}, {
		name: "only stores",
		want: lines(toSystems(), `RecordImport with evaluation "k", deploy false`, importedStored, stored),
	}, {
		name:    "no slot at two workers: it is never skipped",
		arrange: func(w *world) { w.evaluated = []wire.Evaluated{{NoSlot: true}, {NoSlot: true}} },
		want: lines("RecallImport", "PrepareSecrets", "CachedNames", "Names ×2", "LetGoOfSecrets",
			"import is refused: NoSlot: as many configurations are evaluated as may be at once",
			`ends with {"outcome":"refused","reason":"as many configurations are evaluated as may be at once"}`),
	}, {
		name:    "no slot for the systems at the first worker",
		arrange: func(w *world) { w.systems = []wire.SystemsEvaluated{{NoSlot: true}, {}} },
		want: lines("RecallImport", "PrepareSecrets", "CachedNames", "Names", "Systems of k ×2",
			`RecordImport with evaluation "k", deploy false`, importedStored, stored),
	}, {
		name:    "no slot for the systems",
		arrange: func(w *world) { w.systems = []wire.SystemsEvaluated{{NoSlot: true}, {NoSlot: true}} },
		want: lines("RecallImport", "PrepareSecrets", "CachedNames", "Names", "Systems of k ×2", "LetGoOfSecrets",
			"import is refused: NoSlot: as many configurations are evaluated as may be at once",
			`ends with {"outcome":"refused","reason":"as many configurations are evaluated as may be at once"}`),
	}, {
		name:    "a system does not evaluate",
		arrange: func(w *world) { w.systems = []wire.SystemsEvaluated{{Problems: []wire.NodeProblem{timeout, invalid}}} },
		want: lines(toSystems(), "LetGoOfSecrets",
			"import is refused: InvalidConfiguration: the systems of 2 nodes do not evaluate",
			`ends with {"outcome":"refused","reason":"the systems of 2 nodes do not evaluate"}`),
	}, {
		name: "more systems than are told one by one do not evaluate",
		arrange: func(w *world) {
			w.systems = []wire.SystemsEvaluated{{Problems: []wire.NodeProblem{timeout, invalid}, Broken: 100}}
		},
		want: lines(toSystems(), "LetGoOfSecrets",
			"import is refused: InvalidConfiguration: the systems of 100 nodes do not evaluate",
			`ends with {"outcome":"refused","reason":"the systems of 100 nodes do not evaluate"}`),
	}, {
		name:    "a system takes too long",
		arrange: func(w *world) { w.systems = []wire.SystemsEvaluated{{Problems: []wire.NodeProblem{timeout}}} },
		want: lines(toSystems(), "LetGoOfSecrets",
			"import is refused: EvaluationFailed: the system of 1 node does not evaluate",
			`ends with {"outcome":"refused","reason":"the system of 1 node does not evaluate"}`),
	}, {
		name:    "the names are refused",
		arrange: func(w *world) { w.evaluated = []wire.Evaluated{{Refusal: &invalid.Refusal}} },
		want: lines("RecallImport", "PrepareSecrets", "CachedNames", "Names", "LetGoOfSecrets",
			"import is refused: InvalidConfiguration: no", `ends with {"outcome":"refused","reason":"no"}`),
	}, {
		name:    "a deployment that is known",
		arrange: stepDoes("PrepareSecrets", refuses(wire.ErrorAlreadyExists)),
		want: lines("RecallImport", "PrepareSecrets", "LetGoOfSecrets",
			"import is refused: AlreadyExists: it fails", `ends with {"outcome":"refused","reason":"it fails"}`),
	}, {
		name:    "another one makes it known meanwhile",
		arrange: stepDoes("RecordImport", refuses(wire.ErrorAlreadyExists)),
		want: lines(toSystems(), `RecordImport with evaluation "k", deploy false`, "LetGoOfSecrets",
			"import is refused: AlreadyExists: it fails", `ends with {"outcome":"refused","reason":"it fails"}`),
	}, {
		name:    "the same request came before and deployed nothing",
		arrange: func(w *world) { w.imported = true },
		want:    lines("RecallImport", importedStored, stored),
	}, {
		name: "a worker is lost while it evaluates the systems",
		arrange: stepDoes("Systems", func(call int) error {
			if call == 1 {
				return temporal.NewHeartbeatTimeoutError()
			}
			return nil
		}),
		want: lines("RecallImport", "PrepareSecrets", "CachedNames", "Names", "Systems of k ×2",
			`RecordImport with evaluation "k", deploy false`, importedStored, stored),
	}})
}

// The secrets of an import are written as those of a submit are: after all
// checks, with the systems among them.
func TestImportWithSecrets(t *testing.T) {
	toSecrets := lines("RecallImport", "PrepareSecrets", "ReadSecrets", "CachedNames", "Names", "Systems of k")
	ready := `import is answered {"ready":true,"build":0,"evaluation":""}`
	tellStories(t, (*world).runImport, []story{{
		name:    "new values",
		arrange: all(asksFor(writes), deploys),
		want: lines(toSecrets, ready, `WriteSecrets by "wrapped"`, `RecordImport with evaluation "k", deploy true`, "SlipwayBuild=7",
			committed, deployed(), succeeded),
	}, {
		name:    "new values, and nothing deployed",
		arrange: asksFor(writes),
		want: lines(toSecrets, ready, `WriteSecrets by "wrapped"`, `RecordImport with evaluation "k", deploy false`,
			`commit is answered {"build":0,"evaluation":"evaluated"}`, stored),
	}, {
		name: "a system does not evaluate",
		arrange: all(asksFor(writes), func(w *world) {
			w.systems = []wire.SystemsEvaluated{{Problems: []wire.NodeProblem{{Node: "web"}}}}
		}),
		want: lines(toSecrets, "LetGoOfSecrets", "import is refused: EvaluationFailed: the system of 1 node does not evaluate",
			`ends with {"outcome":"refused","reason":"the system of 1 node does not evaluate"}`),
	}, {
		name:    "OpenBao refuses",
		arrange: all(asksFor(func(p *openbao.Prepared) {}), stepDoes("ReadSecrets", refuses(wire.ErrorUnavailable))),
		want: lines("RecallImport", "PrepareSecrets", "ReadSecrets", "LetGoOfSecrets",
			"import is refused: NothingRecorded: it fails", `ends with {"outcome":"refused","reason":"it fails"}`),
	}})
}

// The same run is asked again: one answer, unless something else is asked for.
func TestImportAskedAgain(t *testing.T) {
	w := newWorld(t)
	w.during["Systems"] = meanwhile(func() {
		w.main(func() {
			w.imports(configuration, false)
			w.imports(another, false)
			w.imports(configuration, true)
		})
	})
	w.runImport()
	require.ElementsMatch(t, lines(toSystems(), `RecordImport with evaluation "k", deploy false`, importedStored, importedStored,
		"import is refused: IdempotencyConflict: the same request came before with another configuration",
		"import is refused: IdempotencyConflict: the same request came before, and was to deploy or not to", stored), w.lines)
}

func TestDetailsOfAnImport(t *testing.T) {
	w := newWorld(t)
	got := map[string]string{}
	for _, step := range []string{"Names", "Systems", "RecordImport"} {
		w.during[step] = func(int) error { got[step] = w.details(); return nil }
	}
	w.env.RegisterDelayedCallback(func() { got["start"] = w.detailsNow() }, time.Second)
	w.env.RegisterDelayedCallback(func() { w.imports(configuration, false) }, 2*time.Second)
	w.runWithout(wire.WorkflowImport, wire.ImportID(id, request), wire.SubmitInput{Deployment: id, Request: request})
	got["end"] = w.detailsNow()
	require.Equal(t, map[string]string{
		"start":        "Import of `d`: waits for its configuration.",
		"Names":        "Import of `d`: evaluates the configuration.",
		"Systems":      "Import of `d`: evaluates the system of each node. The pending activity says which.",
		"RecordImport": "Import of `d`: records it.",
		"end":          "Import of `d`: stored its configuration, and deploys nothing.",
	}, got)
}
