package deployer

import "time"

// Limits are the times and sizes of one run of a deployer. Zero is none of
// them: start from DefaultLimits.
type Limits struct {
	// Grace is the time between SIGTERM and SIGKILL at a cancel.
	Grace time.Duration
	// Short is the same for what a deployer left running, and for everything
	// when the worker is gone.
	Short time.Duration
	// Acquire is how long the supervisor tries to get the fence of the build
	// while the database does not answer.
	Acquire time.Duration
	// Renew is the time between two renewals of the fence, Lapse the age of
	// the last success at which the supervisor ends everything, and Call the
	// longest a call of the database may take. The database lets a fence lapse
	// after 20 s: Lapse has to leave time to end everything.
	Renew, Lapse, Call time.Duration
	// LogPatience is how long a piece of the log, or an SBOM, is tried while the
	// database answers otherwise; then the log ends, or the SBOM is given up.
	// One that is away is waited for.
	LogPatience time.Duration
	// StagePatience is how long the rest of the log and the exit are tried
	// after the worker is gone, and half of it how long the SBOMs before them.
	// While the worker lives there is no limit.
	StagePatience time.Duration
	// StageSBOM is the longest that storing one SBOM may take.
	StageSBOM time.Duration
	// Line is the longest line of the log, in bytes, and Log the longest log.
	Line, Log int
	// SBOM is how long a deployer may wait for SBOMs before it exits.
	SBOM time.Duration
}

// DefaultLimits are those of production. Renew, Lapse and Call belong to the
// 20 s of the database; sizes and SBOM are of the contract of module sources.
func DefaultLimits() Limits {
	return Limits{
		Grace:         10 * time.Second,
		Short:         time.Second,
		Acquire:       time.Minute,
		Renew:         5 * time.Second,
		Lapse:         15 * time.Second,
		Call:          4 * time.Second,
		LogPatience:   time.Minute,
		StagePatience: 2 * time.Minute,
		StageSBOM:     2 * time.Minute,
		Line:          16 << 10,
		Log:           64 << 20,
		SBOM:          600 * time.Second,
	}
}
