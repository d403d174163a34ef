package deployment

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// MaxIDLength is the longest deployment identifier, in bytes.
const MaxIDLength = 40

// CheckID says why id is not a deployment identifier: a DNS label (RFC 1123)
// in lower case of at most MaxIDLength bytes. It is opaque beyond that
// (seed B, "Deployment identifiers").
func CheckID(id string) error {
	if id == "" {
		return fmt.Errorf("a deployment identifier is not empty")
	}
	if len(id) > MaxIDLength {
		return fmt.Errorf("a deployment identifier has at most %d characters, this one has %d", MaxIDLength, len(id))
	}
	for i := range len(id) {
		c := id[i]
		letterOrDigit := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if letterOrDigit || c == '-' && i > 0 && i < len(id)-1 {
			continue
		}
		return fmt.Errorf("a deployment identifier has lower-case letters, digits and inner hyphens only; character %d is none of them", i+1)
	}
	return nil
}

// State is derived from the builds of a deployment.
type State string

// The states of a deployment.
const (
	StateBuilding   State = "building"
	StateDestroying State = "destroying"
	StateActive     State = "active"
	StateFailed     State = "failed"
	StateIdle       State = "idle"
)

// Settled reports whether the state stays until somebody asks for a change.
func (s State) Settled() bool { return s != StateBuilding && s != StateDestroying }

// Action is what a build does.
type Action string

// The actions of a build.
const (
	ActionDeploy  Action = "deploy"
	ActionDestroy Action = "destroy"
)

// Status is where a build stands.
type Status string

// The statuses of a build.
const (
	StatusQueued     Status = "queued"
	StatusRunning    Status = "running"
	StatusSucceeded  Status = "succeeded"
	StatusFailed     Status = "failed"
	StatusCancelled  Status = "cancelled"
	StatusSuperseded Status = "superseded"
)

// Ended reports whether the status is final.
func (s Status) Ended() bool { return s != StatusQueued && s != StatusRunning }

// Evaluation says whether a submit evaluated its configuration.
type Evaluation string

// A submit is evaluated, or skipped because all slots were in use.
const (
	EvaluationEvaluated Evaluation = "evaluated"
	EvaluationSkipped   Evaluation = "skipped"
)

// Node is a machine of a deployment with the DNS names that it publishes.
type Node struct {
	Name  string   `json:"name"`
	Names []string `json:"names"`
}

// nodeName is what can be part of a file name and of a query.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// IsNodeName reports whether a node can have this name.
func IsNodeName(name string) bool { return nodeName.MatchString(name) }

// Build is one run of the deployer, as the API shows it. Times are UTC.
type Build struct {
	Number     int64      `json:"number"`
	Action     Action     `json:"action"`
	Status     Status     `json:"status"`
	Reason     string     `json:"reason,omitempty"`
	CreatedAt  time.Time  `json:"createdAt"`
	StartedAt  *time.Time `json:"startedAt"`
	FinishedAt *time.Time `json:"finishedAt"`
	Evaluation Evaluation `json:"evaluation,omitempty"` // none for a destroy
	WorkflowID string     `json:"workflowId"`
	// Callback is what became of the call to the front-end; nil for a deploy.
	Callback *Callback `json:"callback,omitempty"`
	Nodes    []Node    `json:"nodes,omitempty"`
	// Configuration is the snapshot that the build deploys. Only the read of
	// one build has it.
	Configuration json.RawMessage `json:"configuration,omitempty"`
	// Older: the configuration was recorded with another module source than
	// that of today, whose schema may mark more as secret.
	Older bool `json:"-"`
}

