package lease

import "slices"

// Reasons for which a group is not stable, beside those that name a phase, a
// state or the reason of a condition.
const (
	ReasonRevocationPending  = "DeploymentRevocationPending"
	ReasonTopologyPending    = "TopologyPersistencePending"
	UnstableNoPrimary        = "NoPrimary"
	UnstablePlannedFailover  = string(PlannedFailover)
	UnstableOrderedUpdate    = string(OrderedUpdate)
	UnstableRestore          = "Restore"
	UnstableDragonflyUpgrade = "DragonflyUpgrade"
	UnstableRestoreInPlace   = string(RestoreInPlace)
	UnstableNotReady         = "NotReady"
	UnstableSiteNotObserved  = "SiteNotObserved"
	UnstableSiteNotReady     = "SiteNotReady"
	UnstableReplication      = "ReplicationNotRunning"

	unstableDragonflyPrefix   = "Dragonfly"
	unstableConvergencePrefix = "SourceConvergence"
)

const (
	conditionReady     = "Ready"
	conditionDegraded  = "Degraded"
	conditionRecovery  = "RecoveryPending"
	conditionBootstrap = "Bootstrapping"
	reasonLagging      = "ReplicationLagging"
	convergencePending = "Pending"
	convergenceBlocked = "Blocked"
	dragonflyDisabled  = "Disabled"
	dragonflyReady     = "Ready"
)

// Unstable is the first reason for which the group is not stable, in the order
// of the lease contract, or "". Whether the topology has settled is not part of
// it: see Topology and ReadGate.
func (g Group) Unstable() string { return g.unstableBut("") }

// unstableBut overlooks that the operation own waits in Deferred.
func (g Group) unstableBut(own OperationKind) string {
	switch {
	case g.RevokeRequested():
		return ReasonRevocationPending
	case g.ActiveSite == "":
		return UnstableNoPrimary
	case g.InFlight(PlannedFailover) && !(own == PlannedFailover && g.PlannedFailover.Phase == PhaseDeferred),
		g.reservedBut(PlannedFailover, own):
		return UnstablePlannedFailover
	// Any phase at all: the operator clears it when an update is over.
	case g.UpdatePhase != "", g.reservedBut(OrderedUpdate, own):
		return UnstableOrderedUpdate
	case running(g.RestorePhase):
		return UnstableRestore
	case running(g.DragonflyUpgradePhase):
		return UnstableDragonflyUpgrade
	case g.DragonflyPhase != "" && g.DragonflyPhase != dragonflyDisabled && g.DragonflyPhase != dragonflyReady:
		return unstableDragonflyPrefix + g.DragonflyPhase
	case g.InFlight(RestoreInPlace), g.reservedBut(RestoreInPlace, own):
		return UnstableRestoreInPlace
	}
	if reason := g.unstableCondition(); reason != "" {
		return reason
	}
	return g.unstableSite()
}

func (g Group) unstableCondition() string {
	for _, kind := range []string{conditionDegraded, conditionRecovery, conditionBootstrap} {
		condition, isTrue := g.condition(kind)
		if !isTrue || kind == conditionDegraded && condition.Reason == reasonLagging {
			continue
		}
		if condition.Reason != "" {
			return condition.Reason
		}
		return kind
	}
	if _, ready := g.condition(conditionReady); !ready {
		return UnstableNotReady
	}
	return ""
}

func (g Group) unstableSite() string {
	if g.unobserved() {
		return UnstableSiteNotObserved
	}
	if active, _ := g.Site(g.ActiveSite); active.State != siteWritable {
		return UnstableNoPrimary
	}
	followers := g.followers()
	if slices.ContainsFunc(followers, func(s SiteStatus) bool { return s.State != siteReadOnly }) {
		return UnstableSiteNotReady
	}
	for _, site := range g.SiteStatuses {
		if site.RecoveryState != "" {
			return site.RecoveryState
		}
	}
	for _, site := range g.SiteStatuses {
		if site.converging() {
			return unstableConvergencePrefix + site.SourceConvergenceState
		}
	}
	if slices.ContainsFunc(followers, func(s SiteStatus) bool { return !s.Replicating }) {
		return UnstableReplication
	}
	return ""
}

func (s SiteStatus) converging() bool {
	return s.SourceConvergenceState == convergencePending || s.SourceConvergenceState == convergenceBlocked
}

// Transient says whether the reason goes by itself within moments, once slipway
// has written what it owes. Whoever would give up for an unstable group looks
// again instead.
func Transient(reason string) bool {
	return reason == ReasonRevocationPending || reason == ReasonTopologyPending
}
