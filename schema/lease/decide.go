package lease

import (
	"slices"
	"time"
)

// VerdictKind is what a request comes to.
type VerdictKind string

const (
	// VerdictGrant: write a new record.
	VerdictGrant VerdictKind = "grant"
	// VerdictRenew: extend the record; for a POST also replace its token.
	VerdictRenew VerdictKind = "renew"
	// VerdictRelease: write that the record is released.
	VerdictRelease VerdictKind = "release"
	// VerdictHeld: 409 with Holder.
	VerdictHeld VerdictKind = "held"
	// VerdictRevoked: 409 with Reason and Generation, 204 for a DELETE.
	VerdictRevoked VerdictKind = "revoked"
	// VerdictUnstable: 423 with Reason.
	VerdictUnstable VerdictKind = "unstable"
	// VerdictForbidden: 403 forbidden.
	VerdictForbidden VerdictKind = "forbidden"
	// VerdictTokenMismatch: 403 token_mismatch.
	VerdictTokenMismatch VerdictKind = "token_mismatch"
	// VerdictNotFound: no lease, or one that is over. 404, 204 for a DELETE.
	VerdictNotFound VerdictKind = "not_found"
)

// Verdict is a decision on a request.
type Verdict struct {
	Kind VerdictKind `json:"kind"`
	// Holder is the lease in the way, for VerdictHeld. Clients see its
	// operationId, instance and expiresAt.
	Holder *View `json:"holder,omitempty"`
	// Reason of revoked and unstable.
	Reason string `json:"reason,omitempty"`
	// Generation of the group now.
	Generation int64 `json:"generation"`
	// Sweep is true where a live record has to be revoked before the request may
	// be answered like this: revoke what Group.Revokes names (for a migration
	// the tombstone first), read everything again and decide again.
	Sweep bool `json:"sweep,omitempty"`
}

