package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/callback"
	"slipway.dev/slipway/activities/deployer"
	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/activities/openbao"
	"slipway.dev/slipway/activities/store"
	schema "slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/workflows"
)

const (
	id       = "d"
	request  = "r"
	snapshot = "/nix/store/00000000000000000000000000000000-source"
	build    = int64(7) // the number that a record gives
	key      = "k"      // of the evaluation

	configuration = `{"vm":{}}`
	another       = `{"vm":{"domain":"a.example"}}`
)

// away is a step whose database is away for its first calls, or always (0).
func away(calls int) func(int) error {
	return func(call int) error {
		if calls == 0 || call <= calls {
			return errors.New("connection refused")
		}
		return nil
	}
}

// meanwhile is a step during which something happens, once.
func meanwhile(happens func()) func(int) error {
	return func(call int) error {
		if call == 1 {
			happens()
		}
		return nil
	}
}

// alreadyRan is a deploy whose deployer was started before.
func alreadyRan(int) error {
	return temporal.NewNonRetryableApplicationError("it was started before", wire.ErrorAlreadyRan, nil)
}

// fenceHeld is the error of Finish while a deployer may still run.
func fenceHeld() error {
	return temporal.NewApplicationErrorWithOptions("a deployer may still run, for at most 9s", wire.ErrorFenceHeld,
		temporal.ApplicationErrorOptions{NextRetryDelay: 9 * time.Second})
}

// registered are the workflows under the names of package wire.
func registered() map[string]any {
	return map[string]any{
		wire.WorkflowSubmit:      workflows.Submit,
		wire.WorkflowImport:      workflows.Import,
		wire.WorkflowDestroy:     workflows.Destroy,
		wire.WorkflowPreview:     workflows.Preview,
		wire.WorkflowSchemaBuild: workflows.SchemaBuild,
		wire.WorkflowLease:       workflows.Lease,
		wire.WorkflowPlanned:     workflows.PlannedOperation,
	}
}

// A world stands in for the database, Nix and the deployer as one build meets
// them. Its steps have the names and the rules of the real ones, and tell the
// story of a run, a line each.
type world struct {
	t   *testing.T
	env *testsuite.TestWorkflowEnvironment

	// during has what happens while a step runs, before it has an effect. It
	// gets the number of the call, from 1. An error is that of the step.
	during map[string]func(call int) error
	// stopped has a value for each activity that was asked to stop.
	stopped chan string

	mu    sync.Mutex
	lines []string
	calls map[string]int

	// The row of the build.
	build    int64 // 0: not recorded
	recorded store.Submit
	status   deployment.Status
	reason   string
	cancel   bool             // somebody asked for it
	exit     *deployment.Exit // staged by the deployer
	older    bool             // an older build has not ended
	// What a request to haul out finds.
	haulsOut store.RecordedDestroy
	unknown  bool
	// The evaluation cache, and what the tries of evaluating give.
	cached    wire.Evaluated
	evaluated []wire.Evaluated
	// What the submit says about secrets, what it means for OpenBao, whether the
	// run has them in hand, what it wrote and cleared, and what of that is needed
	// by others.
	asks     []schema.ApplicationSecrets
	stored   *int64 // the build whose configuration has values of them
	prepared openbao.Prepared
	inHand   bool
	wrote    []openbao.WriteInput
	cleared  []schema.ClearedSecret
	unneeded func([][2]string) [][2]string
	newer    bool // there is a newer build than that of the run
	// What the front-end is asked for, what calling it gives, and what was noted.
	callback string
	became   deployment.Callback
	settled  []deployment.Callback
	// Of an import: whether it deploys, whether it was recorded before, and what
	// the tries of evaluating the systems give.
	deploy   bool
	imported bool
	systems  []wire.SystemsEvaluated
	// ready is what a caller does whose submit is ready for its secrets.
	ready func()
}

