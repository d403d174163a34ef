package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// lookEvery is how often a planned operation that waits is looked at, at least:
// a hold may be released, or a renewal may have moved its end.
const lookEvery = 5 * time.Second

// Reasons of a planned operation, beside those of package lease.
const (
	// ReasonGroupNotFound: there is no such group.
	ReasonGroupNotFound = "GroupNotFound"
	// ReasonWithdrawn: somebody took the reservation away.
	ReasonWithdrawn = "Withdrawn"
	// ReasonNotReported: the operator did not report what was handed over.
	ReasonNotReported = "NotReported"
)

// ReservePlanned reserves a group for a planned operation (Deferred), so that
// no lease is granted any more, and looks at it. What it reserved before, or
// what a workflow that was terminated left, it takes for its own.
func (l *Leases) ReservePlanned(ctx context.Context, in OperationInput) (wire.PlannedState, error) {
	for range tries {
		g, err := l.Cluster.Group(ctx, in.Namespace, in.Group)
		if errors.Is(err, ErrNoGroup) {
			return refused(ReasonGroupNotFound, "there is no such group"), nil
		}
		if err != nil {
			return wire.PlannedState{}, err
		}
		if g, _, err = l.Settle(ctx, g); err != nil {
			return wire.PlannedState{}, err
		}
		if standing(g, in.PlannedRequest) {
			return l.LookAtPlanned(ctx, in)
		}
		if handedOver(g, in.PlannedRequest) { // who asked is told once more
			return found(g, in.PlannedRequest), nil
		}
		if reason := inTheWay(g, in.PlannedRequest); reason != "" {
			state := refused(reason, against(in.PlannedRequest, reason))
			// A request by annotation is answered there. While another operation
			// has the group it stays, and has its turn later.
			if reason == lease.ReasonConcurrentOperation || !annotated(g, in.PlannedRequest) {
				return state, nil
			}
			if err = l.conclude(ctx, g, in.PlannedRequest, state, false); err == nil {
				return state, nil
			}
		} else if err = l.reserve(ctx, g, in.PlannedRequest); err == nil {
			return l.LookAtPlanned(ctx, in)
		}
		if !conflict(err) {
			return wire.PlannedState{}, err
		}
	}
	return wire.PlannedState{}, fmt.Errorf("reserve: %w", ErrBusy)
}

// LookAtPlanned looks at an operation that was reserved, and hands it over to
// the operator (Pending), or gives it up (Failed), when no hold defers it any
// more. Nothing else of slipway writes Pending.
//
// The holds are listed after Deferred was read, and everything that is written
// then is on the condition that the group is still as it was read before the
// list. A hold that was not in the list yet was granted by somebody who reads
// the group after the write, finds the operation and withdraws.
func (l *Leases) LookAtPlanned(ctx context.Context, in OperationInput) (wire.PlannedState, error) {
	for range tries {
		g, err := l.Cluster.Group(ctx, in.Namespace, in.Group)
		if errors.Is(err, ErrNoGroup) {
			return refused(ReasonGroupNotFound, "the group is gone"), nil
		}
		if err != nil {
			return wire.PlannedState{}, err
		}
		g, pending, err := l.Settle(ctx, g)
		if err != nil {
			return wire.PlannedState{}, err
		}
		if phaseOf(g, in.PlannedRequest) != lease.PhaseDeferred {
			return found(g, in.PlannedRequest), nil
		}
		if pending != "" {
			return waits(pending), nil
		}
		state, err := l.decidePlanned(ctx, g, in.PlannedRequest)
		if err == nil {
			return state, nil
		}
		if !conflict(err) {
			return wire.PlannedState{}, err
		}
	}
	return wire.PlannedState{}, fmt.Errorf("look: %w", ErrBusy)
}

func (l *Leases) decidePlanned(ctx context.Context, g lease.Group, r wire.PlannedRequest) (wire.PlannedState, error) {
	holds, err := l.holds(ctx, g)
	if err != nil {
		return wire.PlannedState{}, err
	}
	if len(holds) > 0 {
		return l.deferBehind(ctx, g, r, holds)
	}
	state := wire.PlannedState{Phase: lease.PhasePending, Message: "handed over to the operator"}
	switch reason := inTheWay(g, r); {
	case lease.Transient(reason):
		return waits(reason), nil
	case reason != "":
		state = refused(reason, against(r, reason))
	}
	return state, l.conclude(ctx, g, r, state, false)
}

