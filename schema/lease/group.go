package lease

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Annotation is one annotation of an object: its presence matters where its
// value may be empty.
type Annotation struct {
	Present bool
	Value   string
}

// Group is what slipway reads of a MysqlFailoverGroup. Absent members are zero.
type Group struct {
	Namespace, Name, UID, ResourceVersion string
	// Deleting is true once the object has a deletionTimestamp.
	Deleting bool

	// The four annotations of interest.
	Revoke           Annotation // AnnotationRevoke
	FailoverRequest  Annotation // AnnotationPlannedFailover
	ObservedTopology Annotation // AnnotationTopology
	PlannedOperation Annotation // AnnotationPlannedOperation

	// Sites are the names in spec.sites.
	Sites      []string
	ActiveSite string
	// Generation is status.topologyGeneration, 0 when there is none.
	Generation      int64
	Conditions      []Condition
	SiteStatuses    []SiteStatus
	PlannedFailover PlannedFailoverStatus

	UpdatePhase           string
	RestorePhase          string
	RestoreInPlacePhase   string
	DragonflyPhase        string
	DragonflyUpgradePhase string
}

// Condition is a member of status.conditions.
type Condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason"`
}

// SiteStatus is a member of status.sites.
type SiteStatus struct {
	Name string `json:"name"`
	// State is unknown, unreachable, read-only or writable.
	State       string `json:"state"`
	Replicating bool   `json:"replicating"`
	// SecondsBehindSource is nil when it is not known.
	SecondsBehindSource *float64 `json:"secondsBehindSource"`
	// RecoveryState is empty, RecoveryInProgress or RecoveryBlocked.
	RecoveryState string `json:"recoveryState"`
	// SourceConvergenceState is empty, Converged, Pending or Blocked.
	SourceConvergenceState string `json:"sourceConvergenceState"`
}

const (
	siteReadOnly = "read-only"
	siteWritable = "writable"
)

// PlannedFailoverStatus is status.plannedFailover. Times are RFC 3339 texts as
// they stand in the object.
type PlannedFailoverStatus struct {
	Phase         string `json:"phase"`
	Reason        string `json:"reason"`
	Message       string `json:"message"`
	Target        string `json:"target"`
	SourcePrimary string `json:"sourcePrimary"`
	StartTime     string `json:"startTime"`
	RetryAfter    string `json:"retryAfter"`
}

// metadata is what both resources have.
type metadata struct {
	Namespace         string            `json:"namespace"`
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	DeletionTimestamp *string           `json:"deletionTimestamp"`
	Annotations       map[string]string `json:"annotations"`
}

func (m metadata) annotation(name string) Annotation {
	value, present := m.Annotations[name]
	return Annotation{Present: present, Value: value}
}

type phased struct {
	Phase string `json:"phase"`
}

// ParseGroup reads the JSON of a MysqlFailoverGroup. Members that slipway does
// not read may be anything; one that it does read and that has another type is
// an error, because to take it for absent could make an unstable group stable.
func ParseGroup(raw []byte) (Group, error) {
	var object struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			Sites []struct {
				Name string `json:"name"`
			} `json:"sites"`
		} `json:"spec"`
		Status struct {
			ActiveSite         string                `json:"activeSite"`
			TopologyGeneration int64                 `json:"topologyGeneration"`
			Conditions         []Condition           `json:"conditions"`
			Sites              []SiteStatus          `json:"sites"`
			PlannedFailover    PlannedFailoverStatus `json:"plannedFailover"`
			UpdatePhase        string                `json:"updatePhase"`
			Restore            phased                `json:"restore"`
			RestoreInPlace     phased                `json:"restoreInPlace"`
			Dragonfly          struct {
				phased
				Upgrade phased `json:"upgrade"`
			} `json:"dragonfly"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return Group{}, fmt.Errorf("read MysqlFailoverGroup: %w", err)
	}
	meta, status := object.Metadata, object.Status
	if !ValidName(meta.Name) || !ValidNamespace(meta.Namespace) {
		return Group{}, fmt.Errorf("read MysqlFailoverGroup: no name or no namespace")
	}
	group := Group{
		Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		Deleting: meta.DeletionTimestamp != nil,

		Revoke:           meta.annotation(AnnotationRevoke),
		FailoverRequest:  meta.annotation(AnnotationPlannedFailover),
		ObservedTopology: meta.annotation(AnnotationTopology),
		PlannedOperation: meta.annotation(AnnotationPlannedOperation),

		ActiveSite: status.ActiveSite, Generation: status.TopologyGeneration,
		Conditions: status.Conditions, SiteStatuses: status.Sites, PlannedFailover: status.PlannedFailover,
		UpdatePhase: status.UpdatePhase, RestorePhase: status.Restore.Phase, RestoreInPlacePhase: status.RestoreInPlace.Phase,
		DragonflyPhase: status.Dragonfly.Phase, DragonflyUpgradePhase: status.Dragonfly.Upgrade.Phase,
	}
	for _, site := range object.Spec.Sites {
		group.Sites = append(group.Sites, site.Name)
	}
	return group, nil
}

// RevokeRequested says whether somebody asked to revoke all leases of the group.
func (g Group) RevokeRequested() bool { return g.Revoke.Present }

// Same says whether other, read later, is the group with the same fence: what
// was decided on this one still holds for leases that were granted before.
func (g Group) Same(other Group) bool {
	return g.UID == other.UID && g.ActiveSite == other.ActiveSite && g.Generation == other.Generation
}

// Site is the status of the named site.
func (g Group) Site(name string) (SiteStatus, bool) {
	at := slices.IndexFunc(g.SiteStatuses, func(s SiteStatus) bool { return s.Name == name })
	if at < 0 {
		return SiteStatus{}, false
	}
	return g.SiteStatuses[at], true
}

// followers are all observed sites but the active one. Sites that have left the
// spec and not yet the status count: one that still takes writes is a danger.
func (g Group) followers() []SiteStatus {
	return slices.DeleteFunc(slices.Clone(g.SiteStatuses), func(s SiteStatus) bool { return s.Name == g.ActiveSite })
}

// unobserved says whether a site of the spec has no status.
func (g Group) unobserved() bool {
	return slices.ContainsFunc(g.Sites, func(name string) bool {
		_, seen := g.Site(name)
		return !seen
	})
}

// condition is the condition of that type, if its status is True.
func (g Group) condition(kind string) (Condition, bool) {
	at := slices.IndexFunc(g.Conditions, func(c Condition) bool { return c.Type == kind && c.Status == "True" })
	if at < 0 {
		return Condition{}, false
	}
	return g.Conditions[at], true
}
