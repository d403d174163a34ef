package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/cmd/slipway-dev/ports"
)

// kubePorts are the ports of the command kube, which up has too.
type kubePorts struct{ api, etcd, etcdPeer *portFlag }

func newKubePorts(flags *pflag.FlagSet) kubePorts {
	return kubePorts{
		api:      newPortFlag(flags, "Kubernetes API server", "kube-port", "DEV_KUBE_PORT", 6443),
		etcd:     newPortFlag(flags, "etcd", "etcd-port", "DEV_ETCD_PORT", 2379),
		etcdPeer: newPortFlag(flags, "etcd for its peers", "etcd-peer-port", "DEV_ETCD_PEER_PORT", 2380),
	}
}

// apiServerFlag is the path of the program kube-apiserver.
func apiServerFlag(flags *pflag.FlagSet) *string {
	return flags.String("kube-apiserver-bin", "", "the program kube-apiserver (default: the one beside this program)")
}

// beside is a path, or where that is empty the program of a name in the folder
// of this one.
func beside(path, name string) (string, error) {
	if path != "" {
		return path, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(self), name), nil
}

func kubeCommand(env lookup) *cobra.Command {
	options := kube.Options{Output: os.Stderr}
	var readyPath string
	command := &cobra.Command{
		Use:   "kube",
		Short: "Run a Kubernetes API server and its etcd in the foreground",
		Long: `Runs a real Kubernetes API server in the foreground, with RBAC, on an etcd of its
own, for the lease API: with the CRDs, slipway's ServiceAccount and rights, and
an example: the group orders, its database orders-app, and the ServiceAccount
application/application-deploy, which may deploy to it.

In the data folder are then, among others,

  kubeconfig           an administrator's
  slipway.kubeconfig   that of slipway's ServiceAccount
  token                of application/application-deploy, for the lease API
  lease-ca.crt         the CA of slipway's TLS listener, and tls.crt and tls.key
                       for it

Tokens are replaced while the command runs; read them again for every request.

When everything can be used it prints one line that begins with "ready", and
writes the same line to --ready-file. That file is removed at the start, so
waiting for it to appear is waiting for the server.

Ctrl-C or SIGTERM stops it within seconds. It may also be killed at any moment:
started again on the same folder it goes on where it was.`,
		Args: cobra.NoArgs,
	}
	flags := command.Flags()
	flags.StringVar(&options.Folder, "data-dir", ".slipway/kube", "folder of the data and of what clients need")
	flags.BoolVar(&options.ThrowAway, "throw-away", false, "do not sync to disk: faster, and lost in a power cut")
	listeners := newKubePorts(flags)
	program := apiServerFlag(flags)
	flags.StringVar(&readyPath, "ready-file", "", "file to write when the server can be used")
	command.RunE = func(command *cobra.Command, _ []string) error {
		// Whether they are free is for kube: what an earlier run left may still
		// be about to end.
		uses, err := resolve(command.Flags(), env, listeners.api, listeners.etcd, listeners.etcdPeer)
		if err != nil {
			return err
		}
		options.API, options.Etcd, options.EtcdPeer = uses[0], uses[1], uses[2]
		if options.APIServer, err = beside(*program, "kube-apiserver"); err != nil {
			return err
		}
		ready := readyFile{readyPath}
		if err := ready.remove(); err != nil {
			return err
		}
		line := "ready: Kubernetes API server on https://" + ports.Address(options.API.Port)
		ctx, cancel := untilStopped(command.Context())
		defer cancel()
		return kube.Run(ctx, options, func() error {
			fmt.Fprintln(command.OutOrStdout(), line)
			return ready.write(line + "\n")
		})
	}
	return command
}
