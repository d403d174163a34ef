package kube

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/schema/lease"
)

// tries is how often a write starts over that meets another one.
const tries = 5

// ErrBusy: others wrote all the time. The same call again may be luckier.
var ErrBusy = errors.New("others change the same lease all the time")

// Settle writes what the state of a group asks for: the generation that the
// operator did not raise, and the revocation of leases, because the topology
// changed or because somebody annotated the group. It returns the group as it
// is then, and why nothing may be granted or renewed yet; "" when all is
// written. Several may do this at once.
func (l *Leases) Settle(ctx context.Context, g lease.Group) (lease.Group, string, error) {
	for range tries {
		next, pending, err := l.settleOnce(ctx, g)
		switch {
		case err == nil && pending == again:
			g = next
		case err == nil:
			return next, pending, nil
		case !conflict(err):
			return g, "", err
		default:
			if g, err = l.Cluster.Group(ctx, g.Namespace, g.Name); err != nil {
				return g, "", err
			}
		}
	}
	return g, lease.ReasonTopologyPending, nil
}

// again: something was written, and the group is to be looked at again.
const again = "again"

func (l *Leases) settleOnce(ctx context.Context, g lease.Group) (lease.Group, string, error) {
	switch step := g.Topology(l.Follow); step.Kind {
	case lease.StepWait:
		return g, lease.ReasonTopologyPending, nil
	case lease.StepRaise:
		next, err := l.Cluster.patchGroup(ctx, g, "status", map[string]any{
			"status": map[string]any{"topologyGeneration": step.Generation},
		})
		if err == nil {
			l.Log.Info("raised the topology generation", zap.String("group", g.Namespace+"/"+g.Name),
				zap.String("activeSite", g.ActiveSite), zap.Int64("topologyGeneration", step.Generation))
		}
		return next, again, err
	case lease.StepNote:
		if err := l.revokeAll(ctx, g); err != nil {
			return g, "", err
		}
		next, err := l.Cluster.annotate(ctx, g, map[string]any{lease.AnnotationTopology: step.Observed})
		return next, again, err
	}
	if g.RevokeRequested() {
		if err := l.revokeAll(ctx, g); err != nil {
			return g, "", err
		}
		next, err := l.Cluster.annotate(ctx, g, map[string]any{lease.AnnotationRevoke: nil})
		return next, again, err
	}
	return g, "", nil
}

// revokeAll revokes the records of a group that its state revokes, as they are
// on the server now.
func (l *Leases) revokeAll(ctx context.Context, g lease.Group) error {
	all, err := l.Cluster.list(ctx, g)
	if err != nil {
		return err
	}
	var errs []error
	for _, one := range all {
		_, err := l.revoke(ctx, g, one, func(r lease.Record) (lease.Reason, bool) { return g.Revokes(l.Now(), r) })
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// revoke revokes what is in one place, for as long as there is a reason to, and
// returns what is there then. For a migration the tombstone comes before the
// mutex: whoever reads the mutex first and finds it live finds the tombstone
// after it.
func (l *Leases) revoke(ctx context.Context, g lease.Group, place object, why func(lease.Record) (lease.Reason, bool)) (object, error) {
	for range tries {
		if place.record == nil {
			return place, nil
		}
		reason, wanted := why(*place.record)
		if !wanted {
			return place, nil
		}
		record := *place.record
		record.State, record.Reason = lease.StateRevoked, reason
		if record.Kind == lease.KindMigration {
			if err := l.entomb(ctx, g, record); err != nil {
				return place, err
			}
		}
		written, err := l.Cluster.write(ctx, g, place, record, l.Now())
		if err == nil {
			l.revoked(ctx, g, record)
			return written, nil
		}
		if !conflict(err) {
			return place, err
		}
		if place, err = l.Cluster.read(ctx, g, place.name); err != nil {
			return place, err
		}
	}
	return place, fmt.Errorf("revoke %s: %w", place.name, ErrBusy)
}

// entomb sees to it that the tombstone of a revoked migration is there.
func (l *Leases) entomb(ctx context.Context, g lease.Group, revoked lease.Record) error {
	name := lease.OperationName(g.Name, revoked.Kind, revoked.OperationID)
	for range tries {
		place, err := l.Cluster.read(ctx, g, name)
		if err != nil {
			return err
		}
		if place.record != nil && place.record.State == lease.StateRevoked {
			return nil // it stays as it is: once revoked is revoked for ever
		}
		if _, err = l.Cluster.write(ctx, g, place, revoked, l.Now()); err == nil || !conflict(err) {
			return err
		}
	}
	return fmt.Errorf("write the tombstone %s: %w", name, ErrBusy)
}

// revoked tells the world of a revocation, once.
func (l *Leases) revoked(ctx context.Context, g lease.Group, r lease.Record) {
	l.Metrics.revocations.WithLabelValues(g.Name, string(r.Kind), string(r.Reason)).Inc()
	l.Log.Info("revoked a lease", zap.String("group", g.Namespace+"/"+g.Name), zap.String("kind", string(r.Kind)),
		zap.String("operationId", r.OperationID), zap.String("reason", string(r.Reason)))
	l.announce(ctx, g, r)
	if l.Revoked != nil {
		l.Revoked(g, r)
	}
}

// announce writes the Event of a revocation. Who finds a revoked record writes
// it too, since who revoked it may have died before.
func (l *Leases) announce(ctx context.Context, g lease.Group, r lease.Record) {
	key := string(r.Kind) + "/" + r.OperationID + "/" + r.CreatedAt.String()
	message := fmt.Sprintf("the %s lease of operation %s (instance %s) was revoked: %s", r.Kind, r.OperationID, r.Instance, r.Reason)
	if err := l.Cluster.event(ctx, g, key, corev1.EventTypeWarning, lease.EventRevoked, message, l.Now()); err != nil {
		l.Log.Warn("an event is lost", zap.Error(err))
	}
}
