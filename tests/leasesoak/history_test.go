package leasesoak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/coordination"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

const (
	// callers is how many use the API at once, in groups of historyGroups.
	callers       = 20
	historyGroups = 4
	// operations is how many at a time a group has that callers know.
	operations = 4
)

// TestHistory has callers and operators do at random what they like, until
// there are enough calls, while the leader or the other replica is frozen at
// times, and judges what they were told.
func TestHistory(t *testing.T) {
	var names []string
	for i := range historyGroups {
		names = append(names, fmt.Sprintf("orders-%d", i))
	}
	s := newScene(t, names...)
	s.leader(t)
	var left atomic.Int64
	left.Store(int64(long(100_000, 2_000)))
	begin := time.Now()

	running, stop := context.WithCancel(t.Context())
	defer stop()
	working, ctx := errgroup.WithContext(running)
	var groups []*group
	for i, name := range names {
		g := &group{scene: s, name: name}
		groups = append(groups, g)
		o := &operator{g, random(uint64(1000 + i)), coordination.NewTemporal(s.temporal), coordination.NewPlanner(s.temporal)}
		working.Go(func() error { return o.work(ctx, t, &left) })
	}
	for i := range callers {
		c := &caller{groups[i%historyGroups], random(uint64(i))}
		working.Go(func() error {
			for ctx.Err() == nil && left.Add(-1) >= 0 {
				c.call(ctx)
			}
			return nil
		})
	}
	frozen := make(chan error, 1)
	go func() { frozen <- s.freeze(ctx, random(2000), &left) }()
	require.NoError(t, working.Wait())
	stop()
	require.NoError(t, <-frozen)
	t.Logf("took %s", time.Since(begin).Round(time.Second))
	s.check(t)
	granted := 0
	for _, c := range s.Calls() {
		if c.What == Grant && c.Outcome == OK {
			granted++
		}
	}
	require.Greater(t, granted, long(1000, 20), "little was granted, so little was tested")
}

// freeze freezes the leader or the other replica at times, at times for longer
// than a term of leader election.
func (s *scene) freeze(ctx context.Context, r *rand.Rand, left *atomic.Int64) error {
	for turn := 0; ; turn++ {
		pause(ctx, 3*time.Second+upTo(r, 3*time.Second))
		if ctx.Err() != nil || left.Load() < 0 {
			return nil
		}
		replica := replicas[s.leads.Load()] // as the callers believe
		if r.IntN(3) == 0 {
			replica = replicas[r.IntN(len(replicas))]
		}
		frozen := upTo(r, 2*time.Second)
		if turn%5 == 1 {
			frozen = 9*time.Second + upTo(r, 2*time.Second)
		}
		err := s.Signal(replica, syscall.SIGSTOP)
		pause(ctx, frozen)
		if err := errors.Join(err, s.Signal(replica, syscall.SIGCONT)); err != nil {
			return err
		}
		fmt.Printf("history: %s was frozen for %s\n", replica, frozen.Round(time.Millisecond))
	}
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// group is a group of a history, and what its callers know.
type group struct {
	*scene
	name string

	mu    sync.Mutex
	next  int
	known []*operation
	// holder is the migration that was confirmed last.
	holder *operation
}

// operation is one whose leases callers share, with all tokens that it had.
type operation struct {
	name   string
	tokens map[lease.Kind][]string
	over   bool // nobody tries it again
}

// pick chooses an operation that callers know, or a new one where they know too
// few, because some are over.
func (g *group) pick(r *rand.Rand) (o *operation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = slices.DeleteFunc(g.known, func(o *operation) bool { return o.over })
	for len(g.known) < operations {
		g.next++
		g.known = append(g.known, &operation{name: fmt.Sprintf("migrate/%d", g.next), tokens: map[lease.Kind][]string{}})
	}
	o = g.known[r.IntN(operations)]
	if g.holder != nil && !g.holder.over && r.IntN(3) > 0 {
		o = g.holder // or nearly all calls would be refused
	}
	return o
}

// token is one to present: mostly the newest, at times any that there ever was.
func (g *group) token(r *rand.Rand, o *operation, kind lease.Kind) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	tokens := o.tokens[kind]
	switch n := len(tokens); {
	case n == 0:
		return "0123"
	case r.IntN(8) == 0:
		return tokens[r.IntN(n)]
	default:
		return tokens[n-1]
	}
}

// learn keeps what a call told, for the callers after it.
func (g *group) learn(r *rand.Rand, o *operation, c Call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.confirms() && c.Kind == lease.KindMigration {
		g.holder = o
	}
	switch {
	case c.What == Grant && c.Outcome == OK:
		o.tokens[c.Kind] = append(o.tokens[c.Kind], c.Token)
	case c.Outcome == Revoked && r.IntN(10) == 0: // until then it is tried again
		o.over = true
	}
}

// caller is somebody who deploys.
type caller struct {
	*group
	*rand.Rand
}

