package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// Leases grants, renews, releases, revokes and ends leases. The API server is
// the arbiter: every write is on the condition that what was decided on is
// still there, and who grants or renews reads the group again after it. So any
// number of processes may do this at once, paused ones included.
type Leases struct {
	Cluster *Cluster
	// Now is the one clock of leases, that of the leader.
	Now     func() time.Time
	Metrics *Metrics
	Log     *zap.Logger
	// Follow: the operator alone raises the topology generation.
	Follow bool
	// Revoked is told of every revocation once; may be nil. It must not block.
	Revoked func(lease.Group, lease.Record)
}

// places are where a lease can be: the mutex of the group, and the object of
// the operation. They are read in this order, and revocations are written in
// the other one.
type places struct{ mutex, own object }

func (l *Leases) places(ctx context.Context, g lease.Group, kind lease.Kind, operationID string) (p places, err error) {
	if p.mutex, err = l.Cluster.read(ctx, g, lease.MutexName(g.Name)); err != nil {
		return p, err
	}
	p.own, err = l.Cluster.read(ctx, g, lease.OperationName(g.Name, kind, operationID))
	return p, err
}

// held is where a lease of this kind is kept.
func (p places) held(kind lease.Kind) object {
	if kind == lease.KindMigration {
		return p.mutex
	}
	return p.own
}

// closed is the answer while something has to be written before anything is
// admitted.
func closed(g lease.Group, reason string) wire.LeaseAnswer {
	return wire.LeaseAnswer{Verdict: lease.Verdict{Kind: lease.VerdictUnstable, Reason: reason, Generation: g.Generation}}
}

// Observe is the body of a GET, or an answer that says why there is none yet.
func (l *Leases) Observe(ctx context.Context, g lease.Group) (lease.Observation, *wire.LeaseAnswer, error) {
	g, pending, err := l.Settle(ctx, g)
	if err != nil {
		return lease.Observation{}, nil, err
	}
	if pending == "" {
		pending = g.ReadGate()
	}
	if pending != "" {
		a := closed(g, pending)
		return lease.Observation{}, &a, nil
	}
	all, err := l.Cluster.list(ctx, g)
	if err != nil {
		return lease.Observation{}, nil, err
	}
	records := make([]lease.Record, 0, len(all))
	for _, one := range all {
		records = append(records, *one.record)
	}
	return lease.Observe(l.Now(), g, records), nil, nil
}

// Consider says what a grant would be answered now. It grants nothing.
func (l *Leases) Consider(ctx context.Context, g lease.Group, kind lease.Kind, holder lease.Holder) (wire.LeaseAnswer, error) {
	g, pending, err := l.Settle(ctx, g)
	if err != nil {
		return wire.LeaseAnswer{}, err
	}
	if pending != "" {
		return closed(g, pending), nil
	}
	p, err := l.places(ctx, g, kind, holder.OperationID)
	if err != nil {
		return wire.LeaseAnswer{}, err
	}
	return wire.LeaseAnswer{Verdict: lease.DecideGrant(l.Now(), g, p.mutex.record, p.own.record, kind, holder)}, nil
}

