package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Kind of a lease.
type Kind string

const (
	// KindMigration is the mutex of a group: one at a time.
	KindMigration Kind = "migration"
	// KindHold defers planned operations; a group may have several.
	KindHold Kind = "failover-hold"
)

// ParseKind reads a kind as it stands in a path or a body, exactly.
func ParseKind(text string) (Kind, bool) {
	kind := Kind(text)
	return kind, kind == KindMigration || kind == KindHold
}

// State of a record.
type State string

// The states of a record; see the package comment for what leads where.
const (
	StateActive   State = "active"
	StateReleased State = "released"
	StateExpired  State = "expired"
	StateRevoked  State = "revoked"
)

func (s State) valid() bool {
	return s == StateActive || s == StateReleased || s == StateExpired || s == StateRevoked
}

// Reason of a revocation, as clients see it in a 409.
type Reason string

// The two reasons that clients know.
const (
	ReasonTopologyChanged Reason = "topology_changed"
	ReasonOperatorRevoked Reason = "operator_revoked"
)

// RevokeReason reads the reason somebody gave for a revocation. Any text but
// topology_changed counts as operator_revoked, so that nothing a person types
// into a signal reaches clients, metrics or Events.
func RevokeReason(text string) Reason {
	if Reason(text) == ReasonTopologyChanged {
		return ReasonTopologyChanged
	}
	return ReasonOperatorRevoked
}

// Names on the objects in the cluster. Those of Bloodraven are shared with the
// operator and never change.
const (
	// AnnotationRecord of a Lease object holds its Record as JSON.
	AnnotationRecord = "bloodraven.shipstream.io/deployment-lease"
	// LabelKind and LabelState of a Lease object repeat two members of the
	// record, for selectors and people only.
	LabelKind  = "bloodraven.shipstream.io/deployment-kind"
	LabelState = "bloodraven.shipstream.io/deployment-state"
	// AnnotationRevoke of a group asks to revoke all its leases; its value is
	// free text and may be empty.
	AnnotationRevoke = "bloodraven.shipstream.io/revoke-deployment-leases"
	// AnnotationPlannedFailover of a group asks for a planned failover, see
	// ParsePlannedFailover.
	AnnotationPlannedFailover = "bloodraven.shipstream.io/planned-failover"
	// AnnotationTopology of a group is the last Topology seen.
	AnnotationTopology = "slipway/observed-topology"
	// AnnotationPlannedOperation of a group is its Reservation.
	AnnotationPlannedOperation = "slipway/planned-operation"

	// EventRevoked is the reason of the Warning on the group for each
	// revoked lease.
	EventRevoked = "DeploymentLeaseRevoked"
	// EventDeferred is the reason of the Event on the group when a hold
	// defers a planned failover.
	EventDeferred = "PlannedFailoverDeferred"
)

const (
	namePrefix = "bloodraven-deploy-"
	maxName    = 63
	keptOfName = 38
)

// MutexName is the name of the Lease object of the group's migration mutex.
func MutexName(group string) string {
	return shorten(namePrefix + group + "-" + string(KindMigration))
}

// OperationName is the name of the Lease object that belongs to one operation
// alone: a hold, or the tombstone of a revoked migration.
func OperationName(group string, kind Kind, operationID string) string {
	sum := sha256.Sum256([]byte(operationID))
	return shorten(namePrefix + group + "-" + string(kind) + "-" + hex.EncodeToString(sum[:16]))
}

// shorten keeps names within 63 characters, because the operator does: a Lease
// could have a longer name, but then the two would not find each other's.
func shorten(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:keptOfName], "-.") + "-" + hex.EncodeToString(sum[:12])
}

// ValidName says whether the text is a DNS-1123 subdomain as Kubernetes has it
// for names of objects: at most 253 characters, lower-case labels between dots.
// Like Kubernetes it sets no limit for a single label.
func ValidName(text string) bool {
	if text == "" || len(text) > 253 {
		return false
	}
	for label := range strings.SplitSeq(text, ".") {
		if !validLabel(label) {
			return false
		}
	}
	return true
}

// ValidNamespace says whether the text is a DNS-1123 label of at most 63
// characters, which names of namespaces are.
func ValidNamespace(text string) bool { return len(text) <= 63 && validLabel(text) }

func validLabel(label string) bool {
	if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		c := label[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// ParseServiceAccount splits the user name of a TokenReview,
// system:serviceaccount:<namespace>:<name>. Any other user is not ok.
func ParseServiceAccount(user string) (namespace, name string, ok bool) {
	rest, found := strings.CutPrefix(user, "system:serviceaccount:")
	if !found {
		return "", "", false
	}
	namespace, name, _ = strings.Cut(rest, ":")
	if !ValidNamespace(namespace) || !ValidName(name) {
		return "", "", false
	}
	return namespace, name, true
}

// ValidOperation says whether the text can be an operationId: 1 to 128 bytes of
// UTF-8 without control characters. Slashes, spaces and other scripts are fine.
func ValidOperation(text string) bool {
	return text != "" && len(text) <= 128 && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// The limits of a lease's time to live.
const (
	MinTTL = 5 * time.Second
	MaxTTL = 120 * time.Second
)

// ClampTTL turns ttlSeconds of a request into a duration within [MinTTL, MaxTTL].
func ClampTTL(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, int64(MinTTL/time.Second)), int64(MaxTTL/time.Second))) * time.Second
}

// RetryAfterSeconds is what a 423 tells the client to wait.
const RetryAfterSeconds = 1

// NewToken makes a lease token, 64 lower-case hex digits of 32 bytes read from
// random, which has to be a cryptographic source. The only error is that of the
// source.
func NewToken(random io.Reader) (string, error) {
	var secret [32]byte
	if _, err := io.ReadFull(random, secret[:]); err != nil {
		return "", fmt.Errorf("read randomness for a lease token: %w", err)
	}
	return hex.EncodeToString(secret[:]), nil
}

// HashToken is what is stored of a token: its SHA-256 as 64 lower-case hex digits.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