// holds are the live holds of a group, the first to lapse first. Of every
// lapsed one it is written that it expired: a conflict means that it may have
// been renewed.
func (l *Leases) holds(ctx context.Context, g lease.Group) ([]lease.Record, error) {
	all, err := l.Cluster.list(ctx, g)
	if err != nil {
		return nil, err
	}
	var live []lease.Record
	for _, one := range all {
		if one.record.Kind != lease.KindHold {
			continue
		}
		one, err := l.revoke(ctx, g, one, func(r lease.Record) (lease.Reason, bool) { return g.Revokes(l.Now(), r) })
		if err != nil {
			return nil, err
		}
		switch now := l.Now(); {
		case one.record == nil:
		case one.record.Live(now):
			live = append(live, *one.record)
		case one.record.Lapsed(now):
			if _, err := l.Expire(ctx, g, one); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(live, func(a, b lease.Record) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	return live, nil
}

// deferBehind tells what an operation waits for, where it changed.
func (l *Leases) deferBehind(ctx context.Context, g lease.Group, r wire.PlannedRequest, holds []lease.Record) (wire.PlannedState, error) {
	first := holds[0]
	now := l.Now()
	state := waits(lease.ReasonDeploymentHold)
	state.RetryAfter, state.Message = first.ExpiresAt, blocking(holds)
	// At its expiry a lease still holds.
	state.Again = min(lookEvery, max(first.Deadline(now).Sub(now), 0)+time.Millisecond)
	if r.Kind != lease.PlannedFailover {
		return state, nil
	}
	shown := g.PlannedFailover
	retryAfter := state.RetryAfter.UTC().Format(time.RFC3339Nano)
	if shown.Reason == state.Reason && shown.Message == state.Message && shown.RetryAfter == retryAfter {
		return state, nil
	}
	once := shown.Reason != lease.ReasonDeploymentHold
	if once { // before the status: who dies between comes here again, and the Event is dropped then
		message := "planned failover to " + r.Target + " is deferred: " + state.Message
		if err := l.Cluster.event(ctx, g, r.Target+"/"+shown.StartTime, corev1.EventTypeNormal, lease.EventDeferred, message, now); err != nil {
			l.Log.Warn("an event is lost", zap.Error(err))
		}
	}
	_, err := l.Cluster.patchGroup(ctx, g, "status", map[string]any{"status": map[string]any{"plannedFailover": map[string]any{
		"phase": lease.PhaseDeferred, "reason": state.Reason, "message": state.Message, "retryAfter": retryAfter,
	}}})
	if err == nil && once {
		l.Metrics.deferred.WithLabelValues(g.Name, state.Reason).Inc()
		l.Log.Info("a planned failover is deferred", zap.String("group", g.Namespace+"/"+g.Name),
			zap.String("operationId", first.OperationID), zap.String("reason", state.Reason))
	}
	return state, err
}

// blocking names the hold that lapses first.
func blocking(holds []lease.Record) string {
	text := fmt.Sprintf("failover hold of operation %s (instance %s)", holds[0].OperationID, holds[0].Instance)
	if others := len(holds) - 1; others > 0 {
		text += fmt.Sprintf(" and %d more", others)
	}
	return text
}

// WithdrawPlanned gives up an operation that was not handed over, and says how
// it is then: Pending means that it was too late.
func (l *Leases) WithdrawPlanned(ctx context.Context, in WithdrawInput) (wire.PlannedState, error) {
	for range tries {
		g, err := l.Cluster.Group(ctx, in.Namespace, in.Group)
		if errors.Is(err, ErrNoGroup) {
			return refused(ReasonGroupNotFound, "the group is gone"), nil
		}
		if err != nil {
			return wire.PlannedState{}, err
		}
		if phaseOf(g, in.PlannedRequest) != lease.PhaseDeferred {
			return found(g, in.PlannedRequest), nil
		}
		state := refused(in.Reason, "withdrawn before it was handed over")
		if err = l.conclude(ctx, g, in.PlannedRequest, state, in.KeepRequest); err == nil {
			return state, nil
		}
		if !conflict(err) {
			return wire.PlannedState{}, err
		}
	}
	return wire.PlannedState{}, fmt.Errorf("withdraw: %w", ErrBusy)
}

// ClearPlanned removes the reservation of an operation that was handed over,
// once the operator reports the operation in status, or when that is overdue.
// It says Pending while the reservation stands.
func (l *Leases) ClearPlanned(ctx context.Context, in ClearInput) (wire.PlannedState, error) {
	for range tries {
		g, err := l.Cluster.Group(ctx, in.Namespace, in.Group)
		if errors.Is(err, ErrNoGroup) {
			return wire.PlannedState{}, nil
		}
		if err != nil {
			return wire.PlannedState{}, err
		}
		reservation, _ := g.Reservation()
		if reservation != (lease.Reservation{Kind: in.Kind, Phase: lease.PhasePending}) {
			return wire.PlannedState{}, nil
		}
		var state wire.PlannedState
		if !g.InFlight(in.Kind) {
			if !in.Overdue {
				return wire.PlannedState{Phase: lease.PhasePending}, nil
			}
			state.Reason = ReasonNotReported
		}
		if _, err = l.Cluster.annotate(ctx, g, map[string]any{lease.AnnotationPlannedOperation: nil}); err == nil {
			return state, nil
		}
		if !conflict(err) {
			return wire.PlannedState{}, err
		}
	}
	return wire.PlannedState{}, fmt.Errorf("clear: %w", ErrBusy)
}

// reserve writes Deferred.
func (l *Leases) reserve(ctx context.Context, g lease.Group, r wire.PlannedRequest) error {
	if r.Kind != lease.PlannedFailover {
		_, err := l.Cluster.annotate(ctx, g, map[string]any{
			lease.AnnotationPlannedOperation: lease.Reservation{Kind: r.Kind, Phase: lease.PhaseDeferred}.String(),
		})
		return err
	}
	fields := l.newFailover(g, r)
	fields["phase"], fields["message"] = lease.PhaseDeferred, "looks for failover holds"
	fields["reason"], fields["retryAfter"] = nil, nil
	_, err := l.Cluster.patchGroup(ctx, g, "status", map[string]any{"status": map[string]any{"plannedFailover": fields}})
	return err
}

// newFailover are the members of status.plannedFailover that a request sets.
func (l *Leases) newFailover(g lease.Group, r wire.PlannedRequest) map[string]any {
	return map[string]any{
		"target": r.Target, "sourcePrimary": g.ActiveSite, "startTime": l.Now().UTC().Format(time.RFC3339),
	}
}

// conclude ends the wait of an operation, in Pending or in Failed, or refuses
// it before there was one.
//
// Annotations and status are two writes on an API server. The annotation that
// asked for a planned failover goes first: who dies between leaves Deferred,
// which the next look takes up, and which nothing acts on. The other way round
// an operation that ran could be asked for once more. The second write is on
// the condition that nothing happened since the first.
func (l *Leases) conclude(ctx context.Context, g lease.Group, r wire.PlannedRequest, state wire.PlannedState, keepRequest bool) error {
	if r.Kind != lease.PlannedFailover {
		var reservation any // removed
		if state.Phase == lease.PhasePending {
			reservation = lease.Reservation{Kind: r.Kind, Phase: state.Phase}.String()
		}
		_, err := l.Cluster.annotate(ctx, g, map[string]any{lease.AnnotationPlannedOperation: reservation})
		return err
	}
	if annotated(g, r) && !keepRequest {
		var err error
		if g, err = l.Cluster.annotate(ctx, g, map[string]any{lease.AnnotationPlannedFailover: nil}); err != nil {
			return err
		}
	}
	fields := map[string]any{}
	if g.PlannedFailover.Phase != lease.PhaseDeferred {
		fields = l.newFailover(g, r)
	}
	fields["phase"], fields["reason"], fields["message"], fields["retryAfter"] = state.Phase, nil, state.Message, nil
	if state.Reason != "" {
		fields["reason"] = state.Reason
	}
	_, err := l.Cluster.patchGroup(ctx, g, "status", map[string]any{"status": map[string]any{"plannedFailover": fields}})
	return err
}

// phaseOf is how far a group has an operation, as PlannedState.Phase has it.
func phaseOf(g lease.Group, r wire.PlannedRequest) string {
	phase := g.PlannedFailover.Phase
	if r.Kind != lease.PlannedFailover {
		reservation, _ := g.Reservation()
		switch {
		case reservation.Kind == r.Kind:
			phase = reservation.Phase
		case g.InFlight(r.Kind):
			return lease.PhasePending // and reported
		default:
			return ""
		}
	} else if g.PlannedFailover.Target != r.Target {
		return ""
	}
	switch phase {
	case "", lease.PhaseDeferred, lease.PhaseFailed:
		return phase
	}
	return lease.PhasePending
}

// standing reports whether a group is reserved for a request already.
func standing(g lease.Group, r wire.PlannedRequest) bool {
	if r.Kind == lease.PlannedFailover {
		return phaseOf(g, r) == lease.PhaseDeferred
	}
	reservation, _ := g.Reservation()
	return reservation.Kind == r.Kind
}

// handedOver reports whether a planned failover is under way that is the one of
// a request. Of the other kinds nobody can tell: they may be the operator's own.
func handedOver(g lease.Group, r wire.PlannedRequest) bool {
	return r.Kind == lease.PlannedFailover && g.InFlight(r.Kind) && phaseOf(g, r) == lease.PhasePending
}

// inTheWay is the reason against an operation, which may be reserved, or "".
func inTheWay(g lease.Group, r wire.PlannedRequest) string {
	reason := g.Revalidate(r.Kind, r.Target)
	_, another := lease.ParseOperationKind(reason)
	elsewhere := r.Kind == lease.PlannedFailover && g.InFlight(r.Kind) && g.PlannedFailover.Target != r.Target
	switch {
	case another, elsewhere:
		return lease.ReasonConcurrentOperation
	case lease.Transient(reason) && !standing(g, r):
		return "" // is waited for in Deferred
	}
	return reason
}

// annotated reports whether a group asks for an operation by annotation.
func annotated(g lease.Group, r wire.PlannedRequest) bool {
	if r.Kind != lease.PlannedFailover || !g.FailoverRequest.Present {
		return false
	}
	asked, err := lease.ParsePlannedFailover(g.FailoverRequest.Value)
	return err == nil && asked.Site == r.Target
}

// found is the state of an operation that does not wait here (any more).
func found(g lease.Group, r wire.PlannedRequest) wire.PlannedState {
	switch phaseOf(g, r) {
	case lease.PhasePending:
		return wire.PlannedState{Phase: lease.PhasePending, Message: "handed over to the operator"}
	case lease.PhaseFailed:
		return refused(g.PlannedFailover.Reason, g.PlannedFailover.Message)
	}
	return wire.PlannedState{Reason: ReasonWithdrawn, Message: "somebody took the reservation away"}
}

func waits(reason string) wire.PlannedState {
	return wire.PlannedState{Phase: lease.PhaseDeferred, Reason: reason, Message: "waits for the group to settle", Again: time.Second}
}

func refused(reason, message string) wire.PlannedState {
	return wire.PlannedState{Phase: lease.PhaseFailed, Reason: reason, Message: message}
}

// against says in words why an operation is refused.
func against(r wire.PlannedRequest, reason string) string {
	switch reason {
	case lease.ReasonConcurrentOperation:
		return "another operation has the group"
	case lease.ReasonTargetUnknown:
		return "the group has no site " + r.Target
	case lease.ReasonTargetNotReadOnly:
		return "the site " + r.Target + " is not read-only"
	case lease.ReasonTargetNotReplicating:
		return "the site " + r.Target + " does not replicate"
	}
	return "the group is not stable: " + reason
}
