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
	s := newSubmit("Submit", in)
	if err := s.setup(ctx, wire.UpdateSubmit, s.submit); err != nil {
		return wire.BuildResult{}, err
	}
	return s.run(ctx)
}

type submit struct {
	question[wire.SubmitAnswer]
	commit        question[wire.SubmitAnswer] // of a submit with secrets to write
	in            wire.SubmitInput
	what          string // "Submit of `shop`"
	imports       *imports
	build         build
	configuration json.RawMessage // of the first update
	request       wire.SubmitRequest
	evaluated     wire.Evaluated
	secrets       secrets
}

func newSubmit(verb string, in wire.SubmitInput) *submit {
	what := verb + " of `" + in.Deployment + "`"
	return &submit{
		in: in, what: what, build: build{action: deployment.ActionDeploy},
		secrets: secrets{deployment: in.Deployment, what: what},
	}
}

func (s *submit) setup(ctx workflow.Context, update string, handler any) error {
	workflow.SetCurrentDetails(ctx, s.what+": waits for its configuration.")
	if err := workflow.SetUpdateHandler(ctx, update, handler); err != nil {
		return err
	}
	if err := workflow.SetUpdateHandler(ctx, wire.UpdateCommit, s.committed); err != nil {
		return err
	}
	return workflow.SetUpdateHandler(ctx, wire.UpdateCancel, s.build.cancel)
}

