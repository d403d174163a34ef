package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/tests/stand"
)

// slots is what the burst of submits has to share.
const slots = 2

var slipway *stand.Stand

func TestMain(m *testing.M) {
	if os.Getenv("BENCH") == "" {
		fmt.Println("the benchmarks run with `make bench`")
		return
	}
	if task := os.Getenv(sbomTask); task != "" {
		os.Exit(runSBOMTask(task))
	}
	s, err := stand.New(stand.Options{Env: []string{fmt.Sprintf("SLIPWAY_NIX_SLOTS=%d", slots)}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	slipway = s
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, s.Logs())
	}
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func api(t *testing.T) *client.Client {
	t.Helper()
	c, err := slipway.Client()
	require.NoError(t, err)
	return c
}

// median runs do n times and gives the median of what it took.
func median(t *testing.T, n int, do func(i int)) time.Duration {
	t.Helper()
	times := make([]time.Duration, n)
	for i := range times {
		start := time.Now()
		do(i)
		times[i] = time.Since(start)
	}
	return middle(times)
}

func middle(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// report prints a ratio and fails the test where it is over its limit.
func report(t *testing.T, what string, ratio, limit float64, parts ...any) {
	t.Helper()
	fmt.Printf("%-46s %6.2f  (limit %g)  %s\n", what, ratio, limit, fmt.Sprint(parts...))
	if ratio > limit {
		t.Errorf("%s: %.2f is over the limit of %g", what, ratio, limit)
	}
}

const benchQueue = "bench"

func benchWorkflow(ctx workflow.Context) error {
	done := false
	err := workflow.SetUpdateHandler(ctx, "ask", func(ctx workflow.Context) error {
		ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Second})
		for range 2 {
			if err := workflow.ExecuteLocalActivity(ctx, nothing).Get(ctx, nil); err != nil {
				return err
			}
		}
		done = true
		return nil
	})
	if err != nil {
		return err
	}
	return workflow.Await(ctx, func() bool { return done && workflow.AllHandlersFinished(ctx) })
}

func nothing(context.Context) error { return nil }

// yardstick prepares the measurement of RT: the function does it once.
func yardstick(t *testing.T) (roundTrip func()) {
	t.Helper()
	c, err := slipway.TemporalClient()
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w := worker.New(c, benchQueue, worker.Options{})
	w.RegisterWorkflow(benchWorkflow)
	w.RegisterActivity(nothing)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	roundTrip = func() {
		start := c.NewWithStartWorkflowOperation(temporalclient.StartWorkflowOptions{
			ID: uuid.NewString(), TaskQueue: benchQueue,
			WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, benchWorkflow)
		handle, err := c.UpdateWithStartWorkflow(t.Context(), temporalclient.UpdateWithStartWorkflowOptions{
			StartWorkflowOperation: start,
			UpdateOptions:          temporalclient.UpdateWorkflowOptions{UpdateName: "ask", WaitForStage: temporalclient.WorkflowUpdateStageCompleted},
		})
		require.NoError(t, err)
		require.NoError(t, handle.Get(t.Context(), nil))
	}
	median(t, 10, func(int) { roundTrip() }) // warm
	return roundTrip
}

func configuration(note string, members string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"test":{"domain":"example.org","note":%q%s}}`, note, members))
}
