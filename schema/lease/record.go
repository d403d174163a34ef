package lease

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Holder is who holds a lease. Two holders are the same only if all four agree.
type Holder struct {
	OperationID string `json:"operationId"`
	// Instance is the name of the MysqlDatabase.
	Instance string `json:"instance"`
	// Namespace and ServiceAccount are the caller's, not the group's.
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"serviceAccount"`
}

// Record is the annotation AnnotationRecord of a Lease object, which decides
// everything about the lease; the Lease's spec is a projection of it.
type Record struct {
	Kind        Kind   `json:"kind"`
	OperationID string `json:"operationId"`
	Instance    string `json:"instance"`
	// ExpiresAt is the last moment the lease holds, in UTC, whole microseconds.
	ExpiresAt time.Time `json:"expiresAt"`
	// TopologyGeneration of the group at the grant, at least 1.
	TopologyGeneration int64  `json:"topologyGeneration"`
	Namespace          string `json:"namespace"`
	ServiceAccount     string `json:"serviceAccount"`
	// TokenHash is HashToken of the current token.
	TokenHash string `json:"tokenHash"`
	// CreatedAt is the time of the first grant; renewals and re-grants keep it.
	CreatedAt time.Time `json:"createdAt"`
	State     State     `json:"state"`
	// Reason is set for a revoked record and empty otherwise.
	Reason Reason `json:"reason,omitempty"`
}

// stored is a time as objects hold it. A Kubernetes MicroTime has six digits,
// and what a client is told has to be what the object says.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// ParseRecord reads the annotation AnnotationRecord. It is strict about every
// member it knows, so that an annotation broken by hand is an error and never
// half a lease; members it does not know are left to newer writers. A revoked
// record stays revoked whatever its reason says (see RevokeReason).
func ParseRecord(annotation string) (Record, error) {
	var record Record
	if err := json.Unmarshal([]byte(annotation), &record); err != nil {
		// The error of encoding/json may quote the text, which may hold a hash.
		return Record{}, errors.New("lease record is not the JSON of a record")
	}
	if err := record.check(); err != nil {
		return Record{}, err
	}
	record.ExpiresAt, record.CreatedAt = record.ExpiresAt.UTC(), record.CreatedAt.UTC()
	if record.State == StateRevoked {
		record.Reason = RevokeReason(string(record.Reason))
	}
	return record, nil
}

// Encode is the annotation of the record, its times cut to microseconds.
func (r Record) Encode() string {
	r.ExpiresAt, r.CreatedAt = stored(r.ExpiresAt), stored(r.CreatedAt)
	// Only years beyond 9999 cannot be encoded, and check refuses them. Were
	// there one, the empty annotation would be one that nobody takes for a lease.
	text, _ := json.Marshal(r)
	return string(text)
}

// check names the first member that is missing or wrong, never its value.
func (r Record) check() error {
	_, kind := ParseKind(string(r.Kind))
	for _, member := range []struct {
		name string
		good bool
	}{
		{"kind", kind},
		{"operationId", ValidOperation(r.OperationID)},
		{"instance", ValidName(r.Instance)},
		{"expiresAt", validTime(r.ExpiresAt)},
		{"topologyGeneration", r.TopologyGeneration >= 1},
		{"namespace", ValidNamespace(r.Namespace)},
		{"serviceAccount", ValidName(r.ServiceAccount)},
		{"tokenHash", len(r.TokenHash) == 64 && strings.Trim(r.TokenHash, "0123456789abcdef") == ""},
		{"createdAt", validTime(r.CreatedAt)},
		{"state", r.State.valid()},
	} {
		if !member.good {
			return fmt.Errorf("lease record has no valid %s", member.name)
		}
	}
	return nil
}

func validTime(t time.Time) bool { return !t.IsZero() && t.UTC().Year() <= 9999 }

// Holder of the record.
func (r Record) Holder() Holder {
	return Holder{OperationID: r.OperationID, Instance: r.Instance, Namespace: r.Namespace, ServiceAccount: r.ServiceAccount}
}

// Live says whether the lease has effect: active and not past its deadline. At
// the deadline itself it still holds.
func (r Record) Live(now time.Time) bool { return r.State == StateActive && !now.After(r.ExpiresAt) }

// Lapsed says whether the deadline has passed and nobody has written so yet.
func (r Record) Lapsed(now time.Time) bool { return r.State == StateActive && now.After(r.ExpiresAt) }

// Deadline is when to look at a live record again: its expiry, or MaxTTL from
// now where a person (or a clock that jumped) put the expiry further away than
// any grant could. The lease still has effect until ExpiresAt: see the package
// comment.
func (r Record) Deadline(now time.Time) time.Time {
	if latest := now.Add(MaxTTL); r.ExpiresAt.After(latest) {
		return latest
	}
	return r.ExpiresAt
}

// SecondsLeft is spec.leaseDurationSeconds of the Lease: the whole seconds until
// the deadline, rounded up, so that whoever adds them to renewTime never takes a
// lease for gone that still holds. At least 1, also for an ended record, because
// the API server refuses 0.
func (r Record) SecondsLeft(now time.Time) int32 {
	if !r.Live(now) {
		return 1
	}
	left := r.Deadline(now).Sub(now)
	return int32(max((left+time.Second-1)/time.Second, 1))
}

// View of the record, without its holder's identity and its hash.
func (r Record) View() View {
	return View{
		Kind: r.Kind, OperationID: r.OperationID, Instance: r.Instance,
		ExpiresAt: r.ExpiresAt, TopologyGeneration: r.TopologyGeneration,
	}
}

// Matches compares the stored hash with HashToken of the presented token, in
// constant time.
func (r Record) Matches(tokenHash string) bool {
	return subtle.ConstantTimeCompare([]byte(r.TokenHash), []byte(tokenHash)) == 1
}