// The steps that workflows call, so that those of the world stay like them.
type (
	storeSteps interface {
		Recall(context.Context, store.RecallInput) (store.Recorded, error)
		Record(context.Context, store.Submit) (store.Recorded, error)
		RecallImport(context.Context, store.RecallImportInput) (store.Recorded, error)
		RecordImport(context.Context, store.Import) (store.Recorded, error)
		RecordDestroy(context.Context, store.Destroy) (store.RecordedDestroy, error)
		TakeTurn(context.Context, deployment.Ref) (store.Turn, error)
		AwaitTurn(context.Context, deployment.Ref) (store.Turn, error)
		Cancel(context.Context, deployment.Ref) (deployment.Status, error)
		Finish(context.Context, store.FinishInput) (store.Ended, error)
		PrepareSecrets(context.Context, store.Preparation) error
		LetGoOfSecrets(context.Context, store.Preparation) error
		Unneeded(context.Context, store.UnneededInput) ([][2]string, error)
		IsNewest(context.Context, deployment.Ref) (bool, error)
		StaysDown(context.Context, deployment.Ref) (bool, error)
		SettleCallback(context.Context, store.SettleInput) error
	}
	callbackSteps interface {
		CallBack(context.Context, deployment.Ref) (deployment.Callback, error)
	}
	openbaoSteps interface {
		ReadSecrets(context.Context, openbao.ReadInput) (openbao.Prepared, error)
		WriteSecrets(context.Context, openbao.WriteInput) error
		ClearSecrets(context.Context, openbao.ClearInput) error
		DeleteSecrets(context.Context, string) error
	}
	nixSteps interface {
		CachedNames(context.Context, nix.NamesInput) (wire.Evaluated, error)
		Names(context.Context, nix.NamesInput) (wire.Evaluated, error)
		Systems(context.Context, nix.SystemsInput) (wire.SystemsEvaluated, error)
		BuildSchema(context.Context, wire.SchemaBuildInput) error
	}
	deployerSteps interface {
		Deploy(context.Context, deployment.Ref) error
		Destroy(context.Context, deployment.Ref) error
	}
)

var (
	_, _ storeSteps    = (*store.Activities)(nil), (*world)(nil)
	_, _ nixSteps      = (*nix.Activities)(nil), (*world)(nil)
	_, _ deployerSteps = (*deployer.Activities)(nil), (*world)(nil)
	_, _ callbackSteps = (*callback.Activities)(nil), (*world)(nil)
	_, _ openbaoSteps  = (*openbao.Activities)(nil), (*world)(nil)
)

func newWorld(t *testing.T) *world {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	w := &world{
		t: t, env: suite.NewTestWorkflowEnvironment(),
		during: map[string]func(int) error{}, stopped: make(chan string, 10), calls: map[string]int{},
		haulsOut: store.RecordedDestroy{Build: build, Ours: true},
		cached:   wire.Evaluated{Missing: true}, evaluated: []wire.Evaluated{{Key: key}},
		systems: []wire.SystemsEvaluated{{}},
	}
	for name, definition := range registered() {
		w.env.RegisterWorkflowWithOptions(definition, workflow.RegisterOptions{Name: name})
	}
	// A busy machine is no deadlock.
	w.env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute})
	w.env.SetTestTimeout(30 * time.Second)
	w.env.RegisterActivity(w)
	w.env.SetOnActivityCanceledListener(func(info *activity.Info) {
		w.tell("%s is asked to stop", info.ActivityType.Name)
		w.stopped <- info.ActivityType.Name
	})
	w.env.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(args mock.Arguments) {
		number, ok := args.Get(0).(temporal.SearchAttributes).GetInt64(temporal.NewSearchAttributeKeyInt64(wire.AttributeBuild))
		require.True(t, ok)
		w.tell("%s=%d", wire.AttributeBuild, number)
	}).Return(nil).Maybe()
	return w
}

// tell adds a line to the story.
func (w *world) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// story has the lines, with repetitions as one.
func (w *world) story() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var story []string
	for i := 0; i < len(w.lines); {
		n := 1
		for i+n < len(w.lines) && w.lines[i+n] == w.lines[i] {
			n++
		}
		line := w.lines[i]
		if n > 1 {
			line = fmt.Sprintf("%s ×%d", line, n)
		}
		story = append(story, line)
		i += n
	}
	return story
}

