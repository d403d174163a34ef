package api

import (
	"context"
	"time"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// Reader reads what the store has. It returns deployment.ErrUnknown where it
// has no such deployment or build; every other error means that the store is
// away. Times are UTC.
type Reader interface {
	// Deployment reads one deployment.
	Deployment(ctx context.Context, id string) (deployment.Deployment, error)
	// Deployments gives those of ids that exist to yield, in the order of ids,
	// and ends with the first error of yield.
	Deployments(ctx context.Context, ids []string, yield func(deployment.Deployment) error) error
	// Builds reads at most limit builds, newest first, with numbers below
	// before (0: from the newest).
	Builds(ctx context.Context, id string, limit int, before int64) ([]deployment.Build, error)
	// Build reads one build with its configuration.
	Build(ctx context.Context, ref deployment.Ref) (deployment.Build, error)
	// Log reads at most limit bytes of a log from an offset in bytes.
	Log(ctx context.Context, ref deployment.Ref, from int64, limit int) (deployment.LogPiece, error)
	// Snapshot reads a deployment and the place of its channel at one moment.
	Snapshot(ctx context.Context, id string) (deployment.Snapshot, error)
	// Events reads at most limit events of a channel behind a sequence.
	Events(ctx context.Context, id string, after int64, limit int) (deployment.Events, error)
	// Names reads the result of an evaluation.
	Names(ctx context.Context, evaluationKey string) (deployment.Names, error)
	// Source reads the module source that submits are checked against.
	Source(ctx context.Context) (deployment.Source, error)

	// SBOMs reads the state of the SBOM of each node of a deployment, sorted by
	// node.
	SBOMs(ctx context.Context, id string) ([]deployment.NodeSBOM, error)
	// SBOM describes the document of a node. deployment.ErrUnknown for the node
	// too; deployment.NoSBOM where the node has none.
	SBOM(ctx context.Context, id, node string) (deployment.SBOMDocument, error)
	// SBOMText puts the document of a node together again, byte for byte what
	// the deployer wrote. Errors as those of SBOM.
	SBOMText(ctx context.Context, id, node string) (deployment.SBOMDocument, []byte, error)
	// SBOMDiff compares the SBOM of a node with its earlier one; NoSBOM where
	// there is no earlier one. Errors as those of SBOM.
	SBOMDiff(ctx context.Context, id, node string) (deployment.SBOMDiff, error)
	// ComponentUses finds the nodes that have a component, of the deployments
	// ids, or of all where ids is nil; at most limit, in an order that does not
	// change by itself. None is no error.
	ComponentUses(ctx context.Context, query deployment.ComponentQuery, ids []string, limit int) ([]deployment.ComponentUse, error)
	// SourceSnapshot reads one by its store path, or deployment.ErrUnknown.
	SourceSnapshot(ctx context.Context, storePath string) (deployment.SourceSnapshot, error)
}

// Listener gives a signal whenever something of a deployment may have changed:
// a build, its state, its log; and after it lost its connection. Signals that
// were not taken become one. Call stop when done.
type Listener interface {
	Subscribe(id string) (changed <-chan struct{}, stop func())
}

// Workflows does what changes something. Its errors are application errors of
// the types in schema/wire, errWorkflowGone, or else mean that Temporal is
// away.
type Workflows interface {
	// Submit returns when the build is recorded or refused, or when it is ready
	// for its secrets.
	Submit(ctx context.Context, id, request string, submit wire.SubmitRequest) (wire.SubmitAnswer, error)
	// Import returns as Submit does.
	Import(ctx context.Context, id, request string, imported wire.ImportRequest) (wire.SubmitAnswer, error)
	// Commit brings the secrets of a submit or import that is ready to its
	// workflow, and returns when that is recorded or refused.
	Commit(ctx context.Context, workflowID string, commit wire.CommitRequest) (wire.SubmitAnswer, error)
	// Destroy returns when the build is recorded or refused.
	Destroy(ctx context.Context, destroy wire.DestroyInput) (wire.DestroyAnswer, error)
	// Preview returns the evaluation.
	Preview(ctx context.Context, preview wire.PreviewInput) (wire.Evaluated, error)
	// Cancel asks the workflow of a build; errWorkflowGone if it has ended.
	Cancel(ctx context.Context, workflowID string) (wire.CancelAnswer, error)
}

// Callbacks keeps the URL and the token of a callback for the build that a
// request becomes, so that Temporal sees neither, and returns the name of that
// offer. Its errors mean that the store is away.
type Callbacks interface {
	OfferCallback(ctx context.Context, deploymentID, url, token string) (offer string, err error)
}

// Sealer hands the values of secrets to OpenBao and returns the token that they
// come back by, once and within a minute. Its errors mean that OpenBao is away
// or refuses, and have no value in them.
type Sealer interface {
	Wrap(ctx context.Context, secrets []configuration.Secret) (token string, err error)
}

// bounded limits the time of each read of a stream, which itself has no limit.
type bounded struct {
	Reader
	limit time.Duration
}

func (b bounded) Snapshot(ctx context.Context, id string) (deployment.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Reader.Snapshot(ctx, id)
}

func (b bounded) Events(ctx context.Context, id string, after int64, limit int) (deployment.Events, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Reader.Events(ctx, id, after, limit)
}

func (b bounded) Builds(ctx context.Context, id string, limit int, before int64) ([]deployment.Build, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Reader.Builds(ctx, id, limit, before)
}

func (b bounded) Log(ctx context.Context, ref deployment.Ref, from int64, limit int) (deployment.LogPiece, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Reader.Log(ctx, ref, from, limit)
}
