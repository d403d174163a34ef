package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/activities/callback"
	"slipway.dev/slipway/activities/deployer"
	"slipway.dev/slipway/activities/kube"
	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/activities/openbao"
	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/api"
	"slipway.dev/slipway/api/auth"
	"slipway.dev/slipway/cmd/slipway/config"
	"slipway.dev/slipway/worker"
	"slipway.dev/slipway/worker/codec"
)

// readyEvery is how often a starting process looks whether the database has
// its schema.
const readyEvery = time.Second

// connections is how many connections a process holds to PostgreSQL at most.
const connections = 30

// parts are the services that a process runs.
type parts struct{ api, worker bool }

func serveCommand(name, short string, p parts) *cobra.Command {
	c := &cobra.Command{
		Use:   name,
		Short: short,
		Long: short + `.

It waits for PostgreSQL and Temporal where they are away, and /readyz says for
what. SIGTERM ends it cleanly: an API is not ready any more and goes on for
SLIPWAY_DRAIN_TIMEOUT; then requests and activities that run may end, within
SLIPWAY_SHUTDOWN_TIMEOUT. Killed at any moment, it loses nothing.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, values, err := config.Read(os.Environ(), c.Flags())
			required := []string{"SLIPWAY_DATABASE_URL"}
			if p.api {
				required = append(required, "SLIPWAY_TRUSTED_ISSUERS")
			}
			if p.worker {
				required = append(required, "SLIPWAY_SOURCE")
			}
			if err := errors.Join(err, config.Require(values, required...), requireTLS(cfg, values), requireCoordination(cfg, values)); err != nil {
				return err
			}
			log, err := logger(cfg.LogLevel)
			if err != nil {
				return err
			}
			defer func() { _ = log.Sync() }()
			return serve(c.Context(), cfg, p, log)
		},
	}
	config.AddFlags(c.Flags())
	return c
}

// requireTLS says what TLS for the deployments API lacks.
func requireTLS(cfg config.Config, values []config.Value) error {
	if cfg.TLSCertFile == "" && cfg.TLSKeyFile == "" {
		return nil
	}
	return config.Require(values, "SLIPWAY_TLS_CERT_FILE", "SLIPWAY_TLS_KEY_FILE")
}

func logger(level zapcore.Level) (*zap.Logger, error) {
	cfg := zap.NewProductionConfig()
	cfg.Level = zap.NewAtomicLevelAt(level)
	cfg.Sampling = nil
	cfg.DisableStacktrace = true
	cfg.EncoderConfig.TimeKey = "time"
	cfg.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	return cfg.Build()
}

// process is what the parts of a process share.
type process struct {
	cfg      config.Config
	group    *errgroup.Group
	log      *zap.Logger
	registry *prometheus.Registry
	tracer   trace.Tracer // nil without a collector
	db       *store.Store
	listener *store.Listener
	temporal client.Client
	payloads *codec.Codec
	bao      *openbao.Client // nil without OPENBAO_ADDR
	cluster  *kube.Cluster   // nil without the deployment coordination API
	// asked has ended once the process was asked to stop; see stages.
	asked context.Context
}

// serve runs the parts until ctx ends or one fails.
func serve(ctx context.Context, cfg config.Config, p parts, log *zap.Logger) error {
	db, err := store.Open(ctx, cfg.DatabaseURL, connections)
	if err != nil {
		return err
	}
	defer db.Close()
	payloads, err := readCodec(cfg.CodecKeysFile)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	if err := db.Register(registry); err != nil {
		return err
	}
	tracer, flush, err := tracing(ctx, log)
	if err != nil {
		return err
	}
	defer flush()
	observe, err := observed(registry, tracer, log)
	if err != nil {
		return err
	}
	temporal, _, err := temporalClient(payloads, cfg.TemporalAPIKeyFile, log, observe)
	if err != nil {
		return err
	}
	defer temporal.Close()

	group, ctx, asked := stages(ctx, p.drain(cfg))
	run := &process{
		cfg: cfg, group: group, log: log, registry: registry, tracer: tracer,
		db: db, listener: db.Listener(log), temporal: temporal, payloads: payloads, asked: asked,
	}
	others := map[string]func(context.Context) error{}
	if cfg.OpenBao.Address != "" {
		options := cfg.OpenBao
		options.Registerer = registry
		options.Problem = func(err error) { log.Warn("OpenBao", zap.Error(err)) }
		if run.bao, err = openbao.New(options); err != nil {
			return fmt.Errorf("OPENBAO_ADDR is set, and cannot be used (the login is by OPENBAO_TOKEN_FILE, or "+
				"SLIPWAY_OPENBAO_KUBERNETES_ROLE, or SLIPWAY_OPENBAO_ROLE_ID_FILE with SLIPWAY_OPENBAO_SECRET_ID_FILE): %w", err)
		}
		others["OpenBao"] = run.bao.Check
		group.Go(func() error { run.bao.Run(ctx); return nil })
	}
	if p.api && cfg.Coordination {
		if run.cluster, err = connect(cfg, log); err != nil {
			return err
		}
		others["Kubernetes"] = run.cluster.Check
	}
	health := &health{store: db, temporal: temporal, others: others, stopping: asked}
	for _, l := range []struct {
		what, address string
		handler       http.Handler
	}{
		{"metrics", cfg.MetricsListen, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})},
		{"health", cfg.HealthListen, health.handler()},
	} {
		if err := run.listen(ctx, l.what, l.address, internalServer(l.handler)); err != nil {
			return err
		}
	}
	group.Go(func() error { run.listener.Run(ctx); return nil })
	if p.api {
		began := health.starts("the deployments API")
		group.Go(func() error {
			if err := run.api(ctx); err != nil {
				return err
			}
			began()
			return nil
		})
	}
	if p.api && cfg.Coordination {
		group.Go(func() error { return run.coordination(ctx) })
	}
	if p.worker {
		began := health.starts("the worker")
		group.Go(func() error { return run.worker(ctx, began) })
	}
	err = group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// listen serves on an address until ctx ends.
func (p *process) listen(ctx context.Context, what, address string, server *http.Server) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for %s: %w", what, err)
	}
	p.log.Info("listens", zap.String("for", what), zap.Stringer("address", l.Addr()), zap.Bool("tls", server.TLSConfig != nil))
	server.Handler = closing(p.asked, server.Handler)
	// Handshakes that fail, among others; its own way would be lines that are no JSON.
	server.ErrorLog = zap.NewStdLog(p.log.With(zap.String("for", what)))
	p.group.Go(func() error {
		serve := server.Serve
		if server.TLSConfig != nil {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", what, err)
		}
		return nil
	})
	p.group.Go(func() error {
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.ShutdownTimeout)
		defer cancel()
		if err := server.Shutdown(stopping); err != nil {
			p.log.Warn("requests were cut off", zap.String("for", what), zap.Error(err))
		}
		return nil
	})
	return nil
}

// internalServer is for metrics and health: short answers only.
func internalServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// awaitDatabase waits until the database answers and has the schema.
func (p *process) awaitDatabase(ctx context.Context) error {
	for said := ""; ; {
		err := p.db.Ready(ctx)
		if err == nil {
			return nil
		}
		if err.Error() != said {
			said = err.Error()
			p.log.Warn("waits for the database", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(readyEvery):
		}
	}
}

// api serves the deployments API.
func (p *process) api(ctx context.Context) error {
	var secure *tls.Config // nil: plain text
	if p.cfg.TLSCertFile != "" {
		certificates, err := watchCertificate("the deployments API", p.cfg.TLSCertFile, p.cfg.TLSKeyFile, p.log)
		if err != nil {
			return err
		}
		secure = certificates.config()
	}
	verifier, err := auth.NewVerifier(p.cfg.TrustedIssuers, time.Now, p.log)
	if err != nil {
		return fmt.Errorf("SLIPWAY_TRUSTED_ISSUERS: %w", err)
	}
	p.group.Go(func() error { verifier.Run(ctx); return nil })
	if err := p.awaitDatabase(ctx); err != nil {
		return err
	}
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // never fails
	key, err := p.db.Key(ctx, "tickets", fresh)
	if err != nil {
		return err
	}
	var sealer api.Sealer
	if p.bao != nil {
		sealer = p.bao
	}
	var decoder converter.PayloadCodec
	if p.cfg.CodecKeysFile != "" {
		decoder = p.payloads
	}
	handler, err := api.NewHandler(ctx, api.Config{
		Codec: decoder, CodecOrigins: p.cfg.CodecOrigins,
		Sealer: sealer, Reader: p.db, Callbacks: p.db, Listener: p.listener, Workflows: api.NewTemporal(p.temporal),
		Verifier: verifier, Origins: p.cfg.Origins, TicketKey: key, Log: p.log, Registerer: p.registry, Tracer: p.tracer,
		TrustedProxies:  p.cfg.TrustedProxies,
		EvaluateTimeout: p.cfg.NixTimeout + time.Minute,
		ImportTimeout:   p.cfg.NixTimeout + p.cfg.SystemsTimeout + time.Minute,
	})
	if err != nil {
		return err
	}
	server := api.Server(handler)
	server.TLSConfig = secure
	return p.listen(ctx, "the deployments API", p.cfg.Listen, server)
}

// worker runs workflows, evaluations and deployers until ctx ends; began is
// called when it polls.
func (p *process) worker(ctx context.Context, began func()) error {
	evaluator, err := nix.New(nix.Config{
		Timeout: p.cfg.NixTimeout, MemoryBytes: p.cfg.NixMemory, Slots: p.cfg.NixSlots, CAFile: p.cfg.SourceCAFile,
		StateDir: filepath.Join(p.cfg.StateDir, "nix"), Env: picked(os.Environ(), nixVariables...), Registerer: p.registry,
	})
	if err != nil {
		return err
	}
	defer evaluator.Close()
	callbacks, err := callback.NewMetrics(p.registry)
	if err != nil {
		return err
	}

	folders := filepath.Join(p.cfg.StateDir, "deployers")
	if err := deployer.Clean(folders); err != nil {
		return err
	}
	if err := p.awaitDatabase(ctx); err != nil {
		return err
	}
	sources := filepath.Join(p.cfg.StateDir, "roots", "sources")
	limits := deployer.DefaultLimits()
	limits.Grace, limits.SBOM = p.cfg.DeployerGrace, p.cfg.SBOMTimeout
	supervisors := &deployer.Supervisors{Command: []string{"/proc/self/exe", superviseName}, Database: p.cfg.DatabaseURL}
	defer supervisors.Close()
	supervisors.Ready()
	deploys := &deployer.Activities{
		Jobs: p.db, Roots: roots{evaluator, filepath.Join(p.cfg.StateDir, "roots", "deployments")}, Server: p.temporal,
		Folder: folders, Supervisors: supervisors,
		Environment: deployerEnvironment(p.cfg.DeployerEnv), Limits: limits,
	}
	sweeper := &worker.Sweeper{Builds: p.db, Client: p.temporal, Log: p.log}
	keeper := &worker.Keeper{
		Evaluator: evaluator, Sources: p.db, Client: p.temporal,
		Source: p.cfg.Source, Entry: p.cfg.SourceEntry, Roots: sources, Log: p.log,
	}
	var secrets *openbao.Activities
	if p.bao != nil {
		secrets = &openbao.Activities{Client: p.bao}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { sweeper.Run(ctx); return nil })
	group.Go(func() error { keeper.Run(ctx); return nil })
	group.Go(func() error {
		// The exits of deployers are staged before the database is closed.
		defer deploys.Running.Wait()
		return worker.Run(ctx, worker.Config{
			Client: p.temporal,
			Activities: worker.Activities{
				Store:    &store.Activities{Store: p.db, Listener: p.listener},
				Nix:      &nix.Activities{Evaluator: evaluator, Cache: p.db, Sources: p.db, Entry: p.cfg.SourceEntry, Roots: sources, SystemsTimeout: p.cfg.SystemsTimeout},
				Deployer: deploys,
				Callback: &callback.Activities{Claims: p.db, Origins: p.cfg.Origins, Caller: &callback.Caller{Resolver: net.DefaultResolver}, Metrics: callbacks},
				OpenBao:  secrets,
			},
			EvaluationSlots: p.cfg.NixSlots, DeploySlots: p.cfg.DeploySlots, StopTimeout: p.cfg.ShutdownTimeout, Began: began, Log: p.log,
		})
	})
	return group.Wait()
}
