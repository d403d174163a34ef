package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"slipway.dev/slipway/activities/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

const (
	// stewards is how many groups are looked at at once.
	stewards = 4
	// lookTime bounds one look at a group. It may revoke many leases.
	lookTime = 30 * time.Second
	// adoptEvery is how often leases are looked for whose workflow is gone, and
	// adoptAfter spares those whose workflow is just about to look.
	adoptEvery = 10 * time.Second
	adoptAfter = 5 * time.Second
)

// Runs starts the workflows that a steward finds to be needed.
type Runs interface {
	// Adopt starts the workflow of a lease where none runs.
	Adopt(ctx context.Context, ref wire.LeaseRef) error
	// Resume starts the workflow of an operation that a group is reserved for,
	// where none runs.
	Resume(ctx context.Context, namespace, group string, request wire.PlannedRequest) error
	// Plan asks for a planned operation of a group.
	Plan(ctx context.Context, namespace, group string, request wire.PlannedRequest) (wire.PlannedAnswer, error)
}

// Steward does what nobody asks for: it settles groups whose topology changed,
// or whose leases somebody revoked, starts the planned failovers that are
// annotated, and adopts leases and reservations without a workflow. Every process could do it,
// and it does no harm when two do; the leader does.
type Steward struct {
	Watch  *kube.Watch
	Leases *kube.Leases
	Runs   Runs
	// Plans: planned operations are slipway's, and not the operator's.
	Plans bool
	// Gone is told of a group name that no namespace has any more.
	Gone func(group string)
	Log  *zap.Logger
}

// Run looks after groups and leases until ctx ends.
func (s *Steward) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.Watch.Run(ctx) })
	if !s.Watch.Ready(ctx) {
		return
	}
	for range stewards {
		all.Go(func() { s.lookAll(ctx) })
	}
	all.Go(func() { s.adoptAll(ctx) })
}

func (s *Steward) lookAll(ctx context.Context) {
	for {
		name, settle, ok := s.Watch.Next()
		if !ok {
			return
		}
		err := s.look(ctx, name)
		if err != nil && ctx.Err() == nil && !errors.Is(err, kube.ErrNoGroup) {
			s.Log.Warn("look at a group", zap.String("group", name.Namespace+"/"+name.Name), zap.Error(err))
		}
		settle(err)
	}
}

// look settles a group as it is now, and starts the planned failover that it is
// annotated with.
func (s *Steward) look(ctx context.Context, name kube.GroupName) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	g, err := s.Leases.Cluster.Group(ctx, name.Namespace, name.Name)
	if errors.Is(err, kube.ErrNoGroup) && !s.Watch.Known(name.Name) {
		s.Gone(name.Name)
	}
	if err != nil {
		return err
	}
	if g, _, err = s.Leases.Settle(ctx, g); err != nil {
		return err
	}
	if !s.Plans {
		return nil
	}
	if waiting, ok := waits(g); ok {
		return s.Runs.Resume(ctx, g.Namespace, g.Name, waiting)
	}
	if !g.FailoverRequest.Present {
		return nil
	}
	request, err := lease.ParsePlannedFailover(g.FailoverRequest.Value)
	if err != nil {
		s.Log.Warn("the annotation of a planned failover cannot be understood", zap.String("annotation", lease.AnnotationPlannedFailover),
			zap.String("group", name.Namespace+"/"+name.Name), zap.Error(err))
		return nil
	}
	_, err = s.Runs.Plan(ctx, g.Namespace, g.Name, wire.PlannedRequest{Kind: lease.PlannedFailover, Target: request.Site})
	return err
}

// waits is the operation that a group is reserved for.
func waits(g lease.Group) (wire.PlannedRequest, bool) {
	if g.PlannedFailover.Phase == lease.PhaseDeferred {
		return wire.PlannedRequest{Kind: lease.PlannedFailover, Target: g.PlannedFailover.Target}, true
	}
	reservation, ok := g.Reservation()
	return wire.PlannedRequest{Kind: reservation.Kind}, ok
}

// adoptAll adopts every active lease once, and then those that lapsed without
// anybody writing it down: their workflow was ended by somebody, or sleeps for
// longer because a renewal was for less time than the one before. So it is
// written down here too.
func (s *Steward) adoptAll(ctx context.Context) {
	tick := time.NewTicker(adoptEvery)
	defer tick.Stop()
	overdue := func(r lease.Record) bool { return r.Lapsed(s.Leases.Now().Add(-adoptAfter)) }
	for chosen := (func(r lease.Record) bool { return r.State == lease.StateActive }); ; chosen = overdue {
		for ref, record := range s.Watch.Records() {
			if !chosen(record) {
				continue
			}
			if err := s.Runs.Adopt(ctx, ref); err != nil && ctx.Err() == nil {
				s.Log.Warn("adopt a lease", zap.String("workflowId", wire.LeaseID(ref)), zap.Error(err))
			}
			if !overdue(record) {
				continue
			}
			if _, err := s.Leases.Look(ctx, ref); err != nil && ctx.Err() == nil {
				s.Log.Warn("look at a lease that lapsed", zap.String("workflowId", wire.LeaseID(ref)), zap.Error(err))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