// step begins a step on a task queue, or as a local activity where that is
// empty.
func (w *world) step(ctx context.Context, queue, name, detail string) error {
	if info := activity.GetInfo(ctx); info.IsLocalActivity != (queue == "") || queue != "" && info.TaskQueue != queue {
		w.t.Errorf("%s runs on the wrong task queue %q", name, info.TaskQueue)
	}
	w.mu.Lock()
	w.calls[name]++
	call := w.calls[name]
	w.mu.Unlock()
	w.tell("%s", strings.TrimSpace(name+" "+detail))
	if happens := w.during[name]; happens != nil {
		return happens(call)
	}
	return nil
}

// either is the queue of a step that is tried as a local activity first.
func either(ctx context.Context) string {
	if activity.GetInfo(ctx).IsLocalActivity {
		return ""
	}
	return wire.QueueMain
}

// main runs f between two steps of the workflow and waits for it, so that what
// f starts arrives before the end of the step that calls main.
func (w *world) main(f func()) {
	done := make(chan struct{})
	w.env.RegisterDelayedCallback(func() { defer close(done); f() }, 0)
	<-done
}

// set changes the world, as somebody else does it.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// stage leaves the exit of a deployer.
func (w *world) stage(exit deployment.Exit) { w.set(func() { w.exit = &exit }) }

// before makes the request one that became a build before.
func (w *world) before(status deployment.Status, configuration string) {
	w.build, w.status = build, status
	w.recorded = store.Submit{Configuration: json.RawMessage(configuration)}
}

// untilTold waits for a line of the story.
func (w *world) untilTold(prefix string) error {
	told := func(line string) bool { return strings.HasPrefix(line, prefix) }
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if slices.ContainsFunc(w.story(), told) {
			return nil
		}
	}
	w.t.Errorf("nothing told of %q", prefix)
	return nil
}

// cancelledMeanwhile is a step that ends while a cancel is under way.
func (w *world) cancelledMeanwhile(int) error {
	w.callerCancels()
	return w.untilTold("Cancel")
}

// untilFinished is a step that goes on until the workflow knows that the build
// has ended.
func (w *world) untilFinished(int) error {
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if strings.Contains(w.details(), "succeeded") {
			return nil
		}
	}
	w.t.Error("the build does not end")
	return nil
}

// untilStopped is the rest of an activity that runs until it is asked to stop.
func (w *world) untilStopped() error {
	select {
	case <-w.stopped:
	case <-time.After(10 * time.Second):
		w.t.Error("nobody asked the activity to stop")
	}
	return temporal.NewCanceledError()
}

// update sends an update and tells its answer. It is for the main loop.
func (w *world) update(name string, args ...any) {
	w.env.UpdateWorkflow(name, "", &testsuite.TestUpdateCallback{
		OnAccept: func() {},
		OnReject: func(err error) { w.tell("%s is rejected: %v", name, err) },
		OnComplete: func(answer any, err error) {
			var application *temporal.ApplicationError
			switch {
			case err == nil:
				text, err := json.Marshal(answer)
				require.NoError(w.t, err)
				w.tell("%s is answered %s", name, text)
				if strings.Contains(string(text), "ready") && w.ready != nil {
					w.env.RegisterDelayedCallback(w.ready, 0)
				}
			case errors.As(err, &application):
				require.True(w.t, application.NonRetryable())
				w.tell("%s is refused: %s: %s", name, application.Type(), strings.SplitN(application.Message(), "\n", 2)[0])
			default:
				w.tell("%s fails: %v", name, err)
			}
		},
	}, args...)
}

func (w *world) submit(configuration string) {
	w.update(wire.UpdateSubmit, wire.SubmitRequest{Snapshot: snapshot, Configuration: json.RawMessage(configuration), Secrets: w.asks, StoredBuild: w.stored})
}

