package deployer

import (
	"context"

	"github.com/google/uuid"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/sbom"
)

// Journal is what a supervisor needs of the database. Its methods are called
// from several goroutines at once, and one that hangs must not hold up the
// others. Each is repeated after any error but the two below, also when only
// the answer was lost: the same call by the same fence again is a success.
type Journal interface {
	// AcquireFence makes fence the one that may run the deployer of a running
	// build for the next 20 s, and returns the length in bytes of the log that
	// earlier runs of the build left. It returns deployment.ErrFenced while another fence
	// is alive and when the build does not run, and deployment.ErrAlreadyRan for a deploy
	// that another fence was acquired for before. It may return that for any
	// build whose exit is staged.
	AcquireFence(ctx context.Context, ref deployment.Ref, fence uuid.UUID) (logged int64, err error)
	// RenewFence holds the fence for another 20 s. It returns deployment.ErrFenced when
	// the fence is another's, the exit is staged or the build has ended.
	RenewFence(ctx context.Context, ref deployment.Ref, fence uuid.UUID) error
	// AppendLog adds whole lines to the log. start is the offset in bytes at
	// which data belongs. Like StageExit it asks whose the fence is, not
	// whether it has lapsed.
	AppendLog(ctx context.Context, ref deployment.Ref, fence uuid.UUID, start int64, data []byte) error
	// StageSBOM keeps the SBOM of a node, and StageSBOMs what the deployer said
	// of all nodes, for whoever finishes the build. They come before StageExit,
	// of which StageSBOMs is the last, and ask like AppendLog.
	StageSBOM(ctx context.Context, ref deployment.Ref, fence uuid.UUID, node string, document *sbom.Document) error
	StageSBOMs(ctx context.Context, ref deployment.Ref, fence uuid.UUID, entries []sbom.Entry) error
	// StageExit keeps the end of the deployer for whoever finishes the build,
	// and lets the fence lapse: nothing runs any more.
	StageExit(ctx context.Context, ref deployment.Ref, fence uuid.UUID, exit deployment.Exit) error
}