// Standing is the derived part of a deployment.
type Standing struct {
	State  State     `json:"state"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
	// Live is the number of the build whose infrastructure is up.
	Live *int64 `json:"live"`
}

// Deployment is what the API shows of a deployment.
type Deployment struct {
	ID string `json:"deploymentId"`
	Standing
	// Domain is that of the last submit, as DNS has it: lower case, A-labels,
	// no dot at the end. Nil where its configuration has none.
	Domain *string `json:"domain"`
	// Method is the deployment method of the last submit, which its module
	// source pins or its configuration names.
	Method      *string   `json:"method"`
	Instances   Instances `json:"instances"`
	Nodes       []Node    `json:"nodes"`
	LatestBuild *Build    `json:"latestBuild"`
	// Configuration is the snapshot of the last submit, without secrets.
	Configuration json.RawMessage `json:"configuration"`
	// Older is that of the build which the configuration is from.
	Older bool `json:"-"`
	// Snapshot is the module source that the configuration was recorded with.
	Snapshot string `json:"-"`
	// Deployed is what the live build deployed, nil where there is none.
	Deployed *Recorded `json:"-"`
}

// Recorded is a configuration as it was stored, with the store path of the
// module source that it is read by.
type Recorded struct {
	Configuration json.RawMessage
	Snapshot      string
}

// Instances are what a deployment serves (seed B, "What a configuration
// serves"): by the last submit, and by the last build that succeeded, which are
// none after a destroy.
type Instances struct {
	Submitted []Instance `json:"submitted"`
	Deployed  []Instance `json:"deployed"`
}

// InstanceKind says what an instance is one of.
type InstanceKind string

// An instance is an application that the configuration enables, or a component
// of the catalog, which is always on.
const (
	InstanceApplication InstanceKind = "application"
	InstanceComponent   InstanceKind = "component"
)

// Instance is one thing that a deployment serves.
type Instance struct {
	// Name is the key of the application or of the component.
	Name  string       `json:"name"`
	Title string       `json:"title"`
	Kind  InstanceKind `json:"kind"`
	// Domains are where it answers, as DNS has them; none without a page.
	Domains []string `json:"domains"`
	// URL is that of its page, or nil.
	URL *string `json:"url"`
	// Sections are the identifiers of the sections that edit it.
	Sections []string `json:"sections"`
}

// Section is a part of a configuration that a form edits by itself.
type Section struct {
	// ID is opaque for clients.
	ID    string `json:"id"`
	Title string `json:"title"`
	// Path is a JSON Pointer into the configuration, which may have nothing
	// there yet.
	Path string       `json:"path"`
	Kind InstanceKind `json:"kind"`
}

// EventKind names an event of the channel.
type EventKind string

// The stored kinds of events. The channel also sends snapshot, reset and log.
const (
	EventState EventKind = "state"
	EventBuild EventKind = "build"
)

// Event is a stored event of a deployment's channel.
type Event struct {
	// Sequence counts the events of the deployment from 1, without gaps, in
	// the order in which they were committed.
	Sequence int64
	Kind     EventKind
	// Build is the build of a build event, and 0 for a state event.
	Build int64
	// Status is that of the build in a build event. With a final one the log
	// of the build is complete.
	Status Status
	// Data is the JSON of a Standing or of a Build.
	Data json.RawMessage
}

// Ref names one build.
type Ref struct {
	Deployment string `json:"deployment"`
	Build      int64  `json:"build"`
}

func (r Ref) String() string { return fmt.Sprintf("%s#%d", r.Deployment, r.Build) }

// ErrUnknown: slipway has no such deployment or build.
var ErrUnknown = errors.New("unknown")

// Snapshot is a deployment with the place of its channel at the same moment.
type Snapshot struct {
	Deployment
	// Sequence is that of the newest event that the deployment includes.
	Sequence int64
}

// Events is a part of a deployment's channel.
type Events struct {
	Events []Event
	// Oldest is the sequence of the oldest event that is still kept, and
	// Newest that of the newest; both 0 when there is none.
	Oldest, Newest int64
}

// LogPiece is a part of the log of a build.
type LogPiece struct {
	Data []byte
	// Ended: the build has ended and the log has nothing behind Data.
	Ended bool
}

// Source is the module source that submits are checked against.
type Source struct {
	// Snapshot is the store path of the newest snapshot that evaluated; empty
	// when there is none yet.
	Snapshot string
	Schema   json.RawMessage
	// Method and Methods are its deployment methods, see SourceSnapshot.
	Method  *string
	Methods []string
	// Renames is its rename table, see SourceSnapshot.
	Renames json.RawMessage
	// Problem is why the source as it is now cannot be used; empty when it can.
	Problem string
}

// SourceSnapshot is a snapshot of the module source with what was evaluated
// from it once.
type SourceSnapshot struct {
	StorePath string
	Schema    json.RawMessage
	// Method is the deployment method that the source pins, or nil.
	Method  *string
	Methods []string
	// Renames is an object of the old names of fields, by application and new
	// name.
	Renames json.RawMessage
	// Deployer is the path of the realised deployer.
	Deployer string
}

// Names is what the evaluation of a configuration gives (seed B, "Names eval
// at submit").
type Names struct {
	Nodes                []Node   `json:"nodes"`
	DisabledApplications []string `json:"disabledApplications"`
}

// FenceLife is how long a supervisor may run a deployer after it last renewed
// the fence of the build, by the clock of the database.
const FenceLife = 20 * time.Second

// Refusals of a build's fence. The holder of the fence is the only one that
// may run a deployer for the build.
var (
	// ErrFenced: another supervisor holds the fence, or the build has ended.
	ErrFenced = errors.New("the fence of the build is not ours")
	// ErrAlreadyRan: a deployer ran for this build before. A deploy runs once.
	ErrAlreadyRan = errors.New("a deployer has run for this build before")
)

// Job is one run of a deployer.
type Job struct {
	Ref           Ref    `json:"ref"`
	WorkflowID    string `json:"workflowId"` // whose build it is
	Action        Action `json:"action"`
	Configuration []byte `json:"configuration"` // canonical JSON without secret values
	// Snapshot is the store path of the module source, Deployer the path of
	// its realised deployer.
	Snapshot string `json:"snapshot"`
	Deployer string `json:"deployer"`
	// Nothing: a destroy where no deployer ever started. It succeeds, and runs
	// nothing.
	Nothing bool `json:"nothing"`
}

// Exit is how a deployer ended. It is staged with the build before anybody
// hears of it.
type Exit struct {
	// Code is its exit code, or 128 and the signal that ended it.
	Code int
	// Reason is for a person; empty for a success.
	Reason string
	// Cancelled: it was asked to stop, and did not succeed all the same.
	Cancelled bool
}