// Grant grants a lease (lease.VerdictGrant), or renews it and rotates its token
// (lease.VerdictRenew). The same call again finds what it wrote before.
func (l *Leases) Grant(ctx context.Context, ref wire.LeaseRef, request wire.GrantRequest) (wire.LeaseAnswer, error) {
	for range tries {
		g, err := l.Cluster.Group(ctx, ref.Namespace, ref.Group)
		if err != nil {
			return wire.LeaseAnswer{}, err
		}
		g, pending, err := l.Settle(ctx, g)
		if err != nil {
			return wire.LeaseAnswer{}, err
		}
		if pending != "" {
			return closed(g, pending), nil
		}
		p, err := l.places(ctx, g, ref.Kind, ref.OperationID)
		if err != nil {
			return wire.LeaseAnswer{}, err
		}
		verdict := lease.DecideGrant(l.Now(), g, p.mutex.record, p.own.record, ref.Kind, request.Holder)
		switch {
		case verdict.Sweep:
			err = l.revokeAll(ctx, g)
		case verdict.Kind != lease.VerdictGrant && verdict.Kind != lease.VerdictRenew:
			return wire.LeaseAnswer{Verdict: verdict}, nil
		default:
			var granted wire.LeaseAnswer
			if granted, err = l.grant(ctx, g, p.held(ref.Kind), ref.Kind, request, verdict); err == nil {
				l.Metrics.awaits(g.Name, ref.Kind)
				return granted, nil
			}
		}
		if err != nil && !conflict(err) && !errors.Is(err, errMoved) {
			return wire.LeaseAnswer{}, err
		}
	}
	return wire.LeaseAnswer{}, fmt.Errorf("grant: %w", ErrBusy)
}

// errMoved: the group changed while a lease was granted.
var errMoved = errors.New("the group changed meanwhile")

func (l *Leases) grant(ctx context.Context, g lease.Group, place object, kind lease.Kind, request wire.GrantRequest, verdict lease.Verdict) (wire.LeaseAnswer, error) {
	now := l.Now()
	record := lease.Record{
		Kind: kind, OperationID: request.Holder.OperationID, Instance: request.Holder.Instance,
		Namespace: request.Holder.Namespace, ServiceAccount: request.Holder.ServiceAccount,
		TokenHash: request.TokenHash, TopologyGeneration: g.Generation,
		CreatedAt: now, ExpiresAt: expiry(now, request.TTL), State: lease.StateActive,
	}
	switch before := place.record; {
	case verdict.Kind == lease.VerdictRenew && before.Matches(request.TokenHash):
		// An earlier try of this call wrote it, and its answer was lost.
		if before.ExpiresAt.Equal(expiry(before.CreatedAt, request.TTL)) {
			verdict.Kind = lease.VerdictGrant
		}
		return wire.LeaseAnswer{Verdict: verdict, ExpiresAt: before.ExpiresAt}, nil
	case verdict.Kind == lease.VerdictRenew:
		record.CreatedAt = before.CreatedAt
	case before != nil && before.State == lease.StateRevoked:
		// The mutex is about to forget a revocation.
		if err := l.entomb(ctx, g, *before); err != nil {
			return wire.LeaseAnswer{}, err
		}
	}
	written, err := l.Cluster.write(ctx, g, place, record, now)
	if err != nil {
		return wire.LeaseAnswer{}, err
	}
	after, err := l.Cluster.Group(ctx, g.Namespace, g.Name)
	if err == nil && g.Same(after) && l.open(after) && after.Unstable() == "" {
		return wire.LeaseAnswer{Verdict: verdict, ExpiresAt: record.ExpiresAt}, nil
	}
	if withdrawal := l.withdraw(ctx, g, written, place.record, verdict.Kind); withdrawal != nil || err != nil {
		return wire.LeaseAnswer{}, errors.Join(err, withdrawal)
	}
	return wire.LeaseAnswer{}, errMoved
}

// open reports whether all is written that a group's state asks for.
func (l *Leases) open(g lease.Group) bool {
	return !g.Topology(l.Follow).Pending() && !g.RevokeRequested()
}

// expiry is in whole microseconds, as objects and clients have it.
func expiry(now time.Time, ttl time.Duration) time.Time {
	return now.UTC().Truncate(time.Microsecond).Add(ttl)
}

// withdraw takes a grant back that came too late. A conflict means that another
// has done so: it was revoked.
func (l *Leases) withdraw(ctx context.Context, g lease.Group, written object, before *lease.Record, kind lease.VerdictKind) error {
	record := *written.record
	record.State = lease.StateReleased
	if kind == lease.VerdictRenew {
		record = *before
	}
	_, err := l.Cluster.write(ctx, g, written, record, l.Now())
	if conflict(err) {
		return nil
	}
	return err
}