func (w *world) commit(wrapped string) {
	w.update(wire.UpdateCommit, wire.CommitRequest{Wrapped: wrapped})
}

// operatorCancels cancels the workflow in the middle of a step.
func (w *world) operatorCancels() { w.main(w.env.CancelWorkflow) }

// callerCancels sends the update cancel in the middle of a step.
func (w *world) callerCancels() { w.main(func() { w.update(wire.UpdateCancel) }) }

// details are the current details in the middle of a step.
func (w *world) details() (text string) {
	w.main(func() { text = w.detailsNow() })
	return text
}

func (w *world) detailsNow() string {
	value, err := w.env.QueryWorkflow("__temporal_workflow_metadata")
	require.NoError(w.t, err)
	var metadata sdk.WorkflowMetadata
	require.NoError(w.t, value.Get(&metadata))
	return metadata.GetCurrentDetails()
}

// runSubmit runs a Submit that gets its update with the start.
func (w *world) runSubmit() {
	w.env.RegisterDelayedCallback(func() { w.submit(configuration) }, 0)
	w.runWithout(wire.WorkflowSubmit, wire.SubmitID(id, request), wire.SubmitInput{Deployment: id, Request: request})
}

// runImport runs an Import that gets its update with the start.
func (w *world) runImport() {
	w.env.RegisterDelayedCallback(func() { w.imports(configuration, w.deploy) }, 0)
	w.runWithout(wire.WorkflowImport, wire.ImportID(id, request), wire.SubmitInput{Deployment: id, Request: request})
}

func (w *world) imports(configuration string, deploy bool) {
	w.update(wire.UpdateImport, wire.ImportRequest{Deploy: deploy, SubmitRequest: wire.SubmitRequest{
		Snapshot: snapshot, Configuration: json.RawMessage(configuration), Secrets: w.asks,
	}})
}

// runDestroy runs a Destroy that gets its update with the start.
func (w *world) runDestroy() {
	w.env.RegisterDelayedCallback(func() { w.update(wire.UpdateDestroy) }, 0)
	w.runWithout(wire.WorkflowDestroy, wire.DestroyID(id, request), wire.DestroyInput{Deployment: id, Request: request, Callback: w.callback})
}

// runWithout runs a workflow without an update and tells its end.
func (w *world) runWithout(name, workflowID string, in any) {
	w.env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: workflowID, TaskQueue: wire.QueueMain})
	w.env.ExecuteWorkflow(name, in)
	require.True(w.t, w.env.IsWorkflowCompleted())
	err := w.env.GetWorkflowError()
	var application *temporal.ApplicationError
	var result json.RawMessage
	switch {
	case err == nil && name == wire.WorkflowSchemaBuild:
		w.tell("ends")
	case err == nil:
		require.NoError(w.t, w.env.GetWorkflowResult(&result))
		w.tell("ends with %s", result)
	case temporal.IsCanceledError(err):
		w.tell("ends cancelled")
	case errors.As(err, &application):
		w.tell("fails: %s: %s", application.Type(), application.Message())
	default:
		w.tell("fails: %v", err)
	}
}

// The steps.

