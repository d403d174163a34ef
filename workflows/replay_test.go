package workflows_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/history/v1"
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
	recorded := map[string]bool{}
	for _, file := range files {
		h, name := readHistory(t, file)
		recorded[name] = true
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			if name == wire.WorkflowSubmit || name == wire.WorkflowDestroy {
				require.Less(t, len(h.GetEvents()), 60, "an operator can read it")
			}
			replayer := worker.NewWorkflowReplayer()
			for name, definition := range registered() {
				replayer.RegisterWorkflowWithOptions(definition, workflow.RegisterOptions{Name: name})
			}
			require.NoError(t, replayer.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), h))
		})
	}
	for name := range registered() {
		require.True(t, recorded[name], "testdata/histories has no history of a %s", name)
	}
}

// readHistory reads a history and the type of its workflow.
func readHistory(t *testing.T, file string) (*history.History, string) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	h, err := client.HistoryFromJSON(f, client.HistoryJSONOptions{})
	require.NoError(t, err, file)
	require.NotEmpty(t, h.GetEvents(), file)
	return h, h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName()
}
