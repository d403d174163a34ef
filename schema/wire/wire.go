package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
)

// Task queues. Slots of the nix queue are not its poll capacity: its
// activities say NoSlot at once when all slots of their process are in use.
const (
	QueueMain   = "slipway"
	QueueNix    = "slipway-nix"
	QueueDeploy = "slipway-deploy"
)

// Workflow types, as the Web UI and the CLI show them.
const (
	WorkflowSubmit      = "Submit"
	WorkflowImport      = "Import"
	WorkflowPreview     = "Preview"
	WorkflowDestroy     = "Destroy"
	WorkflowSchemaBuild = "SchemaBuild"
)

// Updates.
const (
	// UpdateSubmit checks, evaluates and records; with secrets to write it is
	// answered before the record, and UpdateCommit follows. Argument
	// SubmitRequest, result SubmitAnswer.
	UpdateSubmit = "submit"
	// UpdateImport is UpdateSubmit of an import. Argument ImportRequest, result
	// SubmitAnswer.
	UpdateImport = "import"
	// UpdateCommit writes the secrets of a submit or import and records it.
	// Argument CommitRequest, result SubmitAnswer.
	UpdateCommit = "commit"
	// UpdateDestroy records. No argument, result DestroyAnswer.
	UpdateDestroy = "destroy"
	// UpdateCancel ends a queued build or asks the deployer of a running one
	// to stop. No argument, result CancelAnswer.
	UpdateCancel = "cancel"
)

// Search attributes.
const (
	AttributeDeployment = "SlipwayDeployment" // Keyword
	AttributeBuild      = "SlipwayBuild"      // Int
	AttributeGroup      = "SlipwayGroup"      // Keyword, namespace/name
	AttributeLeaseKind  = "SlipwayLeaseKind"  // Keyword
)

// Types of application errors. Who receives one matches the type, never the
// text; the text is for the caller of the API.
const (
	ErrorInvalidConfiguration = "InvalidConfiguration"
	ErrorEvaluationFailed     = "EvaluationFailed"
	ErrorIdempotencyConflict  = "IdempotencyConflict"
	// ErrorUnavailable: a step failed, and it is not known whether the request
	// was recorded all the same.
	ErrorUnavailable = "Unavailable"
	// ErrorNothingRecorded: a step before the record failed.
	ErrorNothingRecorded = "NothingRecorded"
	// ErrorNoSlot: as many configurations are evaluated as may be at once.
	// Nothing was recorded.
	ErrorNoSlot            = "NoSlot"
	ErrorUnknownDeployment = "UnknownDeployment"
	ErrorAlreadyExists     = "AlreadyExists"
	ErrorBuildFailed       = "BuildFailed"
	ErrorSourceFailed      = "SourceFailed"
	// ErrorSourceMayPass: the source failed, and the same source need not fail
	// again: it met a limit, or its deployer did not build.
	ErrorSourceMayPass = "SourceMayPass"
	// ErrorFenceHeld: a deployer may still run; ask again later.
	ErrorFenceHeld = "FenceHeld"
	// ErrorAlreadyRan: a deploy whose deployer was started before never runs
	// again. What became of it is staged with the build, or will not be.
	ErrorAlreadyRan = "AlreadyRan"
	// ErrorNotItsBuild: the build is not that of the workflow, because the
	// database was restored to an earlier time. The workflow ends.
	ErrorNotItsBuild = "NotItsBuild"
	// ErrorSubmitInProgress: another submit of the deployment has its secrets
	// in hand.
	ErrorSubmitInProgress = "SubmitInProgress"
	// ErrorSecretsSpent: the values on their way to OpenBao waited too long, or
	// were taken by a try that failed. The caller submits again.
	ErrorSecretsSpent = "SecretsSpent"
	// ErrorSecretsLeft: the secrets of an ended build could not be deleted.
	ErrorSecretsLeft = "SecretsLeft"
	// ErrorSupervisorLost: the supervisor of a deployer died. Nothing runs any
	// more, and its fence lapses before the next try.
	ErrorSupervisorLost = "SupervisorLost"
	// ErrorNotLeader: another process looks after leases now, or soon will.
	ErrorNotLeader = "NotLeader"
	// ErrorBrokenLease: a Lease object is no record; a person has to look.
	ErrorBrokenLease = "BrokenLease"
)

// SubmitInput starts a Submit or an Import workflow.
type SubmitInput struct {
	Deployment string `json:"deployment"`
	// Request is what makes the submit or import unique for its deployment: the hash of
	// the idempotency key, or a UUID.
	Request string `json:"request"`
}

// SubmitRequest is the argument of the update submit.
type SubmitRequest struct {
	// Snapshot is the store path of the module source whose schema accepted
	// the configuration; the build deploys that one.
	Snapshot string `json:"snapshot"`
	// Configuration has no secret values.
	Configuration json.RawMessage `json:"configuration"`
	// Secrets are the applications with operator secrets, as names; none where
	// no OpenBao is configured.
	Secrets []configuration.ApplicationSecrets `json:"secrets,omitempty"`
	// StoredBuild is the newest build, or 0, when the values of secrets were
	// found in the stored configuration; nil where none were.
	StoredBuild *int64 `json:"storedBuild,omitempty"`
}

// ImportRequest is the argument of the update import.
type ImportRequest struct {
	SubmitRequest
	// Deploy: the import becomes a build. Without, it only stores the
	// configuration.
	Deploy bool `json:"deploy"`
}

