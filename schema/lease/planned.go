package lease

import (
	"errors"
	"slices"
	"strings"
)

// OperationKind is a planned operation on a group.
type OperationKind string

// The planned operations that a hold defers.
const (
	PlannedFailover OperationKind = "PlannedFailover"
	OrderedUpdate   OperationKind = "OrderedUpdate"
	RestoreInPlace  OperationKind = "RestoreInPlace"
)

// ParseOperationKind reads the kind of a request, exactly.
func ParseOperationKind(text string) (OperationKind, bool) {
	kind := OperationKind(text)
	return kind, kind == PlannedFailover || kind == OrderedUpdate || kind == RestoreInPlace
}

// Phases of a planned operation that slipway writes or has to understand.
const (
	PhaseDeferred  = "Deferred"
	PhasePending   = "Pending"
	PhaseSucceeded = "Succeeded"
	PhaseFailed    = "Failed"

	// ReasonDeploymentHold is the reason of a Deferred planned failover.
	ReasonDeploymentHold = "DeploymentHold"
	// ReasonConcurrentOperation refuses a second request for a group.
	ReasonConcurrentOperation = "ConcurrentOperation"
)

// Reasons of Revalidate for the target of a planned failover.
const (
	ReasonTargetUnknown        = "TargetUnknown"
	ReasonTargetNotReadOnly    = "TargetNotReadOnly"
	ReasonTargetNotReplicating = "TargetNotReplicating"
)

// FailoverRequest is AnnotationPlannedFailover: <site>[:key=value…]. The options
// are the operator's and stay as they were written.
type FailoverRequest struct {
	Site    string
	Options string
}

// ParsePlannedFailover reads AnnotationPlannedFailover. A request without a site
// or with a site that is no name is an error; whether the group has the site is
// Revalidate's to say.
func ParsePlannedFailover(annotation string) (FailoverRequest, error) {
	site, options, _ := strings.Cut(annotation, ":")
	if !ValidName(site) {
		return FailoverRequest{}, errors.New("planned failover names no valid site")
	}
	return FailoverRequest{Site: site, Options: options}, nil
}

// Reservation is AnnotationPlannedOperation: <kind>/<phase>. An OrderedUpdate or
// a RestoreInPlace waits in Deferred and is handed over in Pending.
type Reservation struct {
	Kind  OperationKind
	Phase string
}

// ParseReservation reads AnnotationPlannedOperation.
func ParseReservation(annotation string) (Reservation, bool) {
	kind, phase, _ := strings.Cut(annotation, "/")
	reservation := Reservation{Kind: OperationKind(kind), Phase: phase}
	_, known := ParseOperationKind(kind)
	return reservation, known && phase != "" && !strings.Contains(phase, "/")
}

// String is the annotation.
func (r Reservation) String() string { return string(r.Kind) + "/" + r.Phase }

// Reservation of the group, if it has one that stands. One that is finished, or
// that slipway cannot have written, reserves nothing.
func (g Group) Reservation() (Reservation, bool) {
	reservation, ok := ParseReservation(g.PlannedOperation.Value)
	return reservation, ok && running(reservation.Phase)
}

func (g Group) reservedBut(kind, own OperationKind) bool {
	reservation, stands := g.Reservation()
	return stands && reservation.Kind == kind && !(own == kind && reservation.Phase == PhaseDeferred)
}

// InFlight says whether status reports the operation as requested and not over;
// for a planned failover that includes Deferred.
func (g Group) InFlight(kind OperationKind) bool {
	switch kind {
	case PlannedFailover:
		return slices.Contains([]string{
			PhaseDeferred, PhasePending, "Validating", "Draining", "WaitingForLag", "WaitingForDragonflySync",
			"PromotingDragonfly", "Promoting", "Resuming",
		}, g.PlannedFailover.Phase)
	case OrderedUpdate:
		return running(g.UpdatePhase)
	case RestoreInPlace:
		return running(g.RestoreInPlacePhase)
	}
	return false
}

// Operation is the planned operation that is in flight or reserved, or "".
func (g Group) Operation() OperationKind {
	for _, kind := range []OperationKind{PlannedFailover, OrderedUpdate, RestoreInPlace} {
		if g.InFlight(kind) || g.reservedBut(kind, "") {
			return kind
		}
	}
	return ""
}

func running(phase string) bool {
	return phase != "" && phase != PhaseSucceeded && phase != PhaseFailed
}

// Revalidate says whether a Deferred operation may be handed over: the group is
// stable but for the operation itself, its topology has settled, and the target
// of a failover is a site of the spec that is read-only and replicates. The
// targets of the other two are the operator's to judge. It returns the reason
// against, or "". See Transient for reasons that are worth another look.
func (g Group) Revalidate(kind OperationKind, target string) string {
	if reason := g.unstableBut(kind); reason != "" {
		return reason
	}
	if g.Topology(false).Pending() {
		return ReasonTopologyPending
	}
	if kind != PlannedFailover {
		return ""
	}
	site, observed := g.Site(target)
	switch {
	case !observed || !slices.Contains(g.Sites, target):
		return ReasonTargetUnknown
	case site.State != siteReadOnly:
		return ReasonTargetNotReadOnly
	case !site.Replicating:
		return ReasonTargetNotReplicating
	}
	return ""
}