// Renew extends a lease by one conditional write (lease.VerdictRenew).
func (l *Leases) Renew(ctx context.Context, g lease.Group, ref wire.LeaseRef, caller lease.Caller, tokenHash string, ttl time.Duration) (wire.LeaseAnswer, error) {
	for range tries {
		settled, pending, err := l.Settle(ctx, g)
		if err != nil {
			return wire.LeaseAnswer{}, err
		}
		g = settled
		p, err := l.places(ctx, g, ref.Kind, ref.OperationID)
		if err != nil {
			return wire.LeaseAnswer{}, err
		}
		now := l.Now()
		verdict := lease.DecideRenew(now, g, p.mutex.record, p.own.record, ref.Kind, ref.OperationID, caller, tokenHash)
		switch {
		case pending != "" && (verdict.Sweep || verdict.Kind == lease.VerdictRenew):
			return closed(g, pending), nil // a revocation too, until it is written
		case verdict.Sweep:
			err = l.revokeAll(ctx, g)
		case verdict.Kind != lease.VerdictRenew:
			return wire.LeaseAnswer{Verdict: verdict}, nil
		default:
			record := *p.held(ref.Kind).record
			record.ExpiresAt = expiry(now, ttl)
			if _, err = l.Cluster.write(ctx, g, p.held(ref.Kind), record, now); err != nil {
				break
			}
			before := g
			if g, err = l.Cluster.Group(ctx, g.Namespace, g.Name); err != nil {
				return wire.LeaseAnswer{}, err
			}
			if before.Same(g) && l.open(g) {
				return wire.LeaseAnswer{Verdict: verdict, ExpiresAt: record.ExpiresAt}, nil
			}
			continue // it moved: decides again
		}
		if err != nil && !conflict(err) {
			return wire.LeaseAnswer{}, err
		}
		if g, err = l.Cluster.Group(ctx, g.Namespace, g.Name); err != nil {
			return wire.LeaseAnswer{}, err
		}
	}
	return wire.LeaseAnswer{}, fmt.Errorf("renew: %w", ErrBusy)
}

// Release ends a lease (lease.VerdictRelease), or says why there is nothing to
// end.
func (l *Leases) Release(ctx context.Context, g lease.Group, ref wire.LeaseRef, request wire.ReleaseRequest) (wire.LeaseAnswer, error) {
	for range tries {
		p, err := l.places(ctx, g, ref.Kind, ref.OperationID)
		if err != nil {
			return wire.LeaseAnswer{}, err
		}
		now := l.Now()
		verdict := lease.DecideRelease(now, g, p.mutex.record, p.own.record, ref.Kind, ref.OperationID, request.Caller, request.TokenHash)
		switch {
		case verdict.Sweep: // revoked, and not released: its operation must not come again
			_, err = l.revoke(ctx, g, p.held(ref.Kind), func(r lease.Record) (lease.Reason, bool) { return g.Revokes(now, r) })
		case verdict.Kind == lease.VerdictRelease:
			record := *p.held(ref.Kind).record
			record.State = lease.StateReleased
			_, err = l.Cluster.write(ctx, g, p.held(ref.Kind), record, now)
		}
		if err == nil {
			return wire.LeaseAnswer{Verdict: verdict}, nil
		}
		if !conflict(err) {
			return wire.LeaseAnswer{}, err
		}
		if g, err = l.Cluster.Group(ctx, g.Namespace, g.Name); err != nil {
			return wire.LeaseAnswer{}, err
		}
	}
	return wire.LeaseAnswer{}, fmt.Errorf("release: %w", ErrBusy)
}

// Peek says what a release would be answered now. It releases nothing.
func (l *Leases) Peek(ctx context.Context, g lease.Group, ref wire.LeaseRef, request wire.ReleaseRequest) (wire.LeaseAnswer, error) {
	p, err := l.places(ctx, g, ref.Kind, ref.OperationID)
	if err != nil {
		return wire.LeaseAnswer{}, err
	}
	return wire.LeaseAnswer{Verdict: lease.DecideRelease(l.Now(), g, p.mutex.record, p.own.record, ref.Kind, ref.OperationID, request.Caller, request.TokenHash)}, nil
}

