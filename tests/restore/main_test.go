package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	temporalclient "go.temporal.io/sdk/client"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/stand"
)

// endsWithin is how long a workflow or build may take to come to its end after a
// restore: two sweeps, the life of a fence, and a busy machine.
const endsWithin = 90 * time.Second

// world is a running slipway.
type world struct {
	*stand.Stand
	t   *testing.T
	api *client.Client
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	s, err := stand.New(stand.Options{Env: []string{"SLIPWAY_NIX_SLOTS=4"}})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs())
		}
		require.NoError(t, s.Close())
	})
	api, err := s.Client()
	require.NoError(t, err)
	return &world{Stand: s, t: t, api: api}
}

// commands are those that the section of docs/operations.md has, in its order.
func commands(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(stand.Root(), "docs", "operations.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Back-up and restore\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var all []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		all = append(all, block[1])
	}
	require.Len(t, all, 2, "one to back up, one to restore")
	return all
}

// shell runs commands of the docs.
func (w *world) shell(commands string, env ...string) {
	w.t.Helper()
	cmd := exec.Command("bash", "-euc", commands)
	cmd.Dir = w.Dir
	cmd.Env = append(os.Environ(), append(env, "SLIPWAY_DATABASE_URL="+w.DatabaseURL,
		"PATH="+filepath.Dir(stand.Bin("slipway"))+":"+os.Getenv("PATH"))...)
	out, err := cmd.CombinedOutput()
	require.NoError(w.t, err, "%s", out)
}

func (w *world) start(pieces ...string) {
	w.t.Helper()
	for _, piece := range pieces {
		require.NoError(w.t, w.Start(piece))
	}
	require.NoError(w.t, w.Ready())
}

func (w *world) kill(pieces ...string) {
	w.t.Helper()
	for _, piece := range pieces {
		require.NoError(w.t, w.Kill(piece))
	}
}

// submit makes a build whose deployer does what.
func (w *world) submit(id, what string) deployment.Ref {
	w.t.Helper()
	configuration := json.RawMessage(fmt.Sprintf(`{"test":{"domain":"example.org","deploy":%q,"destroy":"quick"}}`, what))
	submitted, err := w.api.Submit(w.t.Context(), id, configuration, uuid.NewString())
	require.NoError(w.t, err)
	return deployment.Ref{Deployment: id, Build: submitted.Build}
}

func (w *world) destroy(id string) deployment.Ref {
	w.t.Helper()
	destroyed, err := w.api.Destroy(w.t.Context(), id)
	require.NoError(w.t, err)
	require.NotZero(w.t, destroyed.Build)
	return deployment.Ref{Deployment: id, Build: destroyed.Build}
}

func (w *world) openGate(id string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(filepath.Join(w.Record, id+".open"), nil, 0o644))
}

// await polls until done returns nil.
func (w *world) await(done func() error) {
	w.t.Helper()
	deadline := time.Now().Add(endsWithin)
	for {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// becomes waits until a build has a status, and returns it.
func (w *world) becomes(ref deployment.Ref, want deployment.Status) (build deployment.Build) {
	w.t.Helper()
	w.await(func() (err error) {
		build, err = w.api.Build(w.t.Context(), ref)
		if err == nil && build.Status != want {
			err = fmt.Errorf("build %s is %s (%s), want %s", ref, build.Status, build.Reason, want)
		}
		return err
	})
	return build
}

// ran is how often a deployer has run for a build.
func (w *world) ran(action deployment.Action, ref deployment.Ref) int {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Record, ref.Deployment))
	if !os.IsNotExist(err) {
		require.NoError(w.t, err)
	}
	require.NotContains(w.t, string(text), "OVERLAP", "two deployers ran at once")
	return strings.Count("\n"+string(text), fmt.Sprintf("\nstart %s %d ", action, ref.Build))
}

// runs waits until a deployer has begun for a build for the nth time.
func (w *world) runs(ref deployment.Ref, nth int) {
	w.t.Helper()
	w.await(func() error {
		if n := w.ran(deployment.ActionDeploy, ref); n != nth {
			return fmt.Errorf("the deployer of %s has run %d times", ref, n)
		}
		return nil
	})
}

// state asserts the state of a deployment.
func (w *world) state(id string, want deployment.State) {
	w.t.Helper()
	d, err := w.api.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	require.Equal(w.t, want, d.State, "%s: %s", id, d.Reason)
}

// served is the log of the first build and the SBOM of a deployment.
func (w *world) served(id string) string {
	w.t.Helper()
	log, err := w.api.Log(w.t.Context(), deployment.Ref{Deployment: id, Build: 1}, 0, false)
	require.NoError(w.t, err)
	sbom, err := w.api.SBOM(w.t.Context(), id, "web")
	require.NoError(w.t, err)
	text, err := io.ReadAll(io.MultiReader(log, sbom))
	require.NoError(w.t, err)
	return string(text)
}

// temporal calls with a client of the stand's Temporal.
func (w *world) temporal(call func(ctx context.Context, c temporalclient.Client) error) error {
	c, err := w.TemporalClient()
	if err != nil {
		return err
	}
	defer c.Close()
	return call(w.t.Context(), c)
}

// failure waits until a workflow has failed, and returns why.
func (w *world) failure(workflowID string) (reason string) {
	w.t.Helper()
	w.await(func() error {
		return w.temporal(func(ctx context.Context, c temporalclient.Client) error {
			description, err := c.DescribeWorkflowExecution(ctx, workflowID, "")
			if err != nil {
				return err
			}
			if status := description.GetWorkflowExecutionInfo().GetStatus(); status != enums.WORKFLOW_EXECUTION_STATUS_FAILED {
				return fmt.Errorf("%s is %s", workflowID, status)
			}
			reason = fmt.Sprint(c.GetWorkflow(ctx, workflowID, "").Get(ctx, nil))
			return nil
		})
	})
	return reason
}

// settled waits until no workflow of any deployment is open.
func (w *world) settled() {
	w.t.Helper()
	w.await(func() error {
		return w.temporal(func(ctx context.Context, c temporalclient.Client) error {
			open, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
				Query: "ExecutionStatus = 'Running' AND WorkflowType IN ('Submit', 'Destroy')",
			})
			if err == nil && len(open.GetExecutions()) > 0 {
				err = fmt.Errorf("the workflow %s is open", open.GetExecutions()[0].GetExecution().GetWorkflowId())
			}
			return err
		})
	})
}
