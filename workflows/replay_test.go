package workflows_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/schema/wire"
)

// TestReplay replays the histories of real runs, so that a change of a
// workflow that would break the runs of production fails here. It stays: a
// change that is meant is versioned with workflow.GetVersion, and gets
// histories of its own beside the old ones (tests/histories records them).
func TestReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*.json")
	require.NoError(t, err)
	replayed := map[string]bool{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			require.NoError(t, err)
			defer func() { _ = f.Close() }()
			history, err := client.HistoryFromJSON(f, client.HistoryJSONOptions{})
			require.NoError(t, err)
			require.NotEmpty(t, history.GetEvents())
			name := history.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName()
			require.Contains(t, registered(), name)
			replayed[name] = true
			if name == wire.WorkflowSubmit || name == wire.WorkflowDestroy {
				require.Less(t, len(history.GetEvents()), 60, "an operator can read it")
			}
			replayer := worker.NewWorkflowReplayer()
			for name, definition := range registered() {
				replayer.RegisterWorkflowWithOptions(definition, workflow.RegisterOptions{Name: name})
			}
			require.NoError(t, replayer.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), history))
		})
	}
	for name := range registered() {
		require.True(t, replayed[name], "testdata/histories has no history of a %s", name)
	}
}