// call makes a call that somebody could make. A hold needs the migration of its
// operation, so it has the same name.
func (c *caller) call(ctx context.Context) {
	o := c.pick(c.Rand)
	call := Call{
		Group: c.name, Kind: lease.KindMigration, Operation: o.name,
		TTL: lease.MinTTL + time.Duration(c.IntN(2))*time.Second,
	}
	if c.IntN(2) == 0 {
		call.Kind = lease.KindHold
	}
	switch n := c.IntN(20); {
	case n < 8:
		call.What = Grant
	case n < 17:
		call.What, call.Token = Renew, c.token(c.Rand, o, call.Kind)
	case n < 19:
		call.What, call.Token = Release, c.token(c.Rand, o, call.Kind)
	default: // look, and think
		c.ask(ctx, http.MethodGet, c.name, nil, nil)
		pause(ctx, upTo(c.Rand, 200*time.Millisecond))
		return
	}
	made, _ := c.do(ctx, call)
	c.learn(c.Rand, o, made)
	if made.Outcome == Unknown {
		pause(ctx, upTo(c.Rand, 300*time.Millisecond))
	}
}

// operator is who looks after a group: a person, and the operator in the
// cluster.
type operator struct {
	*group
	*rand.Rand
	leases coordination.Temporal
	plans  coordination.Planner
}

func (o *operator) work(ctx context.Context, t *testing.T, left *atomic.Int64) error {
	for {
		pause(ctx, 500*time.Millisecond+upTo(o.Rand, 2*time.Second))
		if ctx.Err() != nil || left.Add(-1) < 0 {
			return nil
		}
		c := Call{What: RevokeAll, Group: o.name, Outcome: OK, Start: time.Now()}
		switch o.IntN(5) {
		case 0:
			o.kube.ChangeGroup(t, o.namespace, o.name, func(g *unstructured.Unstructured) {
				annotations := g.GetAnnotations()
				if annotations == nil {
					annotations = map[string]string{}
				}
				annotations[lease.AnnotationRevoke] = "history"
				g.SetAnnotations(annotations)
			})
		case 1:
			o.kube.ChangeGroup(t, o.namespace, o.name, o.failOver(o.IntN(2) == 0))
		case 2:
			c = o.revokeOne(ctx)
		default:
			o.plan(ctx, t)
			continue
		}
		c.End = time.Now()
		o.Add(c)
	}
}

// failOver makes the other site the active one. Where the operator does not
// raise the generation, slipway does.
func (o *operator) failOver(raise bool) func(*unstructured.Unstructured) {
	return func(g *unstructured.Unstructured) {
		status := g.Object["status"].(map[string]any)
		to := map[any]string{"iad": "pdx", "pdx": "iad"}[status["activeSite"]]
		status["activeSite"] = to
		if raise {
			status["topologyGeneration"] = status["topologyGeneration"].(int64) + 1
		}
		for _, one := range status["sites"].([]any) {
			site := one.(map[string]any)
			site["state"], site["replicating"] = "read-only", true
			if site["name"] == to {
				site["state"], site["replicating"] = "writable", false
			}
		}
	}
}

// revokeOne has the workflow of a lease revoke it, and waits for its end.
func (o *operator) revokeOne(ctx context.Context) Call {
	picked := o.pick(o.Rand)
	c := Call{What: RevokeOne, Group: o.name, Kind: lease.KindMigration, Operation: picked.name, Outcome: Unknown, Start: time.Now()}
	if o.IntN(2) == 0 {
		c.Kind = lease.KindHold
	}
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	ref := wire.LeaseRef{Namespace: o.namespace, Group: o.name, Kind: c.Kind, OperationID: c.Operation}
	if o.leases.Revoke(ctx, ref, lease.ReasonOperatorRevoked) != nil {
		return c
	}
	var result wire.LeaseResult
	err := o.temporal.GetWorkflow(ctx, wire.LeaseID(ref), "").Get(ctx, &result)
	if err == nil && result.Outcome == string(lease.StateRevoked) {
		c.Outcome = OK
	}
	return c
}

// plan asks for a planned failover, waits for the holds, and is the operator
// that carries it out, without moving anything. Where it takes too long the
// request is withdrawn.
func (o *operator) plan(ctx context.Context, t *testing.T) {
	request := wire.PlannedRequest{Kind: lease.PlannedFailover, Target: "pdx"}
	if o.IntN(2) == 0 {
		request.Target = "iad"
	}
	answer := wire.PlannedAnswer{Status: wire.PlannedDeferred}
	for until := time.Now().Add(2 * patience); answer.Status == wire.PlannedDeferred && time.Now().Before(until); {
		asking, cancel := context.WithTimeout(ctx, patience)
		if asked, err := o.plans.Request(asking, o.namespace, o.name, request); err == nil {
			answer = asked
		}
		cancel()
		pause(ctx, 200*time.Millisecond)
	}
	if answer.Status == wire.PlannedDeferred {
		_ = o.temporal.CancelWorkflow(ctx, wire.PlannedID(o.namespace, o.name), "") // there may be none
	}
	admitted := time.Now()
	pause(ctx, upTo(o.Rand, time.Second))
	// A failover that was withdrawn too late is admitted, and ends too.
	ended := time.Now()
	carried := false
	o.kube.ChangeGroup(t, o.namespace, o.name, func(g *unstructured.Unstructured) {
		phase, _, _ := unstructured.NestedString(g.Object, "status", "plannedFailover", "phase")
		if carried = phase == lease.PhasePending; carried {
			_ = unstructured.SetNestedField(g.Object, lease.PhaseSucceeded, "status", "plannedFailover", "phase")
		}
	})
	if answer.Status == wire.PlannedAdmitted && carried {
		o.Add(Call{What: Planned, Group: o.name, Start: admitted, End: ended, Outcome: OK})
	}
}