// Look says how a lease is, and writes down that it expired where it did.
func (l *Leases) Look(ctx context.Context, ref wire.LeaseRef) (wire.LeaseState, error) {
	for range tries {
		g, place, err := l.find(ctx, ref)
		if err != nil || place.record == nil {
			return wire.LeaseState{}, err
		}
		now := l.Now()
		if !place.record.Lapsed(now) {
			l.Metrics.awaits(g.Name, ref.Kind) // maybe granted by an earlier leader
			if place.record.State == lease.StateRevoked {
				l.announce(ctx, g, *place.record)
			}
			return state(*place.record, now), nil
		}
		expired, err := l.Expire(ctx, g, place)
		if err == nil {
			return state(expired, now), nil
		}
		if !conflict(err) {
			return wire.LeaseState{}, err
		}
	}
	return wire.LeaseState{}, fmt.Errorf("look: %w", ErrBusy)
}

func state(r lease.Record, now time.Time) wire.LeaseState {
	s := wire.LeaseState{State: r.State, Reason: r.Reason, ExpiresAt: r.ExpiresAt}
	if r.Live(now) {
		s.Lapses = r.Deadline(now).Sub(now)
	}
	return s
}

// Expire writes down that a lapsed lease expired, on the condition that nobody
// renewed it meanwhile.
func (l *Leases) Expire(ctx context.Context, g lease.Group, place object) (lease.Record, error) {
	expired := *place.record
	expired.State = lease.StateExpired
	if _, err := l.Cluster.write(ctx, g, place, expired, l.Now()); err != nil {
		return expired, err
	}
	l.Metrics.expirations.WithLabelValues(g.Name, string(expired.Kind)).Inc()
	l.Log.Info("a lease expired", zap.String("group", g.Namespace+"/"+g.Name), zap.String("kind", string(expired.Kind)),
		zap.String("operationId", expired.OperationID))
	return expired, nil
}

// Revoke revokes one lease, whoever holds it, and returns how it is then. It is
// for the workflow of the lease, which need not be told of it.
func (l *Leases) Revoke(ctx context.Context, ref wire.LeaseRef, reason lease.Reason) (wire.LeaseState, error) {
	untold := *l
	untold.Revoked = nil
	l = &untold
	g, place, err := l.find(ctx, ref)
	if err != nil || place.record == nil {
		return wire.LeaseState{}, err
	}
	place, err = l.revoke(ctx, g, place, func(r lease.Record) (lease.Reason, bool) {
		return reason, r.Live(l.Now()) && r.Kind == ref.Kind && r.OperationID == ref.OperationID
	})
	if err != nil || place.record == nil {
		return wire.LeaseState{}, err
	}
	if place.record.State == lease.StateRevoked {
		l.announce(ctx, g, *place.record)
	}
	return state(*place.record, l.Now()), nil
}

// find finds the record of a lease: where leases of its kind are kept, or the
// tombstone of a migration whose mutex another has taken. A group that is gone
// has no leases.
func (l *Leases) find(ctx context.Context, ref wire.LeaseRef) (lease.Group, object, error) {
	g, err := l.Cluster.Group(ctx, ref.Namespace, ref.Group)
	if errors.Is(err, ErrNoGroup) {
		return g, object{}, nil
	}
	if err != nil {
		return g, object{}, err
	}
	p, err := l.places(ctx, g, ref.Kind, ref.OperationID)
	if err != nil {
		return g, object{}, err
	}
	for _, place := range []object{p.held(ref.Kind), p.own} {
		if place.record != nil && place.record.Kind == ref.Kind && place.record.OperationID == ref.OperationID {
			return g, place, nil
		}
	}
	return g, object{}, nil
}
