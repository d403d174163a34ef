package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/workflows"
)

var (
	failover = wire.PlannedRequest{Kind: lease.PlannedFailover, Target: "pdx"}
	update   = wire.PlannedRequest{Kind: lease.OrderedUpdate}
)

// group stands in for the group of a planned operation, and tells its story.
type group struct {
	t   *testing.T
	env *testsuite.TestWorkflowEnvironment

	mu    sync.Mutex
	lines []string
	// What the steps say: the first is used up, the last one stays.
	reserves, looks, withdraws []wire.PlannedState
	away                       int       // tries for which the API server is away
	reported                   int       // the look at which the operator reports; 0: never
	clears                     int       // looks whether the operator reports
	start                      time.Time // of the run
}

type plannedSteps interface {
	ReservePlanned(context.Context, kube.OperationInput) (wire.PlannedState, error)
	LookAtPlanned(context.Context, kube.OperationInput) (wire.PlannedState, error)
	WithdrawPlanned(context.Context, kube.WithdrawInput) (wire.PlannedState, error)
	ClearPlanned(context.Context, kube.ClearInput) (wire.PlannedState, error)
}

var _, _ plannedSteps = (*kube.Activities)(nil), (*group)(nil)

func newGroup(t *testing.T) *group {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	g := &group{t: t, env: suite.NewTestWorkflowEnvironment()}
	g.env.RegisterWorkflowWithOptions(workflows.PlannedOperation, workflow.RegisterOptions{Name: wire.WorkflowPlanned})
	g.env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute})
	g.env.SetTestTimeout(30 * time.Second)
	g.env.RegisterActivity(g)
	g.start = g.env.Now()
	return g
}

func (g *group) tell(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lines = append(g.lines, fmt.Sprintf(format, args...))
}

// step tells of a step, and when it came, in the time of the workflow.
func (g *group) step(ctx context.Context, name string, in kube.OperationInput, local bool) error {
	if activity.GetInfo(ctx).IsLocalActivity != local {
		g.t.Errorf("%s: local is %v", name, !local)
	}
	if !local && activity.GetInfo(ctx).TaskQueue != wire.QueueLease {
		g.t.Errorf("%s runs on %s", name, activity.GetInfo(ctx).TaskQueue)
	}
	if in.Namespace != "shop" || in.Group != "orders" {
		g.t.Errorf("%s of %s/%s", name, in.Namespace, in.Group)
	}
	g.tell("%s %s", name, in.Kind)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away > 0 {
		g.away--
		return errors.New("connection refused")
	}
	return nil
}

// next is what a step says now.
func (g *group) next(states *[]wire.PlannedState) wire.PlannedState {
	g.mu.Lock()
	defer g.mu.Unlock()
	state := (*states)[0]
	if len(*states) > 1 {
		*states = (*states)[1:]
	}
	return state
}

func (g *group) ReservePlanned(ctx context.Context, in kube.OperationInput) (wire.PlannedState, error) {
	if err := g.step(ctx, "reserve", in, true); err != nil {
		return wire.PlannedState{}, err
	}
	return g.next(&g.reserves), nil
}

func (g *group) LookAtPlanned(ctx context.Context, in kube.OperationInput) (wire.PlannedState, error) {
	if err := g.step(ctx, "look", in, false); err != nil {
		return wire.PlannedState{}, err
	}
	return g.next(&g.looks), nil
}

func (g *group) WithdrawPlanned(ctx context.Context, in kube.WithdrawInput) (wire.PlannedState, error) {
	if err := g.step(ctx, "withdraw "+in.Reason+keeps(in.KeepRequest), in.OperationInput, false); err != nil {
		return wire.PlannedState{}, err
	}
	return g.next(&g.withdraws), nil
}

func keeps(request bool) string {
	if request {
		return ", keep the request,"
	}
	return ""
}

