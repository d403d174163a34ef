package workflows

import (
	"bytes"
	"encoding/json"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// Submit takes a configuration to a deployed build. The update submit is
// answered as soon as the build is recorded; then the build waits for its
// turn, its deployer runs, and the build ends.
//
// A submit that is refused, or that meets a database that is away, has stored
// nothing: the run ends, and the same request may start another.
func Submit(ctx workflow.Context, in wire.SubmitInput) (wire.BuildResult, error) {
	s := &submit{in: in, build: build{action: deployment.ActionDeploy}}
	if err := s.setup(ctx); err != nil {
		return wire.BuildResult{}, err
	}
	return s.run(ctx)
}

type submit struct {
	question[wire.SubmitAnswer]
	in            wire.SubmitInput
	build         build
	configuration json.RawMessage // of the first update
}

func (s *submit) setup(ctx workflow.Context) error {
	workflow.SetCurrentDetails(ctx, "Submit of `"+s.in.Deployment+"`: waits for its configuration.")
	if err := workflow.SetUpdateHandler(ctx, wire.UpdateSubmit, s.submit); err != nil {
		return err
	}
	return workflow.SetUpdateHandler(ctx, wire.UpdateCancel, s.build.cancel)
}

func (s *submit) run(ctx workflow.Context) (wire.BuildResult, error) {
	return s.question.run(ctx, "Submit of `"+s.in.Deployment+"`", func() (wire.BuildResult, error) {
		return s.build.run(ctx)
	})
}

// submit is the update.
func (s *submit) submit(ctx workflow.Context, request wire.SubmitRequest) (wire.SubmitAnswer, error) {
	if !s.asked {
		s.configuration = request.Configuration
	}
	if !bytes.Equal(s.configuration, request.Configuration) {
		return wire.SubmitAnswer{}, temporal.NewNonRetryableApplicationError(
			"the same request came before with another configuration", wire.ErrorIdempotencyConflict, nil)
	}
	return s.ask(ctx, func() (wire.SubmitAnswer, error) { return s.decide(ctx, request) })
}

// decide checks, evaluates and records. Whatever it refuses has stored
// nothing.
func (s *submit) decide(ctx workflow.Context, request wire.SubmitRequest) (wire.SubmitAnswer, error) {
	var a *store.Activities
	var recorded store.Recorded
	recall := store.RecallInput{Deployment: s.in.Deployment, Request: s.in.Request, Configuration: request.Configuration}
	err := workflow.ExecuteLocalActivity(onRequest(ctx, "look for the same request"), a.Recall, recall).Get(ctx, &recorded)
	if err != nil {
		return wire.SubmitAnswer{}, forCaller(err)
	}
	if recorded.Build == 0 {
		evaluated, err := s.evaluate(ctx, request)
		if err != nil {
			return wire.SubmitAnswer{}, err
		}
		if recorded, err = s.record(ctx, request, evaluated); err != nil {
			return wire.SubmitAnswer{}, err
		}
	}
	if err := s.build.recorded(ctx, deployment.Ref{Deployment: s.in.Deployment, Build: recorded.Build}); err != nil {
		return wire.SubmitAnswer{}, forCaller(err)
	}
	return wire.SubmitAnswer{Build: recorded.Build, Evaluation: recorded.Evaluation}, nil
}

func (s *submit) evaluate(ctx workflow.Context, request wire.SubmitRequest) (wire.Evaluated, error) {
	workflow.SetCurrentDetails(ctx, "Submit of `"+s.in.Deployment+"`: evaluates the configuration.")
	evaluated, err := evaluate(ctx, nix.NamesInput{Snapshot: request.Snapshot, Configuration: request.Configuration})
	if err != nil {
		return evaluated, forCaller(err)
	}
	if evaluated.Refusal != nil {
		return evaluated, temporal.NewNonRetryableApplicationError(evaluated.Refusal.Message, evaluated.Refusal.Type, nil)
	}
	return evaluated, nil
}

func (s *submit) record(ctx workflow.Context, request wire.SubmitRequest, evaluated wire.Evaluated) (store.Recorded, error) {
	var a *store.Activities
	var recorded store.Recorded
	workflow.SetCurrentDetails(ctx, "Submit of `"+s.in.Deployment+"`: records the build.")
	in := store.Submit{
		Deployment:    s.in.Deployment,
		Request:       s.in.Request,
		WorkflowID:    workflow.GetInfo(ctx).WorkflowExecution.ID,
		Snapshot:      request.Snapshot,
		Configuration: request.Configuration,
		EvaluationKey: evaluated.Key,
	}
	// Once a record may have happened, its result is wanted: a cancelled
	// workflow then ends the build instead of forgetting it.
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	err := workflow.ExecuteLocalActivity(onRequest(disconnected, "record the build"), a.Record, in).Get(disconnected, &recorded)
	if err != nil {
		return recorded, forCaller(err)
	}
	return recorded, nil
}

// evaluate asks the cache, then a worker with Nix. A second worker may have a
// slot where the first has none.
func evaluate(ctx workflow.Context, in nix.NamesInput) (wire.Evaluated, error) {
	var a *nix.Activities
	var evaluated wire.Evaluated
	err := workflow.ExecuteLocalActivity(onRequest(ctx, "look the evaluation up"), a.CachedNames, in).Get(ctx, &evaluated)
	if err != nil || !evaluated.Missing {
		return evaluated, err
	}
	for range 2 {
		evaluated = wire.Evaluated{}
		err = workflow.ExecuteActivity(evaluating(ctx, "evaluate the names"), a.Names, in).Get(ctx, &evaluated)
		if err != nil || !evaluated.NoSlot {
			break
		}
	}
	return evaluated, err
}
