package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"

	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/schema/wire"
)

// site is a source with all that a keeper sees and does, in a bubble of
// synctest: nothing here runs at the same time, of which mu tells the race
// detector.
type site struct {
	client.Client
	mu                    sync.Mutex
	fingerprint, snapshot string
	snapshotErr, noteErr  error
	deployers             map[string]string
	events                []string // since they were looked at last
	runs                  map[string]*run
}

func (s *site) tells(event string) { s.events = append(s.events, event) }

func (s *site) Fingerprint(string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fingerprint, nil
}

func (s *site) Snapshot(context.Context, string, string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot, s.snapshotErr
}

func (s *site) Deployer(_ context.Context, snapshot string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deployers[snapshot], nil
}

func (s *site) UseSnapshot(_ context.Context, snapshot string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tells("use " + snapshot)
	return nil
}

func (s *site) SourceProblem(_ context.Context, problem string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tells("problem: " + problem)
	return s.noteErr
}

func (s *site) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any, args ...any) (client.WorkflowRun, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := args[0].(wire.SchemaBuildInput)
	s.tells("build " + in.Snapshot)
	r := &run{id: o.ID, ended: make(chan error, 1)}
	s.runs[in.Snapshot] = r
	return r, nil
}

func (s *site) CancelWorkflow(_ context.Context, id, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tells("cancel " + strings.TrimPrefix(id, "schema/"))
	return nil
}

// run is a schema build.
type run struct {
	client.WorkflowRun
	id    string
	ended chan error
}

func (r *run) GetID() string    { return r.id }
func (r *run) GetRunID() string { return "" }

func (r *run) Get(ctx context.Context, _ any) error {
	select {
	case err := <-r.ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failed is what who waits for a workflow gets that fails with err.
func failed(t *testing.T, err error) error {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.ExecuteWorkflow(func(workflow.Context) error { return err })
	var of *temporal.WorkflowExecutionError
	require.ErrorAs(t, env.GetWorkflowError(), &of)
	return of
}

// keeping runs a keeper of a source that is the snapshot.
func keeping(t *testing.T, snapshot string, story func(s *site, after func(wait time.Duration, want ...string))) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{fingerprint: snapshot, snapshot: snapshot, deployers: map[string]string{}, runs: map[string]*run{}}
		k := &Keeper{Evaluator: s, Sources: s, Client: s, Source: "/source", Entry: "slipway.nix", Roots: "/roots", Log: zap.NewNop()}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { k.Run(ctx); close(ended) }()
		story(s, func(wait time.Duration, want ...string) {
			t.Helper()
			s.mu.Lock()
			//lint:ignore SA2001 what the story has changed before is seen from here on
			s.mu.Unlock()
			time.Sleep(wait)
			synctest.Wait()
			require.Equal(t, want, s.events)
			s.events = nil
		})
		cancel()
		<-ended
	})
}

// change makes the source another snapshot.
func (s *site) change(snapshot string) { s.fingerprint, s.snapshot = snapshot, snapshot }

func TestKeeperTellsWhatMayPass(t *testing.T) {
	doesNotBuild := failed(t, temporal.NewNonRetryableApplicationError("the deployer does not build", wire.ErrorSourceMayPass, nil))
	const told = "problem: the deployer does not build"
	keeping(t, "a", func(s *site, after func(time.Duration, ...string)) {
		after(0, "build a")
		s.runs["a"].ended <- doesNotBuild
		after(0, told)
		s.fingerprint = "the same with other times"
		after(mayPassFirst - time.Second)
		after(lookEvery+time.Second, "build a")
		s.runs["a"].ended <- doesNotBuild
		after(0, told)
		after(2*mayPassFirst - time.Second)
		after(lookEvery+time.Second, "build a")
		after(time.Hour)

		// The source is mended while it is built once more.
		s.change("b")
		after(lookEvery, "cancel a", "build b")
		s.runs["a"].ended <- nil
		after(time.Hour)
		s.runs["b"].ended <- nil
		after(0, "use b")
		after(time.Hour)
	})
	keeping(t, "a", func(s *site, after func(time.Duration, ...string)) {
		for range 12 {
			synctest.Wait()
			s.mu.Lock()
			s.events = nil
			s.mu.Unlock()
			s.runs["a"].ended <- doesNotBuild
			time.Sleep(mayPassMost + lookEvery)
		}
		after(0, told, "build a")
		s.change("b")
		after(lookEvery, "cancel a", "build b")
		s.runs["b"].ended <- doesNotBuild
		after(0, told)
		after(mayPassFirst+lookEvery, "build b")
	})
}

// What ends after the source is as it was before is not used.
func TestKeeperUsesWhatTheSourceIs(t *testing.T) {
	deployer := filepath.Join(t.TempDir(), "deployer")
	require.NoError(t, os.WriteFile(deployer, nil, 0o755))
	keeping(t, "a", func(s *site, after func(time.Duration, ...string)) {
		s.deployers["a"] = deployer
		after(0, "use a")
		s.change("b")
		after(lookEvery, "build b")
		s.fingerprint = "the same with other times"
		after(lookEvery)
		s.change("a")
		after(lookEvery, "cancel b", "use a")
		s.runs["b"].ended <- nil
		after(time.Hour)
		s.change("b")
		after(lookEvery, "build b")
		s.snapshotErr = &nix.SourceError{Source: "/source", Reason: "it is gone"}
		s.fingerprint = "gone"
		after(lookEvery, "cancel b", "problem: source /source: it is gone")
		after(time.Hour)
		s.snapshotErr = nil
		s.change("a")
		after(lookEvery, "use a")
		s.fingerprint = "the same with other times"
		after(lookEvery, "use a")
	})
}

func TestKeeperTriesAgain(t *testing.T) {
	syntax := failed(t, temporal.NewNonRetryableApplicationError("syntax error", wire.ErrorSourceFailed, nil))
	full := failed(t, errors.New("the disk is full"))
	cancelled := failed(t, temporal.NewCanceledError())
	keeping(t, "a", func(s *site, after func(time.Duration, ...string)) {
		after(0, "build a")
		s.runs["a"].ended <- full
		after(0, "problem: the disk is full")
		after(againAfter, "build a")
		s.runs["a"].ended <- cancelled
		after(0)
		after(againAfter, "build a")
		s.runs["a"].ended <- errors.New("temporal is away")
		after(0)
		after(againAfter, "build a")

		// Only a change of the source helps, once the problem is noted.
		s.noteErr = errors.New("the database is away")
		s.runs["a"].ended <- syntax
		after(0, "problem: syntax error")
		s.noteErr = nil
		after(againAfter, "build a")
		s.runs["a"].ended <- syntax
		after(0, "problem: syntax error")
		s.fingerprint = "the same with other times"
		after(time.Hour)
		s.change("b")
		after(lookEvery, "build b")
	})
}
