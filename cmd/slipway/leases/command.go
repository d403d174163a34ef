package leases

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.dev/slipway/api/leaseclient"
	"slipway.dev/slipway/cmd/slipway/exit"
)

// Where a pod finds what it needs when nothing else is said, see
// deploy/examples/job.yaml.
const (
	podURL       = "https://bloodraven.bloodraven.svc.cluster.local:8443/deploy/v1"
	podCAFile    = "/var/run/slipway-lease/ca.crt"
	podTokenFile = "/var/run/slipway-lease/token"
)

// Command is "slipway lease". Defaults of its flags are read with getenv, as
// the help of each says.
func Command(getenv func(string) string, connect Connect) *cobra.Command {
	c := &cobra.Command{
		Use:   "lease",
		Short: "Leases of deploy jobs on a failover group",
	}
	c.AddCommand(runCommand(getenv), statusCommand(getenv), revokeCommand(connect), watchdogCommand())
	return c
}

// access has what a command needs to reach the API.
type access struct {
	getenv                 func(string) string
	url, caFile, tokenFile string
	group, output          string
	flags                  *pflag.FlagSet
}

func (a *access) addFlags(c *cobra.Command) {
	a.flags = c.Flags()
	a.flags.StringVar(&a.url, "url", podURL, "URL of the lease API (SLIPWAY_LEASE_URL)")
	a.flags.StringVar(&a.caFile, "ca-file", podCAFile, "file with the CA of the API, PEM; without one the CAs of the system (SLIPWAY_LEASE_CA_FILE)")
	a.flags.StringVar(&a.tokenFile, "token-file", podTokenFile, "file with the ServiceAccount token, read for every request (SLIPWAY_LEASE_TOKEN_FILE)")
	a.flags.StringVarP(&a.group, "group", "g", "", "name of the MysqlFailoverGroup (SLIPWAY_LEASE_GROUP)")
	a.flags.StringVarP(&a.output, "output", "o", "text", "text or json")
}

// environment gives the flags that were not given the values of their
// variables. A variable that is empty is none.
func (a *access) environment() error {
	var errs []error
	a.flags.VisitAll(func(f *pflag.Flag) {
		_, variable, _ := strings.Cut(f.Usage, "(SLIPWAY_LEASE_")
		variable = "SLIPWAY_LEASE_" + strings.TrimSuffix(variable, ")")
		if value := a.getenv(variable); strings.HasSuffix(f.Usage, "("+variable+")") && value != "" && !f.Changed {
			if err := f.Value.Set(value); err != nil {
				errs = append(errs, exit.Misuse("%s: %v", variable, err))
			}
		}
	})
	return errors.Join(errs...)
}

func (a *access) client() (*leaseclient.Client, error) {
	if a.output != "text" && a.output != "json" {
		return nil, exit.Misuse("--output is text or json, not %q", a.output)
	}
	ca := a.caFile
	if _, err := os.Stat(ca); ca == podCAFile && errors.Is(err, os.ErrNotExist) {
		ca = ""
	}
	if _, err := os.Stat(a.tokenFile); err != nil {
		return nil, exit.Misuse("token file: %v", err)
	}
	client, err := leaseclient.New(leaseclient.Options{
		URL: a.url, CAFile: ca, TokenFile: a.tokenFile, Proxy: http.ProxyFromEnvironment, UserAgent: "slipway-lease",
	})
	if err != nil {
		return nil, exit.Misuse("%v", err)
	}
	return client, nil
}

const runHelp = `Takes the migration lease of a failover group, and then a failover hold; runs the
command; renews both until it has ended; and releases them. While it runs no
other deploy job migrates a database of the group, and no planned operation moves
the primary.

The command is ended, with everything that it has started, when the leases are
lost or can not be renewed: with SIGTERM a sixth of the TTL before their deadline
(a second at least), and with SIGKILL half a second before it. A second process,
the watchdog, does that, also when this one is stopped or killed.

The command finds in its environment
  SLIPWAY_LEASE_OPERATION_ID  the operation
  SLIPWAY_LEASE_BOUNDARY      the name of an empty file
and writes anything into that file right before its first DDL: from then on a loss
of authority exits with 76, and somebody has to look at the schema. See
docs/deploy-jobs.md.

Standard input, output and error are the command's; SIGINT, SIGTERM, SIGHUP and
SIGQUIT are passed on to it. Progress is written to standard error.

` + exitCodes

func runCommand(getenv func(string) string) *cobra.Command {
	a := &access{getenv: getenv}
	r := &runner{}
	var boundaryFile string
	c := &cobra.Command{
		Use:   "run --group <group> --instance <instance> [flags] -- <command> [argument …]",
		Short: "Run a command under the migration lease and a failover hold",
		Long:  runHelp,
		Example: `  slipway lease run --group orders --instance orders-app -- ./migrate.sh
  slipway lease run -g orders --instance orders-app --wait 10m --ttl 60s -- rails db:migrate`,
		RunE: func(c *cobra.Command, command []string) error {
			if c.ArgsLenAtDash() != 0 || len(command) == 0 {
				return exit.Misuse("run takes a command, after --\nsee: %s --help", c.CommandPath())
			}
			if err := a.environment(); err != nil {
				return err
			}
			return r.start(c, a, command, boundaryFile)
		},
	}
	a.addFlags(c)
	flags := c.Flags()
	flags.StringVar(&r.config.Instance, "instance", "", "name of the MysqlDatabase (SLIPWAY_LEASE_INSTANCE)")
	flags.StringVar(&r.config.OperationID, "operation-id", "", "operation, one for each run; default: a new UUID (SLIPWAY_LEASE_OPERATION_ID)")
	flags.DurationVar(&r.config.TTL, "ttl", 30*time.Second, "time to live of the leases, 5s to 120s (SLIPWAY_LEASE_TTL)")
	flags.DurationVar(&r.config.Wait, "wait", 0, "how long to wait for the turn; 0: the first answer decides (SLIPWAY_LEASE_WAIT)")
	flags.BoolVar(&r.config.NoHold, "no-hold", false, "take the migration lease alone: a planned failover may happen meanwhile (SLIPWAY_LEASE_NO_HOLD)")
	flags.StringVar(&boundaryFile, "boundary-file", "", "the file that tells that DDL has begun; default: a temporary one (SLIPWAY_LEASE_BOUNDARY)")
	flags.BoolVarP(&r.verbose, "verbose", "v", false, "say when leases are renewed")
	return c
}
