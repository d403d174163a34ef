package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
)

// trueWithin is how long a deployment may take, once all of slipway runs
// again, until its state is settled and true.
const trueWithin = 60 * time.Second

// subject is a deployment of a scenario and what slipway promised about it.
// Only its methods change the deployment.
type subject struct {
	*world
	id string

	mu sync.Mutex
	// asked counts the submits, each with a key of its own; open are those
	// without an answer.
	asked, open int
	// promised are the builds that were answered with 202.
	promised map[int64]deployment.Action
	// unsure: a supervisor was killed, maybe between the success of its
	// deployer and its knowing that.
	unsure bool
}

func (w *world) newSubject(t *testing.T, phase string) *subject {
	name := strings.ToLower(strings.TrimPrefix(t.Name(), "Test")) + "-" + phase
	return &subject{world: w, id: strings.NewReplacer("/", "-", "_", "-").Replace(name), promised: map[int64]deployment.Action{}}
}

// submit gives the deployment a configuration with the given members and waits
// for the answer, trying again with the same key.
func (s *subject) submit(ctx context.Context, members string) (int64, error) {
	s.mu.Lock()
	s.asked, s.open = s.asked+1, s.open+1
	s.mu.Unlock()
	submitted, err := s.api.Submit(ctx, s.id, configuration(members), uuid.NewString())
	if err != nil {
		return 0, fmt.Errorf("submit of %s: %w", s.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if before, ok := s.promised[submitted.Build]; ok {
		return 0, fmt.Errorf("submit of %s became build %d, which is another %s", s.id, submitted.Build, before)
	}
	s.promised[submitted.Build] = deployment.ActionDeploy
	return submitted.Build, nil
}

// destroy asks for a destroy and waits for the answer. It returns 0 when the
// deployment was idle.
func (s *subject) destroy(ctx context.Context) (int64, error) {
	var destroyed client.Destroyed
	err := repeat(ctx, func() (err error) {
		destroyed, err = s.api.Destroy(ctx, s.id)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("destroy of %s: %w", s.id, err)
	}
	if destroyed.Build != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.promised[destroyed.Build] = deployment.ActionDestroy
	}
	return destroyed.Build, nil
}

// repeat makes a call until the API answers it. The call must be safe to
// repeat.
func repeat(ctx context.Context, call func() error) error {
	for {
		err := call()
		var refused *client.Error
		var broken *client.ConnectionError
		if err == nil || !errors.As(err, &broken) && !(errors.As(err, &refused) && refused.Status == 503) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// must is for calls of a subject that have to succeed.
func must(t *testing.T) func(build int64, err error) int64 {
	t.Helper()
	return func(build int64, err error) int64 {
		t.Helper()
		require.NoError(t, err)
		return build
	}
}

// note is what the deployer of the controlled source wrote, line by line.
func (s *subject) note() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(s.Record, s.id))
	if os.IsNotExist(err) {
		return nil, nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), err
}

// noted waits until the deployer wrote a line that begins with text.
func (s *subject) noted(t *testing.T, text string) {
	t.Helper()
	await(t, trueWithin, func() error {
		lines, err := s.note()
		if count(lines, text) == 0 {
			return errors.Join(fmt.Errorf("%s: no deployer wrote %q: %q", s.id, text, lines), err)
		}
		return nil
	})
}

func count(lines []string, beginning string) int {
	n := 0
	for _, line := range lines {
		if line == beginning || strings.HasPrefix(line, beginning+" ") {
			n++
		}
	}
	return n
}

// openGate lets the deployer go on that waits at the gate, and all later ones.
func (s *subject) openGate(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.Record, s.id+".open"), nil, 0o644))
}

// hasDaemon waits until the deployer has started its daemon.
func (s *subject) hasDaemon(t *testing.T) {
	t.Helper()
	await(t, trueWithin, func() error {
		_, err := os.Stat(filepath.Join(s.Record, s.id+".daemon"))
		return err
	})
}

// gone waits until no process of the deployer is left.
func (s *subject) gone(t *testing.T, limit time.Duration) {
	t.Helper()
	await(t, limit, func() error {
		if pids := s.deployers(s.id); len(pids) > 0 {
			return fmt.Errorf("processes of the deployer of %s are left: %v", s.id, pids)
		}
		return nil
	})
}

// build reads one build.
func (s *subject) build(t *testing.T, number int64) deployment.Build {
	t.Helper()
	build, err := s.api.Build(t.Context(), deployment.Ref{Deployment: s.id, Build: number})
	require.NoError(t, err)
	return build
}