// CommitRequest brings the secrets of a submit.
type CommitRequest struct {
	// Wrapped is an OpenBao response-wrapping token: single use, 60 s. Empty
	// gives the submit up.
	Wrapped string `json:"wrapped"`
}

// SubmitAnswer says which build a submit or import became, or that it is ready
// to become one.
type SubmitAnswer struct {
	// Ready: it passed all checks, and waits for its secrets by UpdateCommit.
	Ready bool `json:"ready,omitempty"`
	// Build is 0 for an import that deploys nothing.
	Build      int64                 `json:"build"`
	Evaluation deployment.Evaluation `json:"evaluation"`
}

// PreviewInput starts a Preview workflow.
type PreviewInput struct {
	Deployment    string          `json:"deployment"`
	Snapshot      string          `json:"snapshot"`
	Configuration json.RawMessage `json:"configuration"`
}

// DestroyInput starts a Destroy workflow.
type DestroyInput struct {
	Deployment string `json:"deployment"`
	Request    string `json:"request"`
	// Secrets: OpenBao may have secrets of the deployment, which go with it.
	Secrets bool `json:"secrets,omitempty"`
	// Callback names an offer in PostgreSQL, which has the URL and the token of
	// the call to the front-end; empty without one.
	Callback string `json:"callback,omitempty"`
	// CallbackRefused is why a callback was asked for and is not allowed.
	CallbackRefused string `json:"callbackRefused,omitempty"`
}

// DestroyAnswer says which build a destroy became, or that nothing is up.
type DestroyAnswer struct {
	Build int64 `json:"build,omitempty"`
	Idle  bool  `json:"idle,omitempty"`
	// Callback: the offered callback is that of the build.
	Callback bool `json:"callback,omitempty"`
}

// CancelAnswer is the status of the build after a cancel.
type CancelAnswer struct {
	Status deployment.Status `json:"status"`
}

// BuildResult is the result of a Submit, an Import and a Destroy workflow.
type BuildResult struct {
	// Outcome is the final status of the build, "joined" where an earlier
	// destroy takes it to its end, or "refused", "idle", "stored" (an import that
	// deploys nothing) or "no request" where there is none.
	Outcome string `json:"outcome"`
	Build   int64  `json:"build,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Evaluated is what an evaluation of a configuration gave. The result itself
// is a row of the evaluation cache under Key.
type Evaluated struct {
	Key string `json:"key,omitempty"`
	// NoSlot: every slot of the process was in use; nothing was evaluated.
	NoSlot bool `json:"noSlot,omitempty"`
	// Missing: asked from the cache alone, and it has none.
	Missing bool `json:"missing,omitempty"`
	// Refusal: the configuration does not evaluate.
	Refusal *Refusal `json:"refusal,omitempty"`
}

// Refusal is why a configuration does not evaluate.
type Refusal struct {
	// Type is ErrorInvalidConfiguration or ErrorEvaluationFailed.
	Type    string `json:"type"`
	Message string `json:"message"`
}

// SystemsEvaluated is what evaluating the systems of all nodes gave. With
// neither NoSlot nor Problems every system evaluates.
type SystemsEvaluated struct {
	// NoSlot: every slot of the process was in use; nothing was evaluated.
	NoSlot bool `json:"noSlot,omitempty"`
	// Problems are the nodes whose systems do not evaluate, in order of their
	// names. Together they have at most MaxProblemBytes of text; where that is
	// not enough for all, the last one has no node, and the names of the others
	// as its message.
	Problems []NodeProblem `json:"problems,omitempty"`
	// Broken is how many nodes have systems that do not evaluate.
	Broken int `json:"broken,omitempty"`
}

// MaxProblemBytes bounds the texts of the problems of one import.
const MaxProblemBytes = 48 << 10

// NodeProblem is why the system of a node does not evaluate. The details of a
// refused import are a []NodeProblem.
type NodeProblem struct {
	// Node is empty for a problem that names several.
	Node string `json:"node"`
	Refusal
}

// SchemaBuildInput starts a SchemaBuild workflow.
type SchemaBuildInput struct {
	Snapshot string `json:"snapshot"`
	Entry    string `json:"entry"`
}

// SubmitID is the ID of the workflow of one submit.
func SubmitID(deployment, request string) string { return id("submit", deployment, request) }

// ImportID is the ID of the workflow of one import.
func ImportID(deployment, request string) string { return id("import", deployment, request) }

// PreviewID is the ID of the workflow of one preview.
func PreviewID(request string) string { return id("preview", request) }

// DestroyID is the ID of the workflow of one destroy.
func DestroyID(deployment, request string) string { return id("destroy", deployment, request) }

// SchemaBuildID is the ID of the workflow that builds the schema of a
// snapshot, given as its store path.
func SchemaBuildID(snapshot string) string {
	return id("schema", snapshot[strings.LastIndexByte(snapshot, '/')+1:])
}

// HashRequest makes a request part of an idempotency key, which may be any
// text.
func HashRequest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// maxID is the longest workflow ID that is written in full, in bytes. The
// limit of Temporal is 1,000; the Web UI shows this much of one.
const maxID = 200

// id joins the parts with slashes. A part outside [A-Za-z0-9._-] is
// percent-encoded, so that an ID has as many slashes as it has parts. A longer
// one is cut and ends in the SHA-256 of the whole.
func id(parts ...string) string {
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		for j := range len(part) {
			c := part[j]
			switch {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
				b.WriteByte(c)
			default:
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
	}
	full := b.String()
	if len(full) <= maxID {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	return full[:maxID-2*sha256.Size-1] + "~" + hex.EncodeToString(sum[:])
}