func (g *group) ClearPlanned(ctx context.Context, in kube.ClearInput) (wire.PlannedState, error) {
	if err := g.step(ctx, "clear", in.OperationInput, false); err != nil {
		return wire.PlannedState{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clears++
	switch {
	case g.reported > 0 && g.clears >= g.reported:
		return wire.PlannedState{}, nil
	case in.Overdue:
		return wire.PlannedState{Reason: kube.ReasonNotReported}, nil
	}
	return wire.PlannedState{Phase: lease.PhasePending}, nil
}

// said is the type and the text of an error of an update.
func said(err error) string {
	application, ok := errors.AsType[*temporal.ApplicationError](err)
	if !ok {
		return err.Error()
	}
	return application.Type() + ": " + application.Message()
}

// ask asks after a time.
func (g *group) ask(after time.Duration, request wire.PlannedRequest) {
	g.env.RegisterDelayedCallback(func() {
		g.env.UpdateWorkflow(wire.UpdateRequest, fmt.Sprint(after, request), &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { g.tell("rejected: %s", said(err)) },
			OnComplete: func(answer any, err error) {
				if err != nil {
					g.tell("unanswered: %s", said(err))
					return
				}
				a := answer.(wire.PlannedAnswer)
				line := a.Status
				if a.Reason != "" {
					line += " " + a.Reason
				}
				if !a.RetryAfter.IsZero() {
					line += a.RetryAfter.Format(" until 05s")
				}
				g.tell("%s", line)
			},
		}, request)
	}, after)
}

func (g *group) run(in wire.PlannedInput) {
	in.Namespace, in.Group = "shop", "orders"
	g.env.ExecuteWorkflow(wire.WorkflowPlanned, in)
	require.True(g.t, g.env.IsWorkflowCompleted())
	var result wire.PlannedResult
	var again *workflow.ContinueAsNewError
	err := g.env.GetWorkflowError()
	took := g.env.Now().Sub(g.start).Round(time.Second)
	switch {
	case errors.As(err, &again):
		g.tell("goes on in a new run")
	case temporal.IsCanceledError(err):
		g.tell("is cancelled")
	case err != nil:
		g.tell("fails: %v", err)
	default:
		require.NoError(g.t, g.env.GetWorkflowResult(&result))
		g.tell("ends after %s: %s", took, strings.TrimSpace(result.Outcome+" "+result.Reason))
	}
}

func (g *group) story() string {
	w := &world{lines: g.lines}
	return strings.Join(w.story(), "\n")
}

// held is a group with a hold that lapses at a second of some minute.
func held(second int, again time.Duration) wire.PlannedState {
	return wire.PlannedState{
		Phase: lease.PhaseDeferred, Reason: lease.ReasonDeploymentHold, Again: again,
		RetryAfter: time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC), Message: "failover hold of operation deploy-42 (instance orders-app)",
	}
}

func states(all ...wire.PlannedState) []wire.PlannedState { return all }

var (
	pending  = wire.PlannedState{Phase: lease.PhasePending}
	settling = wire.PlannedState{Phase: lease.PhaseDeferred, Reason: lease.ReasonTopologyPending, Again: time.Second}
	refusal  = wire.PlannedState{Phase: lease.PhaseFailed, Reason: lease.ReasonTargetNotReplicating}
	gone     = wire.PlannedState{Reason: kube.ReasonWithdrawn}
)

