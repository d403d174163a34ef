package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/stand"
)

// users is how many use each deployment of the soak at once.
const users = 2

// TestSoak lets callers and faults do what comes to their mind, in rounds. In
// a round a watcher looks at the rows all the time; after it everything is
// repaired, and what holds after every fault must hold of all deployments.
func TestSoak(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SOAK_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	world := enter(t)
	fmt.Printf("soak: SOAK_SEED=%d\n", seed)
	soaked := 10
	if soakTime == 0 {
		soaked = 4
	}
	var subjects []*subject
	for i := range soaked {
		subjects = append(subjects, world.newSubject(t, fmt.Sprint(i)))
	}
	together(t, subjects, func(s *subject) error {
		_, err := s.submit(t.Context(), "")
		return err
	})
	w := &watcher{world, map[deployment.Ref]row{}}
	until := time.Now().Add(soakTime)
	for round := uint64(0); round == 0 || time.Now().Before(until); round++ {
		over := time.Now().Add(long(20*time.Second, 8*time.Second))
		group, ctx := errgroup.WithContext(t.Context())
		for i := range soaked * users {
			c := &caller{subjects[i%soaked], rand.New(rand.NewPCG(seed, round<<8+uint64(i)))}
			group.Go(func() error { return c.live(ctx, over) })
		}
		b := &breaker{world, subjects, rand.New(rand.NewPCG(seed, round<<8+0xff))}
		group.Go(func() error { return b.rage(ctx, over) })
		watching, stop := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- w.watch(watching) }()
		err := group.Wait()
		up := time.Now()
		stop()
		require.NoError(t, errors.Join(err, <-watched), "round %d", round)
		sound(t, up, subjects...)
	}
	require.NoError(t, world.Stop(stand.Second))
	usable(t, subjects...)
}

// caller uses one deployment.
type caller struct {
	*subject
	*rand.Rand
}

// live makes calls until it is over, and gets an answer to each.
func (c *caller) live(ctx context.Context, over time.Time) error {
	for time.Now().Before(over) {
		if err := c.call(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.id, err)
		}
		if err := pause(ctx, upTo(c.Rand, 1500*time.Millisecond)); err != nil {
			return nil // another failed
		}
	}
	return nil
}

func (c *caller) call(ctx context.Context) error {
	switch c.IntN(10) {
	case 0, 1, 2, 3:
		_, err := c.submit(ctx, c.members())
		return err
	case 4, 5:
		_, err := c.destroy(ctx)
		return err
	case 6, 7:
		return c.cancelNewest(ctx)
	case 8:
		return repeat(ctx, func() error {
			_, err := c.api.Preview(ctx, c.id, configuration(c.members()))
			return err
		})
	default:
		return repeat(ctx, func() error {
			_, err := c.api.Get(ctx, c.id)
			return err
		})
	}
}

// members are of configurations with deployers that take up to 3 s.
func (c *caller) members() string {
	deploys := []string{"quick", "fail", "lines-2000", "slow-lines-50", "sleep-1", "sleep-3", "daemon"}
	destroys := []string{"quick", "sleep-1", "daemon"}
	members := fmt.Sprintf(`"deploy":%q,"destroy":%q`, deploys[c.IntN(len(deploys))], destroys[c.IntN(len(destroys))])
	if c.IntN(3) == 0 {
		members += fmt.Sprintf(`,"evaluate":"slow","note":%d`, c.Uint32())
	}
	return members
}