// has returns nil when a build has a status.
func (s *subject) has(ctx context.Context, number int64, want deployment.Status) error {
	build, err := s.api.Build(ctx, deployment.Ref{Deployment: s.id, Build: number})
	if err == nil && build.Status != want {
		err = fmt.Errorf("build %d of %s is %s (%s), want %s", number, s.id, build.Status, build.Reason, want)
	}
	return err
}

// ended asserts how a build ended.
func (s *subject) ended(t *testing.T, number int64, want deployment.Status) {
	t.Helper()
	require.NoError(t, s.has(t.Context(), number, want))
}

// settled returns nil when nothing goes on any more.
func (s *subject) settled(ctx context.Context) error {
	d, err := s.api.Get(ctx, s.id)
	if err != nil {
		return err
	}
	if !d.State.Settled() {
		return fmt.Errorf("%s is %s since %s: %s", s.id, d.State, d.Since, d.Reason)
	}
	if err := s.leftovers(s.id); err != nil {
		return fmt.Errorf("%s: %w", s.id, err)
	}
	return s.closed(ctx)
}

// closed returns nil when no workflow of the deployment is open.
func (s *subject) closed(ctx context.Context) error {
	open, err := s.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("SlipwayDeployment = '%s' AND ExecutionStatus = 'Running'", s.id),
	})
	if err != nil {
		return err
	}
	for _, workflow := range open.GetExecutions() {
		id := workflow.GetExecution().GetWorkflowId()
		// The list may be behind.
		description, err := s.temporal.DescribeWorkflowExecution(ctx, id, workflow.GetExecution().GetRunId())
		if err != nil {
			return err
		}
		if description.GetWorkflowExecutionInfo().GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
			var pending []string
			for _, activity := range description.GetPendingActivities() {
				pending = append(pending, fmt.Sprintf("%s (%s, attempt %d)", activity.GetActivityType().GetName(), activity.GetState(), activity.GetAttempt()))
			}
			return fmt.Errorf("the workflow %s is open, pending activities: %q", id, pending)
		}
	}
	return nil
}

// truth returns nil when rows, record and state of a settled deployment say the
// same, and nothing is lost.
func (s *subject) truth(ctx context.Context) error {
	lines, err := s.note()
	if err != nil {
		return err
	}
	d, err := s.api.Get(ctx, s.id)
	if err != nil {
		return err
	}
	builds, err := s.builds(ctx)
	if err != nil {
		return err
	}
	problems := s.promises(builds)
	for _, line := range lines {
		if strings.HasPrefix(line, "OVERLAP") {
			problems = append(problems, errors.New("two deployers ran at once"))
		}
	}
	failing, err := s.failing(ctx)
	if err != nil {
		return err
	}
	for _, build := range builds {
		if err := s.buildTruth(build, lines, failing[build.Number]); err != nil {
			problems = append(problems, fmt.Errorf("build %d (%s, %s, %s): %w", build.Number, build.Action, build.Status, build.Reason, err))
		}
	}
	state, live := standing(builds)
	if d.State != state {
		problems = append(problems, fmt.Errorf("its state is %s, its builds say %s", d.State, state))
	}
	if (d.Live == nil) != (live == 0) || d.Live != nil && *d.Live != live {
		problems = append(problems, fmt.Errorf("what is up is said to be %v, its builds say %d", d.Live, live))
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s: %w\nits record: %q", s.id, errors.Join(problems...), lines)
	}
	return nil
}

// builds reads the whole history, newest first.
func (s *subject) builds(ctx context.Context) (all []deployment.Build, err error) {
	var before int64
	for {
		page, err := s.api.Builds(ctx, s.id, 0, before)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		before = page[len(page)-1].Number
		if before == 1 {
			return all, nil
		}
	}
}

// promises compares the answers with the rows.
func (s *subject) promises(builds []deployment.Build) (problems []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := map[int64]deployment.Action{}
	deploys := 0
	for _, build := range builds {
		rows[build.Number] = build.Action
		if build.Action == deployment.ActionDeploy {
			deploys++
		}
	}
	for number, action := range s.promised {
		if rows[number] != action {
			problems = append(problems, fmt.Errorf("build %d was promised as a %s and is %q", number, action, rows[number]))
		}
	}
	if deploys > s.asked || deploys < s.asked-s.open {
		problems = append(problems, fmt.Errorf("%d submits, of which %d have no answer, became %d builds", s.asked, s.open, deploys))
	}
	return problems
}

// failing are the builds whose deployer ends by itself, and not with code 0.
func (s *subject) failing(ctx context.Context) (map[int64]bool, error) {
	failing := map[int64]bool{}
	rows, err := s.database.Query(ctx, `SELECT number FROM builds
		WHERE deployment_id = $1 AND configuration::jsonb #>> '{test,deploy}' = 'fail'`, s.id)
	if err != nil {
		return nil, err
	}
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	for _, number := range numbers {
		failing[number] = true
	}
	return failing, err
}

