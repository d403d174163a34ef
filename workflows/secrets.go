package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/openbao"
	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// Deleting secrets nobody waits for: it is tried again after 5 s at first and
// every half hour later, for a week. That is 350 timers, fewer than the 500 after
// which a run should continue as new. Between the tries nobody has the secrets in
// hand, so that an OpenBao that is away holds up no submit.
const (
	deleteFirst   = 5 * time.Second
	deleteLongest = 30 * time.Minute
	deleteFor     = 7 * 24 * time.Hour
)

// secrets are the operator secrets of a submit, as names. From read to the
// record, or to letGo, the run has those of the deployment in hand.
type secrets struct {
	deployment string
	what       string // the submit or import, in details
	imports    bool   // nobody else may make the deployment known
	held       bool
	prepared   openbao.Prepared
}

// read takes the secrets of the deployment in hand and finds out what the
// submit does to them.
func (s *secrets) read(ctx workflow.Context, request wire.SubmitRequest) error {
	var a *openbao.Activities
	workflow.SetCurrentDetails(ctx, s.what+": looks which secrets OpenBao has.")
	if err := s.take(ctx); err != nil {
		return beforeRecord(err)
	}
	if len(request.Secrets) == 0 {
		s.prepared.Configuration = request.Configuration
		return nil
	}
	if request.StoredBuild != nil {
		if err := s.stillNewest(ctx, *request.StoredBuild); err != nil {
			s.letGo(ctx)
			return err
		}
	}
	in := openbao.ReadInput{Deployment: s.deployment, Configuration: request.Configuration, Applications: request.Secrets}
	err := workflow.ExecuteActivity(readingSecrets(ctx, "look which secrets OpenBao has"), a.ReadSecrets, in).Get(ctx, &s.prepared)
	if err != nil {
		s.letGo(ctx)
		return beforeRecord(err)
	}
	return nil
}

// stillNewest refuses a submit whose stored secrets are those of an older build:
// a later one may have cleared them.
func (s *secrets) stillNewest(ctx workflow.Context, build int64) error {
	var a *store.Activities
	var newest bool
	ref := deployment.Ref{Deployment: s.deployment, Build: build}
	err := workflow.ExecuteLocalActivity(onRequest(ctx, "look whether its stored secrets are still the newest"), a.IsNewest, ref).Get(ctx, &newest)
	switch {
	case err != nil:
		return beforeRecord(err)
	case !newest:
		return temporal.NewNonRetryableApplicationError("another submit of the deployment was recorded meanwhile", wire.ErrorSubmitInProgress, nil)
	default:
		return nil
	}
}

// write copies and writes what the submit asks for; wrapped is the token of the
// values, empty where none are to be written.
func (s *secrets) write(ctx workflow.Context, wrapped string) error {
	if len(s.prepared.Write) == 0 && len(s.prepared.Copy) == 0 {
		return nil
	}
	var a *openbao.Activities
	workflow.SetCurrentDetails(ctx, s.what+": writes its secrets to OpenBao.")
	in := openbao.WriteInput{Deployment: s.deployment, Wrapped: wrapped, Write: s.prepared.Write, Copy: s.prepared.Copy}
	// What was begun is wanted, also where an operator cancels meanwhile.
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	err := workflow.ExecuteActivity(writingSecrets(disconnected, "write the secrets"), a.WriteSecrets, in).Get(disconnected, nil)
	if err != nil {
		return beforeRecord(err)
	}
	return nil
}

// preparation is the row of the deployment while the run has it.
func (s *secrets) preparation(ctx workflow.Context) *store.Preparation {
	if !s.held {
		return nil
	}
	run := workflow.GetInfo(ctx).WorkflowExecution
	return &store.Preparation{Deployment: s.deployment, WorkflowID: run.ID, RunID: run.RunID, Import: s.imports}
}

func (s *secrets) take(ctx workflow.Context) error {
	var a *store.Activities
	s.held = true
	err := workflow.ExecuteActivity(takingSecrets(ctx, "take the secrets of the deployment in hand"), a.PrepareSecrets, *s.preparation(ctx)).Get(ctx, nil)
	if err != nil {
		s.letGo(ctx) // its answer may have been lost
	}
	return err
}

