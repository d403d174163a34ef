package workflows

import (
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/schema/wire"
)

// SchemaBuild evaluates a snapshot of the module source once: its schema,
// methods and renames, and its deployer. The keeper that waits for it then has
// submits checked against it. It fails where the snapshot does not evaluate, or
// its deployer does not build; submits go on with the last one that did.
func SchemaBuild(ctx workflow.Context, in wire.SchemaBuildInput) error {
	var a *nix.Activities
	workflow.SetCurrentDetails(ctx, "Evaluates `"+in.Snapshot+"` and builds its deployer.")
	return workflow.ExecuteActivity(buildingSchema(ctx, "evaluate the schema, build the deployer"), a.BuildSchema, in).Get(ctx, nil)
}
