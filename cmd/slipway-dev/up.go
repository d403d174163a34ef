package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.dev/slipway/cmd/slipway-dev/up"
)

func stateFolder(flags *pflag.FlagSet) *string {
	return flags.String("state-dir", ".slipway", "folder of all state")
}

func upCommand(env lookup) *cobra.Command {
	var (
		options           up.Options
		detach, noExample bool
		withKube, withBao bool
		readyPipe         bool
	)
	command := &cobra.Command{
		Use:   "up",
		Short: "Run everything on one machine",
		Long: `Runs PostgreSQL, Temporal with its Web UI, and slipway (API and worker) on one
machine with an example panel for people, submits the example deployment, and
prints where everything is. Then it stays until Ctrl-C, which stops all that it
started. A second Ctrl-C kills it at once. Started again, all goes on where it
was.

Addresses and a token are written to dev.env in the state folder:

  . .slipway/dev.env
  curl -H "Authorization: Bearer $SLIPWAY_TOKEN" $SLIPWAY_URL/deployments/example

Variables that begin with SLIPWAY_ reach slipway:

  SLIPWAY_NIX_SLOTS=1 slipway-dev up

With --kube (make dev KUBE=1) there is a Kubernetes API server too, and slipway
serves its lease API (/deploy/v1) with it.

With --bao (make dev BAO=1) there is a secrets server too, OpenBao where it is
installed, and slipway keeps operator secrets in it. The example gets random
values for its own, which its nodes read.

Every port can be set, by its flag or its variable. Nothing is started when one
of them is taken. The programs' logs are in the folder logs of the state folder.`,
		Args: cobra.NoArgs,
	}
	flags := command.Flags()
	state := stateFolder(flags)
	flags.StringVar(&options.TemporalConfig, "config", "temporal-dev.yaml", "configuration of the Temporal server")
	flags.StringVar(&options.Source, "source", "deploy/source", "module source: a folder, or git+https://…")
	flags.StringVar(&options.Example, "example", "deploy/source/example.json", "configuration to submit")
	flags.StringVar(&options.Slipway, "slipway-bin", "", "the program slipway (default: the one beside this program)")
	api := newPortFlag(flags, "deployments API", "api-port", "DEV_API_PORT", 8082)
	metrics := newPortFlag(flags, "metrics of slipway", "metrics-port", "DEV_METRICS_PORT", 8080)
	health := newPortFlag(flags, "health checks of slipway", "health-port", "DEV_HEALTH_PORT", 8081)
	temporal := newPortFlag(flags, "Temporal frontend (gRPC)", "temporal-port", "DEV_TEMPORAL_PORT", 7233)
	ui := newPortFlag(flags, "Temporal Web UI", "ui-port", "DEV_UI_PORT", 8233)
	postgres := newPortFlag(flags, "PostgreSQL server", "postgres-port", "DEV_POSTGRES_PORT", 5433)
	panel := newPanelPort(flags)
	flags.BoolVar(&withKube, "kube", false, "run a Kubernetes API server and the lease API too")
	lease := newPortFlag(flags, "lease API (with --kube)", "lease-port", "DEV_LEASE_PORT", 8443)
	kubernetes := newKubePorts(flags)
	apiServer := apiServerFlag(flags)
	flags.BoolVar(&withBao, "bao", false, "run a secrets server (OpenBao) for operator secrets too")
	baoPort := newBaoPort(flags)
	baoBin := baoProgramFlag(flags)
	flags.BoolVar(&options.Reset, "reset", false, "remove the state of earlier runs first")
	flags.BoolVar(&detach, "detach", false, "run in the background; return when everything is ready")
	flags.BoolVar(&noExample, "no-example", false, "do not submit the example deployment")
	flags.BoolVar(&readyPipe, "ready-pipe", false, "signal the process that detached this one")
	if err := flags.MarkHidden("ready-pipe"); err != nil {
		// Only a name that is not a flag is refused.
		panic(err)
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		ctx, kill, done := stopOrKill(command.Context())
		defer done()
		if detach {
			return up.Detach(ctx, *state, self, detachedArguments(command.Flags()), command.OutOrStdout())
		}
		uses, err := resolve(command.Flags(), env, api, metrics, health, temporal, ui, postgres, panel)
		if err != nil {
			return err
		}
		options.API, options.Metrics, options.Health = uses[0], uses[1], uses[2]
		options.Temporal, options.UI, options.Postgres, options.Panel = uses[3], uses[4], uses[5], uses[6]
		if withKube {
			uses, err := resolve(command.Flags(), env, lease, kubernetes.api, kubernetes.etcd, kubernetes.etcdPeer)
			if err != nil {
				return err
			}
			options.Kube = &up.Kube{Lease: uses[0], API: uses[1], Etcd: uses[2], EtcdPeer: uses[3]}
			if options.Kube.APIServer, err = beside(*apiServer, "kube-apiserver"); err != nil {
				return err
			}
		}
		if withBao {
			uses, err := resolve(command.Flags(), env, baoPort)
			if err != nil {
				return err
			}
			options.Bao = &up.Bao{Listen: uses[0]}
			if options.Bao.Program, err = baoProgram(*baoBin, env); err != nil {
				return err
			}
		}
		options.StateFolder, options.Self, options.Environ, options.Out = *state, self, os.Environ(), os.Stdout
		if options.Slipway == "" {
			options.Slipway = filepath.Join(filepath.Dir(self), "slipway")
		}
		if noExample {
			options.Example = ""
		}
		if readyPipe {
			options.Ready = up.SignalReady
		}
		return up.Run(ctx, kill, options)
	}
	return command
}

// detachedArguments are those of this command for the program in the
// background: all flags that were given but --detach.
func detachedArguments(flags *pflag.FlagSet) []string {
	arguments := []string{"up", "--ready-pipe"}
	flags.Visit(func(flag *pflag.Flag) {
		if flag.Name != "detach" {
			arguments = append(arguments, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return arguments
}

// stopOrKill is a context that the first stop signal ends, and a channel that
// the second one closes.
func stopOrKill(parent context.Context) (ctx context.Context, kill <-chan struct{}, done func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, killed, end := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, stopSignals()...)
	go func() {
		for _, act := range []func(){cancel, func() { close(killed) }} {
			select {
			case <-signals:
				act()
			case <-end:
				return
			}
		}
	}()
	return ctx, killed, func() {
		signal.Stop(signals)
		close(end)
		cancel()
	}
}

func downCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop what up runs on a state folder",
		Long: `Stops what slipway-dev up runs on a state folder, in the background or not, and
returns when it is gone. Where nothing runs it says so.`,
		Args: cobra.NoArgs,
	}
	state := stateFolder(command.Flags())
	command.RunE = func(command *cobra.Command, _ []string) error {
		ctx, cancel := untilStopped(command.Context())
		defer cancel()
		return up.Down(ctx, *state, command.OutOrStdout())
	}
	return command
}