// letGo lets go of the secrets of the deployment. Where it cannot, the sweeper
// does so when the run has ended.
func (s *secrets) letGo(ctx workflow.Context) {
	if !s.held {
		return
	}
	var a *store.Activities
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	err := workflow.ExecuteLocalActivity(onRequest(disconnected, "let go of the secrets"), a.LetGoOfSecrets, *s.preparation(ctx)).Get(disconnected, nil)
	if err != nil {
		workflow.GetLogger(ctx).Warn("the secrets of the deployment stay in hand until this run ends", "Error", err)
	}
	s.held = false
}

// clear deletes the secrets that the submit cleared, now that the deployment
// runs without them.
func (s *secrets) clear(ctx workflow.Context, ref deployment.Ref) error {
	if len(s.prepared.Clear) == 0 {
		return nil
	}
	return s.delete(ctx, "the secrets that the submit cleared", func(ctx workflow.Context) error {
		var database *store.Activities
		var bao *openbao.Activities
		in := store.UnneededInput{Deployment: ref.Deployment}
		for _, one := range s.prepared.Clear {
			in.Cleared = append(in.Cleared, [2]string{one.Application, one.Entry.Field})
		}
		var unneeded [][2]string
		if err := workflow.ExecuteLocalActivity(onRequest(ctx, "look which are still not needed"), database.Unneeded, in).Get(ctx, &unneeded); err != nil {
			return err
		}
		cleared := openbao.ClearInput{Deployment: ref.Deployment}
		for _, one := range s.prepared.Clear {
			for _, name := range unneeded {
				if name == [2]string{one.Application, one.Entry.Field} {
					cleared.Cleared = append(cleared.Cleared, one)
				}
			}
		}
		if len(cleared.Cleared) == 0 {
			return nil
		}
		return workflow.ExecuteActivity(deletingSecrets(ctx, "delete the cleared secrets"), bao.ClearSecrets, cleared).Get(ctx, nil)
	})
}

// haulOut deletes all secrets of a deployment that was destroyed, unless it is
// about to live again.
func (s *secrets) haulOut(ctx workflow.Context, ref deployment.Ref) error {
	s.deployment = ref.Deployment
	return s.delete(ctx, "the secrets of the deployment", func(ctx workflow.Context) error {
		var database *store.Activities
		var bao *openbao.Activities
		var down bool
		if err := workflow.ExecuteLocalActivity(onRequest(ctx, "look whether it stays destroyed"), database.StaysDown, ref).Get(ctx, &down); err != nil || !down {
			return err
		}
		return workflow.ExecuteActivity(deletingSecrets(ctx, "delete the secrets of the deployment"), bao.DeleteSecrets, ref.Deployment).Get(ctx, nil)
	})
}

// delete tries to delete with the secrets in hand, until it succeeds or an
// operator cancels. After a week it gives up with an error, so that an operator
// finds what is left among the failed workflows.
func (s *secrets) delete(ctx workflow.Context, what string, once func(ctx workflow.Context) error) error {
	begin := workflow.Now(ctx)
	for wait := deleteFirst; ; wait = min(2*wait, deleteLongest) {
		workflow.SetCurrentDetails(ctx, "`"+s.deployment+"`: deletes "+what+".")
		err := s.take(ctx)
		if err == nil {
			err = once(ctx)
			s.letGo(ctx)
		}
		if err == nil {
			workflow.SetCurrentDetails(ctx, "`"+s.deployment+"`: has deleted "+what+", where they were not needed.")
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if workflow.Now(ctx).Sub(begin) > deleteFor {
			return temporal.NewNonRetryableApplicationError(
				"OpenBao still has "+what+", after a week of tries: "+reason(err), wire.ErrorSecretsLeft, err)
		}
		workflow.SetCurrentDetails(ctx, "`"+s.deployment+"`: waits to delete "+what+": "+reason(err))
		timer := workflow.NewTimerWithOptions(ctx, wait, workflow.TimerOptions{Summary: "until " + what + " are tried to be deleted again"})
		if timer.Get(ctx, nil) != nil {
			return nil
		}
	}
}