func TestPlannedOperation(t *testing.T) {
	for _, story := range []struct {
		name    string
		arrange func(g *group)
		want    []string
	}{{
		name:    "nobody asks",
		arrange: func(*group) {},
		want:    lines("ends after 1m0s: no request"),
	}, {
		name: "a failover without a hold",
		arrange: func(g *group) {
			g.ask(0, failover)
			g.reserves = states(pending)
		},
		want: lines("reserve PlannedFailover", "admitted", "ends after 0s: admitted"),
	}, {
		name: "a failover behind a hold that is renewed twice, and then lapses",
		arrange: func(g *group) {
			g.ask(0, failover)
			g.reserves = states(held(5, 5*time.Second))
			g.looks = states(held(10, 5*time.Second), held(12, 2*time.Second), pending)
			g.ask(6*time.Second, failover) // the same again
		},
		want: lines("reserve PlannedFailover", "deferred DeploymentHold until 05s", "look PlannedFailover",
			"deferred DeploymentHold until 10s", "look PlannedFailover ×2", "ends after 12s: admitted"),
	}, {
		name: "what settles is waited for",
		arrange: func(g *group) {
			g.ask(0, failover)
			g.reserves, g.looks = states(settling), states(settling, pending)
		},
		want: lines("reserve PlannedFailover", "deferred TopologyPersistencePending", "look PlannedFailover ×2", "ends after 2s: admitted"),
	}, {
		name: "refused at once",
		arrange: func(g *group) {
			g.ask(0, failover)
			g.reserves = states(refusal)
		},
		want: lines("reserve PlannedFailover", "refused TargetNotReplicating", "ends after 0s: refused TargetNotReplicating"),
	}, {
		name: "refused after the hold",
		arrange: func(g *group) {
			g.ask(0, failover)
			g.reserves, g.looks = states(held(3, 3*time.Second)), states(refusal)
		},
		want: lines("reserve PlannedFailover", "deferred DeploymentHold until 03s", "look PlannedFailover",
			"ends after 3s: refused TargetNotReplicating"),
	}, {
		name: "somebody takes the reservation away",
		arrange: func(g *group) {
			g.ask(0, failover)
			g.reserves, g.looks = states(held(3, 3*time.Second)), states(gone)
		},
		want: lines("reserve PlannedFailover", "deferred DeploymentHold until 03s", "look PlannedFailover", "ends after 3s: refused Withdrawn"),
	}, {
		name: "another one meanwhile",
		arrange: func(g *group) {
			g.ask(0, failover)
			g.ask(time.Second, update)
			g.ask(2*time.Second, wire.PlannedRequest{Kind: lease.PlannedFailover, Target: "fra"})
			g.reserves, g.looks = states(held(3, 3*time.Second)), states(pending)
		},
		want: lines("reserve PlannedFailover", "deferred DeploymentHold until 03s", "refused ConcurrentOperation ×2",
			"look PlannedFailover", "ends after 3s: admitted"),
	}, {
		name: "requests that mean nothing are not the first one",
		arrange: func(g *group) {
			g.ask(0, wire.PlannedRequest{Kind: "Other"})
			g.ask(time.Second, wire.PlannedRequest{Kind: lease.PlannedFailover})
			g.ask(2*time.Second, wire.PlannedRequest{Kind: lease.RestoreInPlace, Target: "a\nb"})
			g.ask(3*time.Second, failover)
			g.reserves = states(pending)
		},
		want: lines("rejected: InvalidOperation: kind is none of PlannedFailover, OrderedUpdate and RestoreInPlace", "rejected: InvalidOperation: target is no name of a site",
			"rejected: InvalidOperation: target is no text of up to 128 bytes without control characters",
			"reserve PlannedFailover", "admitted", "ends after 3s: admitted"),
	}, {
		name: "the API server is away for a moment at every step",
		arrange: func(g *group) {
			g.ask(0, failover)
			g.away = 2
			g.reserves, g.looks = states(held(3, 3*time.Second)), states(pending)
			g.env.RegisterDelayedCallback(func() { g.mu.Lock(); g.away = 3; g.mu.Unlock() }, 2*time.Second)
		},
		want: lines("reserve PlannedFailover ×3", "deferred DeploymentHold until 03s", "look PlannedFailover ×4", "ends after 5s: admitted"),
	}, {
		name: "the API server is away, so that nobody knows whether it was reserved",
		arrange: func(g *group) {
			g.ask(0, failover)
			g.away = 6
			g.withdraws = states(gone)
		},
		want: lines("reserve PlannedFailover ×5", "unanswered: Unavailable: connection refused",
			"withdraw Unavailable, keep the request, PlannedFailover ×2", "ends after 2s: refused Withdrawn"),
	}, {
		name: "an update that the operator reports",
		arrange: func(g *group) {
			g.ask(0, update)
			g.reserves, g.looks, g.reported = states(held(3, 3*time.Second)), states(pending), 3
			g.ask(4*time.Second, update)
			g.ask(5*time.Second, failover)
		},
		want: lines("reserve OrderedUpdate", "deferred DeploymentHold until 03s", "look OrderedUpdate", "clear OrderedUpdate",
			"admitted", "refused ConcurrentOperation", "clear OrderedUpdate ×2", "ends after 13s: admitted"),
	}, {
		name: "an update that the operator does not report",
		arrange: func(g *group) {
			g.ask(0, update)
			g.reserves = states(pending)
		},
		want: lines("reserve OrderedUpdate", "admitted", "clear OrderedUpdate ×13", "ends after 1m0s: admitted NotReported"),
	}, {
		name: "cancelled before anybody asks",
		arrange: func(g *group) {
			g.env.RegisterDelayedCallback(g.env.CancelWorkflow, time.Second)
		},
		want: lines("is cancelled"),
	}, {
		name: "cancelled while it waits",
		arrange: func(g *group) {
			g.ask(0, failover)
			g.env.RegisterDelayedCallback(g.env.CancelWorkflow, time.Second)
			g.reserves = states(held(3, 3*time.Second))
			g.withdraws = states(wire.PlannedState{Phase: lease.PhaseFailed, Reason: "Cancelled"})
		},
		want: lines("reserve PlannedFailover", "deferred DeploymentHold until 03s", "withdraw Cancelled PlannedFailover", "is cancelled"),
	}, {
		name: "cancelled too late",
		arrange: func(g *group) {
			g.ask(0, update)
			g.env.RegisterDelayedCallback(g.env.CancelWorkflow, time.Second)
			g.reserves, g.withdraws, g.reported = states(held(3, 3*time.Second)), states(pending), 2
		},
		want: lines("reserve OrderedUpdate", "deferred DeploymentHold until 03s", "withdraw Cancelled OrderedUpdate",
			"clear OrderedUpdate ×2", "ends after 6s: admitted"),
	}, {
		name: "it waits for long",
		arrange: func(g *group) {
			g.ask(0, failover)
			g.reserves, g.looks = states(held(5, 5*time.Second)), states(held(5, 5*time.Second))
		},
		want: lines("reserve PlannedFailover", "deferred DeploymentHold until 05s", "look PlannedFailover ×500", "goes on in a new run"),
	}} {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			story.arrange(g)
			g.run(wire.PlannedInput{})
			require.Equal(t, strings.Join(story.want, "\n"), g.story())
		})
	}
}

// The run that goes on looks at once, and needs no request.
func TestPlannedOperationGoesOn(t *testing.T) {
	g := newGroup(t)
	g.looks = states(held(5, 5*time.Second), pending)
	g.ask(time.Second, failover)
	g.run(wire.PlannedInput{Adopt: &failover})
	require.Equal(t, strings.Join(lines("look PlannedFailover", "deferred DeploymentHold until 05s",
		"look PlannedFailover", "ends after 5s: admitted"), "\n"), g.story())
}