func (c *caller) cancelNewest(ctx context.Context) error {
	err := repeat(ctx, func() error {
		d, err := c.api.Get(ctx, c.id)
		if err != nil || d.LatestBuild == nil {
			return err
		}
		_, err = c.api.Cancel(ctx, deployment.Ref{Deployment: c.id, Build: d.LatestBuild.Number})
		return err
	})
	var refused *client.Error
	if errors.As(err, &refused) && refused.Code == "build_ended" {
		return nil
	}
	return err
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// breaker breaks things and repairs them.
type breaker struct {
	*world
	subjects []*subject
	*rand.Rand
}

func (b *breaker) rage(ctx context.Context, over time.Time) error {
	for time.Now().Before(over) && pause(ctx, upTo(b.Rand, 3*time.Second)) == nil {
		what, err := b.fault(ctx)
		fmt.Printf("soak: %s %s\n", time.Now().Format(time.TimeOnly), what)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return b.Ready()
}

// order is the one in which pieces start.
var order = []string{stand.Postgres, stand.Temporal, stand.Worker, stand.Second, stand.API}

func (b *breaker) fault(ctx context.Context) (what string, err error) {
	away := upTo(b.Rand, 3*time.Second)
	if b.IntN(5) == 0 {
		away = upTo(b.Rand, long(25*time.Second, 3*time.Second))
	}
	switch b.IntN(10) {
	case 0, 1, 2: // some pieces at once, at times all
		var broken []string
		for _, piece := range order {
			if b.Process(piece) != nil && b.IntN(2) == 0 {
				broken = append(broken, piece)
			}
		}
		return fmt.Sprintf("kill %v for %s", broken, away), b.outage(ctx, broken, away, b.Kill)
	case 3, 4: // the worker, most of what happens is there
		return fmt.Sprintf("kill worker for %s", away), b.outage(ctx, []string{stand.Worker}, away, b.Kill)
	case 5: // an update of slipway
		return fmt.Sprintf("stop worker and API for %s", away),
			b.outage(ctx, []string{stand.Worker, stand.API}, away, b.Stop)
	case 6:
		piece := []string{stand.Worker, stand.Temporal}[b.IntN(2)]
		if err := b.Signal(piece, syscall.SIGSTOP); err != nil {
			return "freeze " + piece, err
		}
		_ = pause(ctx, away)
		return fmt.Sprintf("freeze %s for %s", piece, away), b.Signal(piece, syscall.SIGCONT)
	case 7: // another worker comes or goes
		if b.Process(stand.Second) != nil {
			return "kill the second worker", b.Kill(stand.Second)
		}
		return "start a second worker", b.Start(stand.Second)
	case 8:
		return b.killSupervisor()
	default:
		return b.endWorkflow(ctx)
	}
}

func (b *breaker) outage(ctx context.Context, pieces []string, away time.Duration, end func(string) error) error {
	for _, piece := range pieces {
		if err := end(piece); err != nil {
			return err
		}
	}
	_ = pause(ctx, away)
	for _, piece := range pieces {
		if err := b.Start(piece); err != nil {
			return err
		}
	}
	return nil
}

// killSupervisor kills a supervisor. Whether its deployer had succeeded is not
// known then.
func (b *breaker) killSupervisor() (what string, err error) {
	for _, i := range b.Perm(len(b.subjects)) {
		s := b.subjects[i]
		for _, pid := range b.supervisors(s.id) {
			s.mu.Lock()
			s.unsure = true
			s.mu.Unlock()
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
			return "kill the supervisor of " + s.id, nil
		}
	}
	return "no supervisor to kill", nil
}

// endWorkflow is an operator who terminates or cancels a workflow.
func (b *breaker) endWorkflow(ctx context.Context) (what string, err error) {
	open, err := b.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Query: "ExecutionStatus = 'Running' AND (WorkflowType = 'Submit' OR WorkflowType = 'Destroy')",
	})
	if err != nil || len(open.GetExecutions()) == 0 {
		return "no workflow to end", err
	}
	execution := open.GetExecutions()[b.IntN(len(open.GetExecutions()))].GetExecution()
	// The list may be behind: a workflow that has ended is no error.
	if b.IntN(2) == 0 {
		_ = b.temporal.CancelWorkflow(ctx, execution.GetWorkflowId(), "")
		return "cancel " + execution.GetWorkflowId(), nil
	}
	_ = b.temporal.TerminateWorkflow(ctx, execution.GetWorkflowId(), "", "soak")
	return "terminate " + execution.GetWorkflowId(), nil
}

// watcher looks at the rows and the record while things change.
type watcher struct {
	*world
	before map[deployment.Ref]row
}

type row struct {
	status   deployment.Status
	reason   string
	finished time.Time
}

func (w *watcher) watch(ctx context.Context) error {
	for pause(ctx, 200*time.Millisecond) == nil {
		if err := w.look(ctx); err != nil {
			return err
		}
	}
	return nil
}

// look compares the rows with those before. A database that is away is no
// error.
func (w *watcher) look(ctx context.Context) error {
	rows, err := w.database.Query(ctx, `SELECT deployment_id, number, status, reason, coalesce(finished_at, 'epoch') FROM builds
		WHERE deployment_id LIKE 'soak-%' ORDER BY deployment_id, number`)
	if err != nil {
		return nil
	}
	defer rows.Close()
	running := map[string]int64{}
	now := map[deployment.Ref]row{}
	for rows.Next() {
		var ref deployment.Ref
		var r row
		if err := rows.Scan(&ref.Deployment, &ref.Build, &r.status, &r.reason, &r.finished); err != nil {
			return nil
		}
		now[ref] = r
		if r.status == deployment.StatusRunning {
			if other := running[ref.Deployment]; other != 0 {
				return fmt.Errorf("%s and build %d run at once", ref, other)
			}
			running[ref.Deployment] = ref.Build
		}
		if before, ok := w.before[ref]; ok && before.status.Ended() && before != r {
			return fmt.Errorf("%s has ended (%+v) and changed (%+v)", ref, before, r)
		}
		if ref.Build > 1 {
			if _, ok := now[deployment.Ref{Deployment: ref.Deployment, Build: ref.Build - 1}]; !ok {
				return fmt.Errorf("there is %s, and no build before it", ref)
			}
		}
	}
	if rows.Err() != nil {
		return nil
	}
	for ref := range w.before {
		if _, ok := now[ref]; !ok {
			return fmt.Errorf("%s is lost", ref)
		}
	}
	w.before = now
	return w.overlaps()
}

// overlaps is an error when two deployers of a deployment of the soak ran at
// once.
func (w *watcher) overlaps() error {
	records, err := filepath.Glob(filepath.Join(w.Record, "soak-*"))
	if err != nil {
		return err
	}
	for _, record := range records {
		text, err := os.ReadFile(record)
		if err == nil && strings.Contains(string(text), "OVERLAP") {
			return fmt.Errorf("two deployers ran at once: %s: %s", filepath.Base(record), text)
		}
	}
	return nil
}
