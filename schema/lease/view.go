package lease

import (
	"cmp"
	"slices"
	"time"
)

// Observation is the body of GET /deploy/v1/groups/{group} (seed A, Group
// observation).
type Observation struct {
	Group              string     `json:"group"`
	Namespace          string     `json:"namespace"`
	ActiveSite         string     `json:"activeSite"`
	TopologyGeneration int64      `json:"topologyGeneration"`
	Health             Health     `json:"health"`
	Operations         Operations `json:"operations"`
	Stable             bool       `json:"stable"`
	// UnstableReason is empty if and only if Stable.
	UnstableReason string `json:"unstableReason"`
	// Leases are the live ones, never null: the migration, then the holds by
	// expiry and operation.
	Leases []View `json:"leases"`
}

// Health of a group, for callers with a policy of their own.
type Health struct {
	Ready          bool   `json:"ready"`
	DegradedReason string `json:"degradedReason"`
	// ReplicationRunning is false when a follower does not replicate or a site
	// has not been observed.
	ReplicationRunning bool `json:"replicationRunning"`
	// ReplicationLagSeconds is the largest of the followers, 0 when none is known.
	ReplicationLagSeconds float64 `json:"replicationLagSeconds"`
	RecoveryPending       bool    `json:"recoveryPending"`
}

// Operations of a group as its status has them.
type Operations struct {
	PlannedFailover  FailoverView `json:"plannedFailover"`
	UpdatePhase      string       `json:"updatePhase"`
	RestoreInPlace   string       `json:"restoreInPlace"`
	DragonflyUpgrade string       `json:"dragonflyUpgrade"`
}

// FailoverView is the planned failover in Operations.
type FailoverView struct {
	Phase  string `json:"phase"`
	Reason string `json:"reason"`
}

// View is a lease as every authorized caller may see it.
type View struct {
	Kind               Kind      `json:"kind"`
	OperationID        string    `json:"operationId"`
	Instance           string    `json:"instance"`
	ExpiresAt          time.Time `json:"expiresAt"`
	TopologyGeneration int64     `json:"topologyGeneration"`
}

// ReadGate is the reason for which GET answers 423, or "": what it would show
// is about to change. A reservation that only waits (Deferred) is no such
// reason, it is shown as unstable; neither stops a renewal, because a planned
// operation never takes a lease away.
func (g Group) ReadGate() string {
	if g.Topology(false).Pending() {
		return ReasonTopologyPending
	}
	if reservation, stands := g.Reservation(); stands && reservation.Phase == PhasePending && !g.InFlight(reservation.Kind) {
		return string(reservation.Kind)
	}
	return ""
}

// Observe makes the body of GET from the group and all its records.
func Observe(now time.Time, group Group, records []Record) Observation {
	reason := group.Unstable()
	observation := Observation{
		Group: group.Name, Namespace: group.Namespace, ActiveSite: group.ActiveSite, TopologyGeneration: group.Generation,
		Health: group.Health(),
		Operations: Operations{
			PlannedFailover: FailoverView{Phase: group.PlannedFailover.Phase, Reason: group.PlannedFailover.Reason},
			UpdatePhase:     group.UpdatePhase, RestoreInPlace: group.RestoreInPlacePhase, DragonflyUpgrade: group.DragonflyUpgradePhase,
		},
		Stable: reason == "", UnstableReason: reason, Leases: []View{},
	}
	for _, record := range records {
		// The tombstone of a migration is never live, so the mutex is not seen twice.
		if record.Live(now) {
			observation.Leases = append(observation.Leases, record.View())
		}
	}
	slices.SortFunc(observation.Leases, func(a, b View) int {
		if a.Kind != b.Kind {
			if a.Kind == KindMigration {
				return -1
			}
			return 1
		}
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.OperationID, b.OperationID))
	})
	return observation
}

// Health of the group.
func (g Group) Health() Health {
	_, ready := g.condition(conditionReady)
	degraded, _ := g.condition(conditionDegraded)
	_, recovery := g.condition(conditionRecovery)
	health := Health{
		Ready: ready, DegradedReason: degraded.Reason, ReplicationRunning: !g.unobserved(), RecoveryPending: recovery,
	}
	for _, site := range g.SiteStatuses {
		if site.RecoveryState != "" || site.converging() {
			health.RecoveryPending = true
		}
	}
	for _, site := range g.followers() {
		if !site.Replicating {
			health.ReplicationRunning = false
		}
		if site.SecondsBehindSource != nil {
			health.ReplicationLagSeconds = max(health.ReplicationLagSeconds, *site.SecondsBehindSource)
		}
	}
	return health
}
