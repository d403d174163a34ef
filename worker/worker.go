package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"

	"slipway.dev/slipway/activities/callback"
	"slipway.dev/slipway/activities/deployer"
	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/activities/openbao"
	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/workflows"
)

const (
	// waitingBuilds is how many builds of a process may wait for their turn.
	waitingBuilds = 5000
	// unslotted is how many evaluations beyond the slots may be told at once
	// that there is no slot.
	unslotted = 500
	// heartbeatThrottle is how often the SDK sends heartbeats, and how long it
	// tries to: an activity whose heartbeat does not get through for so long is
	// cancelled. Deployers heartbeat by themselves.
	heartbeatThrottle = 3 * time.Second
	// startRetry is how often a worker tries to reach Temporal.
	startRetry = 2 * time.Second
)

// Activities are all that the workflows call.
type Activities struct {
	Store    *store.Activities
	Nix      *nix.Activities
	Deployer *deployer.Activities
	Callback *callback.Activities
	// OpenBao is nil where none is configured.
	OpenBao *openbao.Activities
}

// Config is what a worker needs.
type Config struct {
	Client     client.Client
	Activities Activities
	// EvaluationSlots is how many evaluations run at once, DeploySlots how many
	// deployers.
	EvaluationSlots, DeploySlots int
	// StopTimeout is how long a worker that stops waits for its activities.
	StopTimeout time.Duration
	// Began is called when the worker polls.
	Began func()
	Log   *zap.Logger
}

// Run polls the task queues until ctx ends; then it takes no more tasks and
// waits for the activities that run. It waits for a Temporal that is away.
func Run(ctx context.Context, c Config) error {
	failed := make(chan error, 3)
	options := worker.Options{
		MaxConcurrentActivityExecutionSize:      waitingBuilds,
		MaxConcurrentLocalActivityExecutionSize: 200,
		MaxHeartbeatThrottleInterval:            heartbeatThrottle,
		DefaultHeartbeatThrottleInterval:        heartbeatThrottle,
		WorkerStopTimeout:                       c.StopTimeout,
		OnFatalError:                            func(err error) { failed <- err },
	}
	main := func() worker.Worker {
		w := worker.New(c.Client, wire.QueueMain, options)
		w.RegisterWorkflowWithOptions(workflows.Submit, workflow.RegisterOptions{Name: wire.WorkflowSubmit})
		w.RegisterWorkflowWithOptions(workflows.Import, workflow.RegisterOptions{Name: wire.WorkflowImport})
		w.RegisterWorkflowWithOptions(workflows.Preview, workflow.RegisterOptions{Name: wire.WorkflowPreview})
		w.RegisterWorkflowWithOptions(workflows.Destroy, workflow.RegisterOptions{Name: wire.WorkflowDestroy})
		w.RegisterWorkflowWithOptions(workflows.SchemaBuild, workflow.RegisterOptions{Name: wire.WorkflowSchemaBuild})
		w.RegisterActivity(c.Activities.Store)
		w.RegisterActivity(c.Activities.Callback)
		if c.Activities.OpenBao != nil {
			w.RegisterActivity(c.Activities.OpenBao)
		}
		w.RegisterActivityWithOptions(c.Activities.Nix.CachedNames, activity.RegisterOptions{Name: "CachedNames"})
		return w
	}
	evaluations := func() worker.Worker {
		options := options
		options.DisableWorkflowWorker = true
		options.MaxConcurrentActivityExecutionSize = c.EvaluationSlots + unslotted
		w := worker.New(c.Client, wire.QueueNix, options)
		w.RegisterActivity(c.Activities.Nix)
		return w
	}
	deploys := func() worker.Worker {
		options := options
		options.DisableWorkflowWorker = true
		options.MaxConcurrentActivityExecutionSize = c.DeploySlots
		w := worker.New(c.Client, wire.QueueDeploy, options)
		w.RegisterActivity(c.Activities.Deployer)
		return w
	}

	// All stop at once, or the last would poll while the first waits.
	var stopping sync.WaitGroup
	defer stopping.Wait()
	for _, build := range []func() worker.Worker{deploys, evaluations, main} {
		w, err := start(ctx, build, c.Log)
		if err != nil {
			return err
		}
		defer stopping.Go(w.Stop)
	}
	c.Began()
	c.Log.Info("worker polls", zap.Int("evaluationSlots", c.EvaluationSlots), zap.Int("deploySlots", c.DeploySlots))
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return fmt.Errorf("worker: %w", err)
	}
}

// start starts a worker, and waits for a Temporal that is away. A worker that
// could not be started once can never be (sync.OnceValue in the SDK), so build
// makes one for each try.
func start(ctx context.Context, build func() worker.Worker, log *zap.Logger) (worker.Worker, error) {
	for {
		w := build()
		err := w.Start()
		if err == nil {
			return w, nil
		}
		log.Warn("worker waits for Temporal", zap.Error(err))
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(startRetry):
		}
	}
}