func (s *submit) run(ctx workflow.Context) (wire.BuildResult, error) {
	return s.question.run(ctx, s.what, func() (wire.BuildResult, error) {
		if s.answer.Ready {
			if result, err := s.awaitSecrets(ctx); err != nil || result.Outcome != "" {
				return result, err
			}
		}
		if s.build.ref.Build == 0 {
			workflow.SetCurrentDetails(ctx, s.what+": stored its configuration, and deploys nothing.")
			return wire.BuildResult{Outcome: "stored"}, nil
		}
		result, err := s.build.run(ctx)
		if err == nil && result.Outcome == string(deployment.StatusSucceeded) {
			err = s.secrets.clear(ctx, s.build.ref)
		}
		return result, err
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
	answer, err := s.ask(ctx, func() (wire.SubmitAnswer, error) { return s.decide(ctx, request) })
	if err == nil && answer.Ready && s.commit.decided && s.commit.refusal == nil {
		return s.commit.answer, nil // the same request again, after its secrets came
	}
	return answer, err
}

// decide checks, evaluates and records, but for a submit with secrets to write,
// which is ready then. Whatever it refuses has stored nothing.
func (s *submit) decide(ctx workflow.Context, request wire.SubmitRequest) (wire.SubmitAnswer, error) {
	s.request = request
	recorded, err := s.recall(ctx)
	if err != nil {
		return wire.SubmitAnswer{}, forCaller(err)
	}
	if recorded.Before {
		return s.recorded(ctx, recorded)
	}
	if len(request.Secrets) == 0 && s.imports == nil {
		return s.evaluateAndRecord(ctx)
	}
	if err := s.secrets.read(ctx, request); err != nil {
		return wire.SubmitAnswer{}, err
	}
	answer, err := s.evaluateAndRecord(ctx)
	if err != nil {
		s.secrets.letGo(ctx)
	}
	return answer, err
}

func (s *submit) recall(ctx workflow.Context) (recorded store.Recorded, err error) {
	var a *store.Activities
	in := store.RecallInput{Deployment: s.in.Deployment, Request: s.in.Request, Configuration: s.request.Configuration}
	if s.imports != nil {
		in := store.RecallImportInput{RecallInput: in, Deploy: s.imports.deploy}
		err = workflow.ExecuteLocalActivity(onRequest(ctx, "look for the same request"), a.RecallImport, in).Get(ctx, &recorded)
		return recorded, err
	}
	err = workflow.ExecuteLocalActivity(onRequest(ctx, "look for the same request"), a.Recall, in).Get(ctx, &recorded)
	return recorded, err
}

func (s *submit) evaluateAndRecord(ctx workflow.Context) (wire.SubmitAnswer, error) {
	var err error
	if s.evaluated, err = s.evaluate(ctx, s.evaluatedRequest()); err != nil {
		return wire.SubmitAnswer{}, err
	}
	if s.imports != nil {
		if err := s.imports.evaluate(ctx, s); err != nil {
			return wire.SubmitAnswer{}, err
		}
	}
	if len(s.secrets.prepared.Write) > 0 {
		return wire.SubmitAnswer{Ready: true}, nil
	}
	if err := s.secrets.write(ctx, ""); err != nil {
		return wire.SubmitAnswer{}, err
	}
	return s.record(ctx)
}

// evaluatedRequest is the request with the configuration that is evaluated,
// stored and deployed.
func (s *submit) evaluatedRequest() wire.SubmitRequest {
	request := s.request
	if s.secrets.held {
		request.Configuration = s.secrets.prepared.Configuration
	}
	return request
}

// awaitSecrets waits for the secrets of a submit that is ready. A result with an
// outcome is the end of the run.
func (s *submit) awaitSecrets(ctx workflow.Context) (wire.BuildResult, error) {
	workflow.SetCurrentDetails(ctx, s.what+": waits for its secrets.")
	asked, err := awaitWithin(ctx, workflow.AwaitOptions{Timeout: firstUpdate}, func() bool { return s.commit.asked })
	if s.commit.asked {
		disconnected, release := workflow.NewDisconnectedContext(ctx)
		defer release()
		if err := workflow.Await(disconnected, func() bool { return s.commit.decided }); err != nil {
			return wire.BuildResult{}, err
		}
		if s.commit.refusal == nil {
			return wire.BuildResult{}, nil
		}
		result := wire.BuildResult{Outcome: "refused", Reason: reason(s.commit.refusal)}
		workflow.SetCurrentDetails(ctx, s.what+" refused: "+result.Reason)
		return result, ctx.Err()
	}
	// From here on nothing may be written: secrets that come now are too late.
	s.commit.refuse(temporal.NewNonRetryableApplicationError("the submit does not wait for its secrets any more", wire.ErrorNothingRecorded, nil))
	s.secrets.letGo(ctx)
	if err == nil && !asked {
		return wire.BuildResult{Outcome: "no secrets"}, nil
	}
	return wire.BuildResult{}, err
}

// committed is the update commit.
func (s *submit) committed(ctx workflow.Context, request wire.CommitRequest) (wire.SubmitAnswer, error) {
	if !s.decided || !s.answer.Ready {
		return wire.SubmitAnswer{}, temporal.NewNonRetryableApplicationError("the submit does not wait for secrets", wire.ErrorUnavailable, nil)
	}
	return s.commit.ask(ctx, func() (wire.SubmitAnswer, error) {
		if request.Wrapped == "" {
			s.secrets.letGo(ctx)
			return wire.SubmitAnswer{}, temporal.NewNonRetryableApplicationError("the secrets could not be handed over", wire.ErrorNothingRecorded, nil)
		}
		if err := s.secrets.write(ctx, request.Wrapped); err != nil {
			s.secrets.letGo(ctx)
			return wire.SubmitAnswer{}, err
		}
		answer, err := s.record(ctx)
		if err != nil {
			s.secrets.letGo(ctx)
		}
		return answer, err
	})
}

func (s *submit) evaluate(ctx workflow.Context, request wire.SubmitRequest) (wire.Evaluated, error) {
	workflow.SetCurrentDetails(ctx, s.what+": evaluates the configuration.")
	evaluated, err := evaluate(ctx, nix.NamesInput{Snapshot: request.Snapshot, Configuration: request.Configuration})
	if err != nil {
		return evaluated, beforeRecord(err)
	}
	if evaluated.Refusal != nil {
		return evaluated, temporal.NewNonRetryableApplicationError(evaluated.Refusal.Message, evaluated.Refusal.Type, nil)
	}
	return evaluated, nil
}

func (s *submit) record(ctx workflow.Context) (wire.SubmitAnswer, error) {
	var a *store.Activities
	var recorded store.Recorded
	workflow.SetCurrentDetails(ctx, s.what+": records it.")
	request := s.evaluatedRequest()
	in := store.Submit{
		Deployment:    s.in.Deployment,
		Request:       s.in.Request,
		WorkflowID:    workflow.GetInfo(ctx).WorkflowExecution.ID,
		Snapshot:      request.Snapshot,
		Configuration: request.Configuration,
		Asked:         s.request.Configuration,
		EvaluationKey: s.evaluated.Key,
		Prepared:      s.secrets.preparation(ctx),
		Clears:        s.secrets.prepared.Clear,
	}
	// Once a record may have happened, its result is wanted: a cancelled
	// workflow then ends the build instead of forgetting it.
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	var err error
	if s.imports != nil {
		err = workflow.ExecuteLocalActivity(onRequest(disconnected, "record the import"), a.RecordImport,
			store.Import{Submit: in, Deploy: s.imports.deploy}).Get(disconnected, &recorded)
	} else {
		err = workflow.ExecuteLocalActivity(onRequest(disconnected, "record the build"), a.Record, in).Get(disconnected, &recorded)
	}
	if err != nil {
		return wire.SubmitAnswer{}, forCaller(err)
	}
	s.secrets.held = false
	return s.recorded(ctx, recorded)
}

func (s *submit) recorded(ctx workflow.Context, recorded store.Recorded) (wire.SubmitAnswer, error) {
	if recorded.Build == 0 { // an import that deploys nothing
		return wire.SubmitAnswer{Evaluation: recorded.Evaluation}, nil
	}
	if recorded.Before { // maybe by an earlier run, whose answer was lost
		s.secrets.prepared.Clear = recorded.Clears
	}
	if err := s.build.recorded(ctx, deployment.Ref{Deployment: s.in.Deployment, Build: recorded.Build}); err != nil {
		return wire.SubmitAnswer{}, forCaller(err)
	}
	return wire.SubmitAnswer{Build: recorded.Build, Evaluation: recorded.Evaluation}, nil
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
