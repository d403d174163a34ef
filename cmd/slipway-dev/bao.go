package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/cmd/slipway-dev/bao"
	"slipway.dev/slipway/cmd/slipway-dev/ports"
)

func newBaoPort(flags *pflag.FlagSet) *portFlag {
	return newPortFlag(flags, "secrets server", "bao-port", "DEV_BAO_PORT", 8200)
}

// baoProgramFlag is the path of the server's program.
func baoProgramFlag(flags *pflag.FlagSet) *string {
	return flags.String("bao-bin", "", "the program of the secrets server (variable BAO_BIN; default: bao on the PATH, else kvserver beside this program)")
}

// baoProgram is the program that a flag, a variable, or what is installed says.
func baoProgram(given string, env lookup) (string, error) {
	if given == "" {
		given, _ = env("BAO_BIN")
	}
	built, err := beside("", "kvserver")
	if err != nil {
		return "", err
	}
	return bao.Find(given, built)
}

func baoCommand(env lookup) *cobra.Command {
	options := bao.Options{Output: os.Stderr}
	var kubeconfig, readyPath string
	command := &cobra.Command{
		Use:   "bao",
		Short: "Run a secrets server (OpenBao) in the foreground",
		Long: `Runs a secrets server in the foreground, for operator secrets: OpenBao where it
is installed or BAO_BIN names it, else the server that it forked from, which
make kvserver builds. It is unsealed, has a KV v2 engine at secret/, a policy
slipway with the rights that slipway needs, and AppRole; with --kubeconfig also
Kubernetes auth for the ServiceAccount slipway/slipway.

In the data folder are then, among others,

  token                a token with the policy slipway, made anew at each start
  nodes-token          a token that can only read secrets, made anew at each start
  role-id, secret-id   of the AppRole slipway
  init.json            the unseal key and the root token

When everything can be used it prints one line that begins with "ready", and
writes the same line to --ready-file. That file is removed at the start, so
waiting for it to appear is waiting for the server.

Ctrl-C or SIGTERM stops it within seconds. It may also be killed at any moment:
started again on the same folder it goes on where it was.`,
		Args: cobra.NoArgs,
	}
	flags := command.Flags()
	flags.StringVar(&options.Folder, "data-dir", ".slipway/bao", "folder of the data and of what clients need")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "Kubernetes API server whose ServiceAccounts may log in")
	port := newBaoPort(flags)
	program := baoProgramFlag(flags)
	flags.StringVar(&readyPath, "ready-file", "", "file to write when the server can be used")
	command.RunE = func(command *cobra.Command, _ []string) error {
		// Whether it is free is for bao: what an earlier run left may still be
		// about to end.
		uses, err := resolve(command.Flags(), env, port)
		if err != nil {
			return err
		}
		options.Listen = uses[0]
		if options.Program, err = baoProgram(*program, env); err != nil {
			return err
		}
		kubernetes, err := kubernetesOf(kubeconfig)
		if err != nil {
			return err
		}
		ready := readyFile{readyPath}
		if err := ready.remove(); err != nil {
			return err
		}
		line := fmt.Sprintf("ready: secrets server (%s) on http://%s", filepath.Base(options.Program), ports.Address(options.Listen.Port))
		ctx, cancel := untilStopped(command.Context())
		defer cancel()
		return bao.Run(ctx, options, kubernetes, func() error {
			fmt.Fprintln(command.OutOrStdout(), line)
			return ready.write(line + "\n")
		})
	}
	return command
}

// kubernetesOf is the API server of a kubeconfig; nil where there is none.
func kubernetesOf(kubeconfig string) (*bao.Kubernetes, error) {
	if kubeconfig == "" {
		return nil, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		err = rest.LoadTLSFiles(config)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return &bao.Kubernetes{URL: config.Host, CA: config.CAData}, nil
}
