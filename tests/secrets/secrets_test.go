package secrets

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOperatorSecrets runs all steps on one stand: first those that need it for
// themselves, then the others at once, and at the end the search for what any of
// them left behind.
func TestOperatorSecrets(t *testing.T) {
	whole := t
	s := newSite(t)
	processes := watchProcesses(t)
	alone := func(name string, step func(*testing.T)) {
		require.True(t, t.Run(name, step))
	}
	alone("no engine", s.noEngine)
	alone("sealed", s.sealed)
	alone("expired token", s.expiredToken)
	var healed func(*testing.T)
	alone("worker dies", func(t *testing.T) { healed = s.workerDies(t) })

	var left traces
	t.Run("together", func(t *testing.T) {
		for name, step := range map[string]func(*testing.T){
			"writes and keeps":           s.writesAndKeeps,
			"refused":                    s.refusedWritesNothing,
			"rename":                     s.renameCopies,
			"clear":                      s.clears,
			"value wins":                 s.valueWins,
			"preview":                    s.previewAsksNobody,
			"destroy":                    s.destroyTakesAll,
			"repeats":                    s.repeatsGiveTheSameBuild,
			"without OpenBao":            s.withoutOpenBao,
			"refusals":                   s.refusals,
			"import":                     s.imports,
			"two submits":                s.twoSubmits,
			"somebody else writes":       s.somebodyElseWrites,
			"a worker died":              healed,
			"submit behind a destroy":    s.behindADestroy,
			"cleared before":             s.clearedBefore,
			"gone by themselves":         s.goneByThemselves,
			"cas_required":               s.casRequired,
			"written by hand":            s.writtenByHand,
			"the example":                func(t *testing.T) { s.exampleSource(t, whole) },
			"a life that leaves nothing": func(t *testing.T) { left = s.live(t) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				step(t)
			})
		}
	})
	t.Run("search", func(t *testing.T) { s.search(t, left, processes) })
}
