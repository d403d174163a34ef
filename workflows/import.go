package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/schema/wire"
)

// Import takes over a deployment that slipway does not know. It is a submit
// (Submit has the steps) that never goes on without an evaluation, that also
// evaluates the system of each node before anything is stored, and that may end
// with the configuration stored and nothing deployed. From its first step to its
// record it has the deployment in hand, so that of several imports and submits
// that would make it known, one does.
func Import(ctx workflow.Context, in wire.SubmitInput) (wire.BuildResult, error) {
	s := newSubmit("Import", in)
	s.imports, s.secrets.imports = &imports{}, true
	if err := s.setup(ctx, wire.UpdateImport, s.imported); err != nil {
		return wire.BuildResult{}, err
	}
	return s.run(ctx)
}

// imports is what an import has beside a submit.
type imports struct {
	deploy bool
}

// imported is the update import.
func (s *submit) imported(ctx workflow.Context, request wire.ImportRequest) (wire.SubmitAnswer, error) {
	if !s.asked {
		s.imports.deploy = request.Deploy
	}
	if s.imports.deploy != request.Deploy {
		return wire.SubmitAnswer{}, temporal.NewNonRetryableApplicationError(
			"the same request came before, and was to deploy or not to", wire.ErrorIdempotencyConflict, nil)
	}
	return s.submit(ctx, request.SubmitRequest)
}

// evaluate evaluates what a submit leaves to the deploy.
func (i *imports) evaluate(ctx workflow.Context, s *submit) error {
	var a *nix.Activities
	noSlot := temporal.NewNonRetryableApplicationError("as many configurations are evaluated as may be at once", wire.ErrorNoSlot, nil)
	if s.evaluated.NoSlot {
		return noSlot
	}
	workflow.SetCurrentDetails(ctx, s.what+": evaluates the system of each node. The pending activity says which.")
	in := nix.SystemsInput{
		NamesInput: nix.NamesInput{Snapshot: s.request.Snapshot, Configuration: s.evaluatedRequest().Configuration},
		Key:        s.evaluated.Key,
	}
	var evaluated wire.SystemsEvaluated
	for range 2 { // as with the names
		evaluated = wire.SystemsEvaluated{}
		err := workflow.ExecuteActivity(evaluatingSystems(ctx, "evaluate the system of each node"), a.Systems, in).Get(ctx, &evaluated)
		if err != nil {
			return beforeRecord(err)
		}
		if !evaluated.NoSlot {
			break
		}
	}
	if evaluated.NoSlot {
		return noSlot
	}
	return refusalOf(evaluated)
}

// refusalOf is the refusal of an import by its nodes: of the configuration,
// unless all that is wrong is that limits were reached.
func refusalOf(evaluated wire.SystemsEvaluated) error {
	problems := evaluated.Problems
	if len(problems) == 0 {
		return nil
	}
	refusal, nodes := wire.ErrorEvaluationFailed, "the system of 1 node does not evaluate"
	if broken := max(evaluated.Broken, len(problems)); broken > 1 { // 0 of a worker that does not count them
		nodes = fmt.Sprintf("the systems of %d nodes do not evaluate", broken)
	}
	for _, p := range problems {
		if p.Type == wire.ErrorInvalidConfiguration {
			refusal = p.Type
		}
	}
	return temporal.NewNonRetryableApplicationError(nodes, refusal, nil, problems)
}