// buildTruth compares a build that has ended with the record of the deployers.
func (s *subject) buildTruth(build deployment.Build, lines []string, failing bool) error {
	starts := count(lines, fmt.Sprintf("start %s %d", build.Action, build.Number))
	ends := count(lines, fmt.Sprintf("end %s %d", build.Action, build.Number))
	if failing {
		if build.Status == deployment.StatusSucceeded {
			return errors.New("its deployer failed")
		}
		ends = 0
	}
	switch {
	case !build.Status.Ended():
		return errors.New("has not ended")
	case build.Action == deployment.ActionDeploy && starts > 1:
		return fmt.Errorf("its deployer was started %d times", starts)
	case build.Status == deployment.StatusSucceeded && starts > 0 && ends == 0:
		return errors.New("its deployer did not succeed")
	case build.Status == deployment.StatusSucceeded && starts == 0 && build.Action == deployment.ActionDeploy:
		return errors.New("its deployer never ran")
	case build.Status != deployment.StatusSucceeded && ends > 0 && !s.unsure:
		return errors.New("its deployer succeeded")
	case build.StartedAt == nil && starts > 0:
		return errors.New("its deployer ran before its turn")
	case build.Status != deployment.StatusSucceeded && build.Reason == "":
		return errors.New("it does not say why")
	}
	return nil
}

// standing is the state that follows from builds that have ended, and the
// number of the build that is up, 0 for none.
func standing(builds []deployment.Build) (state deployment.State, live int64) {
	state = deployment.StateIdle
	var last time.Time
	var newest int64
	for _, build := range builds {
		counts := build.Status == deployment.StatusSucceeded || build.Status == deployment.StatusFailed ||
			build.Status == deployment.StatusCancelled && build.StartedAt != nil
		if counts && build.FinishedAt.After(last) {
			last = *build.FinishedAt
			switch {
			case build.Status != deployment.StatusSucceeded:
				state = deployment.StateFailed
			case build.Action == deployment.ActionDeploy:
				state = deployment.StateActive
			default:
				state = deployment.StateIdle
			}
		}
		if build.Status == deployment.StatusSucceeded && build.Number > newest {
			newest, live = build.Number, 0
			if build.Action == deployment.ActionDeploy {
				live = build.Number
			}
		}
	}
	return state, live
}

// sound asserts what must hold of every deployment after every fault. up is
// when all of slipway ran again.
func sound(t *testing.T, up time.Time, subjects ...*subject) {
	t.Helper()
	for _, s := range subjects {
		said := ""
		await(t, time.Until(up.Add(trueWithin)), func() error {
			err := s.settled(t.Context())
			if err != nil && err.Error() != said {
				said = err.Error()
				t.Logf("after %s: %s", time.Since(up).Round(100*time.Millisecond), said)
			}
			return err
		})
		t.Logf("after %s: %s is settled", time.Since(up).Round(100*time.Millisecond), s.id)
	}
	for _, s := range subjects {
		require.NoError(t, s.truth(t.Context()))
		builds, err := s.api.Builds(t.Context(), s.id, 5, 0)
		require.NoError(t, err)
		for _, build := range builds {
			t.Logf("%s: build %d (%s) %s %s", s.id, build.Number, build.Action, build.Status, build.Reason)
		}
	}
}

// usable asserts that a submit and a destroy still work. It comes last, since
// it changes the deployments.
func usable(t *testing.T, subjects ...*subject) {
	t.Helper()
	together(t, subjects, func(s *subject) error {
		s.openGate(t)
		build, err := s.submit(t.Context(), "")
		if err != nil {
			return err
		}
		if err := s.becomes(t.Context(), deployment.StateActive, build); err != nil {
			return err
		}
		if _, err := s.destroy(t.Context()); err != nil {
			return err
		}
		if err := s.becomes(t.Context(), deployment.StateIdle, 0); err != nil {
			return err
		}
		return s.truth(t.Context())
	})
}

func (s *subject) becomes(ctx context.Context, state deployment.State, live int64) error {
	return poll(ctx, trueWithin, func() error {
		d, err := s.api.Get(ctx, s.id)
		switch {
		case err != nil:
			return err
		case d.State != state, live != 0 && (d.Live == nil || *d.Live != live):
			return fmt.Errorf("%s is %s (%s, up: %v), want %s", s.id, d.State, d.Reason, d.Live, state)
		}
		return nil
	})
}

// together does something with each subject at once.
func together(t *testing.T, subjects []*subject, do func(*subject) error) {
	t.Helper()
	errs := make(chan error, len(subjects))
	for _, s := range subjects {
		go func() { errs <- do(s) }()
	}
	for range subjects {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}
