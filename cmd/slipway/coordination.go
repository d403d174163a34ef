package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zapio"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"slipway.dev/slipway/activities/kube"
	"slipway.dev/slipway/api/coordination"
	"slipway.dev/slipway/cmd/slipway/config"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/worker"
)

// tellTime bounds telling a workflow that its lease was revoked. It finds out by
// itself too, only later.
const tellTime = 10 * time.Second

// requireCoordination says what the deployment coordination API lacks.
func requireCoordination(cfg config.Config, values []config.Value) error {
	if !cfg.Coordination {
		return nil
	}
	return config.Require(values, "SLIPWAY_DEPLOY_TLS_CERT_FILE", "SLIPWAY_DEPLOY_TLS_KEY_FILE",
		"BLOODRAVEN_DEPLOY_API_AUDIENCE", "SLIPWAY_NAMESPACE")
}

// clusterConfig is how to reach the Kubernetes API server: KUBECONFIG where it
// is set, else what a pod has.
func clusterConfig() (*rest.Config, error) {
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API server (KUBECONFIG, or a pod with a ServiceAccount): %w", err)
	}
	return c, nil
}

// connect makes the client of the Kubernetes API server.
func connect(cfg config.Config, log *zap.Logger) (*kube.Cluster, error) {
	// client-go has a log of its own, in a format of its own.
	klog.LogToStderr(false)
	klog.SetOutput(&zapio.Writer{Log: log.Named("client-go"), Level: zap.DebugLevel})
	access, err := clusterConfig()
	if err != nil {
		return nil, err
	}
	return kube.Connect(access, cfg.GroupNamespaces...)
}

// leaseRuns are the workflows that a steward starts.
type leaseRuns struct {
	leases coordination.Temporal
	plans  coordination.Planner
}

func (r leaseRuns) Adopt(ctx context.Context, ref wire.LeaseRef) error {
	return r.leases.Adopt(ctx, ref)
}

func (r leaseRuns) Resume(ctx context.Context, namespace, group string, request wire.PlannedRequest) error {
	return r.plans.Adopt(ctx, namespace, group, request)
}

func (r leaseRuns) Plan(ctx context.Context, namespace, group string, request wire.PlannedRequest) (wire.PlannedAnswer, error) {
	return r.plans.Request(ctx, namespace, group, request)
}

// coordination serves the deployment coordination API, and looks after leases
// while this process leads. Where it is asked to stop it lets another one lead at
// once, and says so to who still comes here.
func (p *process) coordination(ctx context.Context) error {
	certificates, err := watchCertificate("the deployment coordination API", p.cfg.CertificateFile, p.cfg.CertificateKeyFile, p.log)
	if err != nil {
		return err
	}
	metrics, err := kube.NewMetrics(p.registry)
	if err != nil {
		return err
	}
	runs := coordination.NewTemporal(p.temporal)
	leases := &kube.Leases{
		Cluster: p.cluster, Now: now, Metrics: metrics, Log: p.log, Follow: p.cfg.FollowTopology,
		Revoked: func(g lease.Group, r lease.Record) {
			go func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
				defer cancel()
				ref := wire.LeaseRef{Namespace: g.Namespace, Group: g.Name, Kind: r.Kind, OperationID: r.OperationID}
				if err := runs.Revoked(ctx, ref, r.Reason); err != nil {
					p.log.Warn("a workflow was not told that its lease was revoked", zap.String("workflowId", wire.LeaseID(ref)), zap.Error(err))
				}
			}()
		},
	}
	identity := p.cfg.PodName
	if identity == "" {
		identity, _ = os.Hostname()
	}
	election := &kube.Election{
		Cluster: p.cluster, Namespace: p.cfg.Namespace, Identity: identity + "_" + uuid.NewString(), Pod: p.cfg.PodName,
		Resign: p.asked.Done(), Log: p.log,
	}
	api, err := coordination.NewHandler(coordination.Config{
		Cluster: p.cluster, Leases: leases, Workflows: runs, Leading: election.Leading,
		Audience: p.cfg.CoordinationAudience, Now: now, Log: coordination.NewLogger(os.Stderr), Registerer: p.registry,
	})
	if err != nil {
		return err
	}
	err = p.listen(ctx, "the deployment coordination API", p.cfg.CoordinationListen,
		coordination.Server(api, certificates.config()))
	if err != nil {
		return err
	}
	return election.Run(ctx, func(ctx context.Context) error {
		watch, err := p.cluster.Watch()
		if err != nil {
			return err
		}
		gauges := kube.Gauges{Records: watch.Records(), Now: now}
		if err := p.registry.Register(gauges); err != nil {
			return fmt.Errorf("register the gauges of leases: %w", err)
		}
		defer p.registry.Unregister(gauges)
		steward := &worker.Steward{
			Watch: watch, Leases: leases, Runs: leaseRuns{runs, coordination.NewPlanner(p.temporal)}, Plans: p.cfg.PlannedOperations,
			Gone: func(group string) { metrics.Forget(group); api.Forget(group) }, Log: p.log,
		}
		term, ctx := errgroup.WithContext(ctx)
		term.Go(func() error { steward.Run(ctx); return nil })
		term.Go(func() error {
			err := worker.RunLeases(ctx, worker.LeaseConfig{
				Client: p.temporal, StopTimeout: p.cfg.ShutdownTimeout, Log: p.log,
				Activities: &kube.Activities{Leases: leases, Leading: election.Leading},
			})
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		})
		return term.Wait()
	})
}

// now is the clock of leases, in what objects and clients have of a time.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
