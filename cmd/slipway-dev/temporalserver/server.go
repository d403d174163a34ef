package temporalserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/temporal"

	"slipway.dev/slipway/cmd/slipway-dev/ports"
)

// Namespace is the only namespace that a server has beside Temporal's own.
const Namespace = "default"

// Retention is how long the history of a closed workflow is kept.
const Retention = 7 * 24 * time.Hour

// Options says what to run.
type Options struct {
	// ConfigFile is temporal-dev.yaml.
	ConfigFile string
	// Database is the SQLite file; it is made where it is absent, with its
	// folder.
	Database string
	// Port is where the frontend listens for gRPC.
	Port int
	// UIPort is where the Web UI listens; 0 for none.
	UIPort int
}

// Limits of the steps.
const (
	readyTime = time.Minute
	// stopTime is short because nothing depends on a graceful stop: every
	// commit is in the file, and the server's own limit is five minutes.
	stopTime = 8 * time.Second
)

// Run runs the server and the Web UI, and calls ready when both can be used
// (see the package). It returns nil after ctx is done and everything has
// stopped. The server ends the process where one of its listeners fails.
func Run(ctx context.Context, options Options, ready func() error) error {
	if err := run(ctx, options, ready); err != nil {
		return fmt.Errorf("temporal: %w", err)
	}
	return nil
}

func run(ctx context.Context, options Options, ready func() error) error {
	s, err := load(options)
	if err != nil {
		return err
	}
	unlock, err := lock(options.Database)
	if err != nil {
		return err
	}
	defer unlock()
	for _, store := range s.config.Persistence.DataStores {
		if err := makeSchema(store.SQL); err != nil {
			return fmt.Errorf("schema of %s: %w", store.SQL.DatabaseName, err)
		}
	}
	server, err := temporal.NewServer(
		temporal.WithConfig(s.config),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(s.hosts),
		temporal.WithDynamicConfigClient(s.dynamic),
		temporal.WithLogger(log.NewZapLogger(log.BuildZapLogger(s.config.Log))),
		// Whoever reaches the loopback interface may do everything.
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return authorization.NewNoopClaimMapper() }),
	)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer stop(server)
	setup, cancel := context.WithTimeoutCause(ctx, readyTime, fmt.Errorf("not ready after %s", readyTime))
	defer cancel()
	if err := prepareNamespace(setup, ports.Address(options.Port)); err != nil {
		return stopped(ctx, err)
	}
	if options.UIPort != 0 {
		ui := newUI(options)
		go func() { _ = ui.Start() }()
		defer ui.Stop()
		if err := answers(setup, "http://"+ports.Address(options.UIPort)+"/healthz"); err != nil {
			return stopped(ctx, fmt.Errorf("web UI: %w", err))
		}
	}
	if err := ready(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// stopped is nil where a step failed because the caller wants it all to stop.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func stop(server temporal.Server) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Stop()
	}()
	select {
	case <-done:
	case <-time.After(stopTime):
	}
}

func newUI(options Options) *uiserver.Server {
	return uiserver.NewServer(uioptions.WithConfigProvider(&uiconfig.Config{
		TemporalGRPCAddress: ports.Address(options.Port),
		Host:                ports.Host,
		Port:                options.UIPort,
		EnableUI:            true,
		DefaultNamespace:    Namespace,
		DisableNewsFetch:    true,
		HideLogs:            true,
		// Plain HTTP: a cookie that is marked secure would not come back, and
		// no workflow could be terminated from the page.
		CORS: uiconfig.CORS{CookieInsecure: true},
	}))
}

// answers waits until a URL answers with 200.
func answers(ctx context.Context, url string) error {
	for {
		err := get(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}