func (w *world) Recall(ctx context.Context, in store.RecallInput) (store.Recorded, error) {
	if err := w.step(ctx, "", "Recall", ""); err != nil {
		return store.Recorded{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.build == 0:
		return store.Recorded{}, nil
	case string(in.Configuration) != string(w.recorded.Configuration) && string(in.Configuration) != string(w.recorded.Asked):
		return store.Recorded{}, temporal.NewNonRetryableApplicationError("other", wire.ErrorIdempotencyConflict, nil)
	}
	return store.Recorded{Build: w.build, Evaluation: deployment.EvaluationEvaluated, Before: true, Clears: w.recorded.Clears}, nil
}

func (w *world) Record(ctx context.Context, in store.Submit) (store.Recorded, error) {
	if err := w.step(ctx, "", "Record", "with evaluation "+fmt.Sprintf("%q", in.EvaluationKey)); err != nil {
		return store.Recorded{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if in.Prepared != nil && !w.inHand {
		return store.Recorded{}, temporal.NewNonRetryableApplicationError("not in hand", wire.ErrorSubmitInProgress, nil)
	}
	w.build, w.status, w.recorded, w.inHand = build, deployment.StatusQueued, in, false
	out := store.Recorded{Build: build, Evaluation: deployment.EvaluationSkipped}
	if in.EvaluationKey != "" {
		out.Evaluation = deployment.EvaluationEvaluated
	}
	return out, nil
}

func (w *world) RecallImport(ctx context.Context, in store.RecallImportInput) (store.Recorded, error) {
	if err := w.step(ctx, "", "RecallImport", ""); err != nil {
		return store.Recorded{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.imported {
		return store.Recorded{}, nil
	}
	return store.Recorded{Build: w.build, Evaluation: deployment.EvaluationEvaluated, Before: true}, nil
}

func (w *world) RecordImport(ctx context.Context, in store.Import) (store.Recorded, error) {
	if err := w.withSecretsInHand(ctx, "", "RecordImport", fmt.Sprintf("with evaluation %q, deploy %t", in.EvaluationKey, in.Deploy)); err != nil {
		return store.Recorded{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if in.Prepared == nil || !in.Prepared.Import {
		w.t.Errorf("an import that has not the deployment in hand: %+v", in.Prepared)
	}
	w.recorded, w.inHand, w.imported = in.Submit, false, true
	if !in.Deploy {
		return store.Recorded{Evaluation: deployment.EvaluationEvaluated}, nil
	}
	w.build, w.status = build, deployment.StatusQueued
	return store.Recorded{Build: build, Evaluation: deployment.EvaluationEvaluated}, nil
}

func (w *world) RecordDestroy(ctx context.Context, in store.Destroy) (store.RecordedDestroy, error) {
	if err := w.step(ctx, "", "RecordDestroy", ""); err != nil {
		return store.RecordedDestroy{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unknown {
		return store.RecordedDestroy{}, temporal.NewNonRetryableApplicationError("unknown", wire.ErrorUnknownDeployment, nil)
	}
	if want := (store.Destroy{Deployment: id, Request: request, WorkflowID: wire.DestroyID(id, request), Callback: w.callback}); in != want {
		w.t.Errorf("RecordDestroy got %+v", in)
	}
	if w.haulsOut.Ours && w.build == 0 {
		w.build, w.status = w.haulsOut.Build, deployment.StatusQueued
	}
	return w.haulsOut, nil
}

func (w *world) CachedNames(ctx context.Context, in nix.NamesInput) (wire.Evaluated, error) {
	if err := w.step(ctx, "", "CachedNames", ""); err != nil {
		return wire.Evaluated{}, err
	}
	w.checkNames(in)
	return w.cached, nil
}

func (w *world) Names(ctx context.Context, in nix.NamesInput) (wire.Evaluated, error) {
	if err := w.step(ctx, wire.QueueNix, "Names", ""); err != nil {
		return wire.Evaluated{}, err
	}
	w.checkNames(in)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.evaluated) == 0 {
		return wire.Evaluated{}, temporal.NewNonRetryableApplicationError("one evaluation too many", "Test", nil)
	}
	next := w.evaluated[0]
	w.evaluated = w.evaluated[1:]
	return next, nil
}

func (w *world) Systems(ctx context.Context, in nix.SystemsInput) (wire.SystemsEvaluated, error) {
	if err := w.step(ctx, wire.QueueNix, "Systems", "of "+in.Key); err != nil {
		return wire.SystemsEvaluated{}, err
	}
	w.checkNames(in.NamesInput)
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.systems[0]
	w.systems = w.systems[1:]
	return next, nil
}

func (w *world) checkNames(in nix.NamesInput) {
	want := configuration
	if w.prepared.Configuration != nil {
		want = string(w.prepared.Configuration)
	}
	if in.Snapshot != snapshot || string(in.Configuration) != want {
		w.t.Errorf("an evaluation of %s in %s", in.Configuration, in.Snapshot)
	}
}

func (w *world) BuildSchema(ctx context.Context, in wire.SchemaBuildInput) error {
	return w.step(ctx, wire.QueueNix, "BuildSchema", in.Snapshot+" "+in.Entry)
}

func (w *world) TakeTurn(ctx context.Context, ref deployment.Ref) (store.Turn, error) {
	if err := w.step(ctx, "", "TakeTurn", ref.String()); err != nil {
		return "", err
	}
	return w.turn(), nil
}

func (w *world) AwaitTurn(ctx context.Context, ref deployment.Ref) (store.Turn, error) {
	if err := w.step(ctx, wire.QueueMain, "AwaitTurn", ref.String()); err != nil {
		return "", err
	}
	return w.turn(), nil
}

func (w *world) turn() store.Turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.status.Ended():
		return store.TurnEnded
	case w.status == deployment.StatusQueued && w.older:
		return store.TurnWait
	}
	w.status = deployment.StatusRunning
	return store.TurnTaken
}

func (w *world) Cancel(ctx context.Context, ref deployment.Ref) (deployment.Status, error) {
	if err := w.step(ctx, either(ctx), "Cancel", ref.String()); err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.status.Ended() {
		w.cancel = true
	}
	if w.status == deployment.StatusQueued {
		w.status, w.reason = deployment.StatusCancelled, "cancelled while queued"
	}
	return w.status, nil
}

func (w *world) Finish(ctx context.Context, in store.FinishInput) (store.Ended, error) {
	if err := w.step(ctx, either(ctx), "Finish", in.Ref.String()); err != nil {
		return store.Ended{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status.Ended() {
		return store.Ended{Status: w.status, Reason: w.reason}, nil
	}
	exit := deployment.Exit{Code: -1, Reason: in.Otherwise.Reason, Cancelled: in.Otherwise.Cancelled}
	if w.exit != nil {
		exit = *w.exit
	}
	w.status, w.reason = deployment.StatusFailed, exit.Reason
	switch {
	case exit.Code == 0:
		w.status = deployment.StatusSucceeded
	case exit.Cancelled:
		w.status = deployment.StatusCancelled
	}
	return store.Ended{Status: w.status, Reason: w.reason, Callback: w.callback != "" && w.status == deployment.StatusSucceeded}, nil
}

func (w *world) CallBack(ctx context.Context, ref deployment.Ref) (deployment.Callback, error) {
	if err := w.step(ctx, wire.QueueMain, "CallBack", ref.String()); err != nil {
		return deployment.Callback{}, err
	}
	return w.became, nil
}

func (w *world) SettleCallback(ctx context.Context, in store.SettleInput) error {
	detail := fmt.Sprintf("%s %s", in.Ref, in.Callback.State)
	if err := w.step(ctx, either(ctx), "SettleCallback", detail); err != nil {
		return err
	}
	w.set(func() { w.settled = append(w.settled, in.Callback) })
	return nil
}

func (w *world) Deploy(ctx context.Context, ref deployment.Ref) error {
	return w.runDeployer(ctx, "Deploy", ref)
}

func (w *world) Destroy(ctx context.Context, ref deployment.Ref) error {
	return w.runDeployer(ctx, "Destroy", ref)
}

func (w *world) runDeployer(ctx context.Context, name string, ref deployment.Ref) error {
	w.mu.Lock()
	refused := w.cancel
	w.mu.Unlock()
	if refused { // by the fence
		return temporal.NewNonRetryableApplicationError("fenced", wire.ErrorFenceHeld, nil)
	}
	if err := w.step(ctx, wire.QueueDeploy, name, ref.String()); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.exit == nil {
		w.exit = &deployment.Exit{}
	}
	return nil
}

func (w *world) PrepareSecrets(ctx context.Context, p store.Preparation) error {
	if err := w.step(ctx, wire.QueueMain, "PrepareSecrets", ""); err != nil {
		return err
	}
	w.checkPreparation(ctx, p)
	w.set(func() { w.inHand = true })
	return nil
}

func (w *world) LetGoOfSecrets(ctx context.Context, p store.Preparation) error {
	if err := w.step(ctx, "", "LetGoOfSecrets", ""); err != nil {
		return err
	}
	w.checkPreparation(ctx, p)
	w.set(func() { w.inHand = false })
	return nil
}

func (w *world) checkPreparation(ctx context.Context, p store.Preparation) {
	run := activity.GetInfo(ctx).WorkflowExecution
	imports := activity.GetInfo(ctx).WorkflowType.Name == wire.WorkflowImport
	if want := (store.Preparation{Deployment: id, WorkflowID: run.ID, RunID: run.RunID, Import: imports}); p != want {
		w.t.Errorf("a preparation of %+v", p)
	}
}

// withSecretsInHand is step for what nobody else may do meanwhile.
func (w *world) withSecretsInHand(ctx context.Context, queue, name, detail string) error {
	w.mu.Lock()
	inHand := w.inHand
	w.mu.Unlock()
	if !inHand {
		w.t.Errorf("%s without the secrets in hand", name)
	}
	return w.step(ctx, queue, name, detail)
}

func (w *world) Unneeded(ctx context.Context, in store.UnneededInput) ([][2]string, error) {
	if err := w.withSecretsInHand(ctx, "", "Unneeded", ""); err != nil {
		return nil, err
	}
	if w.unneeded == nil {
		return in.Cleared, nil
	}
	return w.unneeded(in.Cleared), nil
}

func (w *world) IsNewest(ctx context.Context, ref deployment.Ref) (bool, error) {
	err := w.withSecretsInHand(ctx, "", "IsNewest", ref.String())
	return !w.newer, err
}

func (w *world) StaysDown(ctx context.Context, ref deployment.Ref) (bool, error) {
	err := w.withSecretsInHand(ctx, "", "StaysDown", ref.String())
	return !w.newer, err
}

func (w *world) ReadSecrets(ctx context.Context, in openbao.ReadInput) (openbao.Prepared, error) {
	if err := w.withSecretsInHand(ctx, wire.QueueMain, "ReadSecrets", ""); err != nil {
		return openbao.Prepared{}, err
	}
	if in.Deployment != id || string(in.Configuration) != configuration || len(in.Applications) != len(w.asks) {
		w.t.Errorf("secrets of %+v", in)
	}
	return w.prepared, nil
}

func (w *world) WriteSecrets(ctx context.Context, in openbao.WriteInput) error {
	if err := w.withSecretsInHand(ctx, wire.QueueMain, "WriteSecrets", fmt.Sprintf("by %q", in.Wrapped)); err != nil {
		return err
	}
	w.set(func() { w.wrote = append(w.wrote, in) })
	return nil
}

func (w *world) ClearSecrets(ctx context.Context, in openbao.ClearInput) error {
	if err := w.withSecretsInHand(ctx, wire.QueueMain, "ClearSecrets", ""); err != nil {
		return err
	}
	w.set(func() { w.cleared = append(w.cleared, in.Cleared...) })
	return nil
}

func (w *world) DeleteSecrets(ctx context.Context, deployment string) error {
	return w.withSecretsInHand(ctx, wire.QueueMain, "DeleteSecrets", deployment)
}

// story is one run of a workflow and what it does.
type story struct {
	name    string
	arrange func(w *world)
	want    []string
}

func tellStories(t *testing.T, run func(*world), stories []story) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if s.arrange != nil {
				s.arrange(w)
			}
			run(w)
			require.False(t, w.inHand, "the secrets stay in hand")
			require.Equal(t, strings.Join(s.want, "\n"), strings.Join(w.story(), "\n"))
		})
	}
}

// lines joins parts of stories: a string or a []string each.
func lines(parts ...any) []string {
	var all []string
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			all = append(all, part)
		case []string:
			all = slices.Concat(all, part)
		}
	}
	return all
}
