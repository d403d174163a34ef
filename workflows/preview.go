package workflows

import (
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/schema/wire"
)

// Preview evaluates a configuration as a submit does and stores nothing. A
// refusal is a result: it is what the caller wants to know.
func Preview(ctx workflow.Context, in wire.PreviewInput) (wire.Evaluated, error) {
	workflow.SetCurrentDetails(ctx, "Preview of `"+in.Deployment+"`: evaluates the configuration.")
	evaluated, err := evaluate(ctx, nix.NamesInput{Snapshot: in.Snapshot, Configuration: in.Configuration})
	if err != nil {
		return evaluated, forCaller(err)
	}
	return evaluated, nil
}