// Caller is who renews or releases, after authorization.
type Caller struct {
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"serviceAccount"`
	// Instances that the caller is authorized for in the group. A lease of any
	// of them is the caller's own.
	Instances []string `json:"instances"`
}

func (c Caller) owns(record *Record, tokenHash string) bool {
	matches := record.Matches(tokenHash)
	return matches && record.Namespace == c.Namespace && record.ServiceAccount == c.ServiceAccount &&
		slices.Contains(c.Instances, record.Instance)
}

// Revokes says whether a live record of this group has to be revoked, and why:
// its generation is not the group's any more, or somebody asked for it. Records
// that are over need no revocation.
func (g Group) Revokes(now time.Time, record Record) (Reason, bool) {
	switch {
	case !record.Live(now):
		return "", false
	case record.TopologyGeneration != g.Generation:
		return ReasonTopologyChanged, true
	case g.RevokeRequested():
		return ReasonOperatorRevoked, true
	}
	return "", false
}

// closed is the reason for which nothing is admitted whatever the records say,
// or "": the topology has not settled or revocations are not all written yet.
func (g Group) closed() string {
	switch {
	case g.Topology(false).Pending():
		return ReasonTopologyPending
	case g.RevokeRequested():
		return ReasonRevocationPending
	}
	return ""
}

// DecideGrant decides a POST of holder. mutex is the record of MutexName,
// whoever holds it, own that of OperationName: a hold, or a migration's
// tombstone. They are nil where the group has no such record.
func DecideGrant(now time.Time, group Group, mutex, own *Record, kind Kind, holder Holder) Verdict {
	verdict := func(kind VerdictKind, reason string) Verdict {
		return Verdict{Kind: kind, Reason: reason, Generation: group.Generation}
	}
	if reason := group.closed(); reason != "" {
		return verdict(VerdictUnstable, reason)
	}
	if record := deciding(mutex, own, kind, holder.OperationID); record != nil && record.State == StateRevoked {
		return verdict(VerdictRevoked, string(record.Reason))
	}
	// Left by a grant that lost its second look and then its process.
	for _, record := range []*Record{mutex, own} {
		if record == nil {
			continue
		}
		if _, stale := group.Revokes(now, *record); stale {
			sweep := verdict(VerdictUnstable, ReasonRevocationPending)
			sweep.Sweep = true
			return sweep
		}
	}
	place := mutex
	if kind == KindHold {
		if mutex == nil || mutex.Kind != KindMigration || !mutex.Live(now) || mutex.Holder() != holder {
			return verdict(VerdictForbidden, "")
		}
		place = own
	}
	live := place != nil && place.Live(now)
	if live && (place.Kind != kind || place.Holder() != holder) {
		held := verdict(VerdictHeld, "")
		view := place.View()
		held.Holder = &view
		return held
	}
	if reason := group.Unstable(); reason != "" {
		return verdict(VerdictUnstable, reason)
	}
	if live {
		return verdict(VerdictRenew, "")
	}
	return verdict(VerdictGrant, "")
}

// DecideRenew decides a PUT, in the order of the lease contract: no record,
// another holder or token, revoked, over, not settled. mutex and own are as for
// DecideGrant.
func DecideRenew(now time.Time, group Group, mutex, own *Record, kind Kind, operationID string, caller Caller, tokenHash string) Verdict {
	verdict := decideOwned(now, group, mutex, own, kind, operationID, caller, tokenHash)
	if verdict.Kind == VerdictRenew && group.Topology(false).Pending() {
		verdict.Kind, verdict.Reason = VerdictUnstable, ReasonTopologyPending
	}
	return verdict
}

// DecideRelease decides a DELETE, in the same order but without the gate: a
// release makes nothing worse. Revoked and not found are a 204 like a release
// and write nothing, except that a record that has to be revoked is revoked
// (Sweep) and not released, because a released operation could come again.
func DecideRelease(now time.Time, group Group, mutex, own *Record, kind Kind, operationID string, caller Caller, tokenHash string) Verdict {
	verdict := decideOwned(now, group, mutex, own, kind, operationID, caller, tokenHash)
	if verdict.Kind == VerdictRenew {
		verdict.Kind = VerdictRelease
	}
	return verdict
}

// decideOwned is what PUT and DELETE have in common; VerdictRenew means that the
// lease is live and the caller's.
func decideOwned(now time.Time, group Group, mutex, own *Record, kind Kind, operationID string, caller Caller, tokenHash string) Verdict {
	record := deciding(mutex, own, kind, operationID)
	verdict := Verdict{Kind: VerdictRenew, Generation: group.Generation}
	if record == nil {
		verdict.Kind = VerdictNotFound
		return verdict
	}
	// The token may have been rotated between the tombstone and the mutex of one
	// revocation; its client is to learn that it was revoked, too.
	if !caller.owns(record, tokenHash) && !(mutex.is(kind, operationID) && caller.owns(mutex, tokenHash)) {
		verdict.Kind = VerdictTokenMismatch
		return verdict
	}
	switch reason, stale := group.Revokes(now, *record); {
	case record.State == StateRevoked:
		verdict.Kind, verdict.Reason = VerdictRevoked, string(record.Reason)
	case !record.Live(now):
		verdict.Kind = VerdictNotFound
	case stale:
		verdict.Kind, verdict.Reason, verdict.Sweep = VerdictRevoked, string(reason), true
	}
	return verdict
}

// deciding is the record that decides for an operation. A tombstone beats a
// mutex of the same operation, because it is written first; what else stands in
// the object of a migration's operation means nothing.
func deciding(mutex, own *Record, kind Kind, operationID string) *Record {
	if own.is(kind, operationID) && (kind == KindHold || own.State == StateRevoked) {
		return own
	}
	if kind == KindMigration && mutex.is(kind, operationID) {
		return mutex
	}
	return nil
}

func (r *Record) is(kind Kind, operationID string) bool {
	return r != nil && r.Kind == kind && r.OperationID == operationID
}
