package deployments

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/deployment"
)

// Command is "slipway deployments". It reads what is not given as a flag with
// getenv: SLIPWAY_URL, SLIPWAY_CA_FILE, SLIPWAY_TOKEN, SLIPWAY_TOKEN_FILE, NO_COLOR and TERM.
// Its errors have the exit codes that its help names.
func Command(getenv func(string) string) *cobra.Command {
	return command(&cli{getenv: getenv, terminal: terminal, quiet: 2 * time.Second, repeat: 10 * time.Second})
}

// cli has what all subcommands share.
type cli struct {
	getenv func(string) string
	// terminal says how many columns a writer has, if it is a terminal.
	terminal      func(io.Writer) (width int, is bool)
	quiet, repeat time.Duration // of console

	url, caFile, token, tokenFile, output string
	timeout                               time.Duration
}

// callTimeout ends a command that follows nothing. The API itself gives up a
// submit or a preview before that, with a better reason.
const callTimeout = 3 * time.Minute

func command(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "deployments",
		Short: "Submit, watch and destroy deployments",
		Long: `Submit, watch and destroy deployments over the deployments API.

The API and the token come from the environment, or from flags:
  SLIPWAY_URL         the URL of the API                    --url
  SLIPWAY_CA_FILE     a file with the CA of the API (PEM)   --ca-file
  SLIPWAY_TOKEN_FILE  a file that holds the token           --token-file
  SLIPWAY_TOKEN       the token                             --token
A token given as a flag can be read by everybody who can list the processes of
the machine; use the environment or a file.

Results are printed on standard output, progress and errors on standard error.
With -o json the output is JSON: one document, or one document a line for what
goes on (--follow, logs). NO_COLOR turns the colours off.

` + exitCodes,
		Example: `  # what "make dev" wrote
  set -a; . .slipway/dev.env; set +a

  slipway deployments submit example -f deploy/source/example.json --follow
  slipway deployments show example
  slipway deployments destroy example --follow`,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&c.url, "url", "", "URL of the API (SLIPWAY_URL)")
	flags.StringVar(&c.caFile, "ca-file", "", "file with the CA of the API, PEM; without one the CAs of the system (SLIPWAY_CA_FILE)")
	flags.StringVar(&c.token, "token", "", "token; others can see it here, so rather SLIPWAY_TOKEN or --token-file")
	flags.StringVar(&c.tokenFile, "token-file", "", "file that holds the token, read again for every request (SLIPWAY_TOKEN_FILE)")
	flags.StringVarP(&c.output, "output", "o", "text", "text or json")
	flags.DurationVar(&c.timeout, "timeout", 0, "end the command after this long, following included (default 3m, and no limit when following)")
	root.AddCommand(c.list(), c.show(), c.preview(), c.submit(), c.imports(), c.destroy(), c.logs(), c.cancel(), c.sbom())
	for _, cmd := range append(root.Commands(), root) {
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	return root
}

// oneID is the rule of the arguments of a subcommand about one deployment.
func oneID(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return exit.Misuse("%s takes one deployment identifier, and got %d arguments\nsee: %s --help", cmd.Name(), len(args), cmd.CommandPath())
	}
	return ids(cmd, args)
}

func ids(_ *cobra.Command, args []string) error {
	for _, id := range args {
		if err := deployment.CheckID(id); err != nil {
			return exit.Misuse("%q: %v", id, err)
		}
	}
	return nil
}

// work is what a subcommand does.
type work func(ctx context.Context, api *client.Client, out *console) error

// run does the work of a subcommand, with everything around it: flags, time,
// progress, errors. waiting is what a user who wonders is told.
func (c *cli) run(cmd *cobra.Command, follows bool, waiting string, do work) error {
	out, err := c.console(cmd)
	if err != nil {
		return err
	}
	base, token, err := c.access(cmd)
	if err != nil {
		return err
	}
	authorities, err := c.authorities(cmd)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		TLSClientConfig:       &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   2,
		IdleConnTimeout:       30 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	defer transport.CloseIdleConnections()
	api, err := client.New(base, token, client.Options{
		HTTP:      &http.Client{Transport: transport},
		UserAgent: "slipway-deployments",
		Trouble:   out.hear,
	})
	if err != nil {
		return exit.Misuse("%s", safe(err.Error()))
	}

	ctx, limit := cmd.Context(), c.timeout
	if ctx == nil {
		ctx = context.Background()
	}
	if limit == 0 && !follows {
		limit = callTimeout
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	out.wait("%s", waiting)
	stop := out.progress()
	err = do(ctx, api, out)
	stop()
	if err == nil {
		err = out.broken()
	}
	err = explain(err, limit)
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusUnauthorized && token == nil {
		err = &exit.Error{Code: exit.Refused, Text: err.Error() + "\nno token was given: set SLIPWAY_TOKEN or SLIPWAY_TOKEN_FILE", Err: err}
	}
	return err
}

func (c *cli) console(cmd *cobra.Command) (*console, error) {
	if c.output != "text" && c.output != "json" {
		return nil, exit.Misuse("--output is text or json, not %q", c.output)
	}
	if c.timeout < 0 {
		return nil, exit.Misuse("--timeout is below zero")
	}
	out := &console{
		out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), json: c.output == "json",
		begun: time.Now(), quiet: c.quiet, repeat: c.repeat,
	}
	dumb := c.getenv("TERM") == "dumb"
	_, outIs := c.terminal(out.out)
	width, errIs := c.terminal(out.err)
	out.color = outIs && !dumb && !out.json && c.getenv("NO_COLOR") == ""
	out.live, out.width = errIs && !dumb, width
	return out, nil
}

// access finds the API and the token: flags before the environment. The token
// source is nil when there is no token.
func (c *cli) access(cmd *cobra.Command) (base string, token func() (string, error), err error) {
	if base = c.url; base == "" {
		base = c.getenv("SLIPWAY_URL")
	}
	if base == "" {
		return "", nil, exit.Misuse("no URL of the API: set SLIPWAY_URL or give --url (\"make dev\" writes one to .slipway/dev.env)")
	}
	text, file, from := c.token, c.tokenFile, "--token and --token-file"
	if !cmd.Flags().Changed("token") && !cmd.Flags().Changed("token-file") {
		text, file, from = c.getenv("SLIPWAY_TOKEN"), c.getenv("SLIPWAY_TOKEN_FILE"), "SLIPWAY_TOKEN and SLIPWAY_TOKEN_FILE"
	}
	switch {
	case text != "" && file != "":
		return "", nil, exit.Misuse("%s are both set; give one token", from)
	case text != "":
		return base, func() (string, error) { return text, nil }, nil
	case file == "":
		return base, nil, nil
	case strings.HasPrefix(file, "eyJ") && strings.Count(file, ".") >= 2:
		return "", nil, exit.Misuse("a token file is the name of a file, and this is a token")
	}
	read := func() (string, error) {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		text := strings.TrimSpace(string(data))
		if text == "" {
			return "", fmt.Errorf("%s is empty", file)
		}
		return text, nil
	}
	if _, err := read(); err != nil {
		return "", nil, exit.Misuse("token file: %v", err)
	}
	return base, read, nil
}

// authorities are those that the API is trusted by: a flag before the
// environment, and nil for those of the system.
func (c *cli) authorities(cmd *cobra.Command) (*x509.CertPool, error) {
	file := c.caFile
	if !cmd.Flags().Changed("ca-file") {
		file = c.getenv("SLIPWAY_CA_FILE")
	}
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, exit.Misuse("CA file: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, exit.Misuse("CA file: %s has no certificate in PEM", file)
	}
	return pool, nil
}

func terminal(w io.Writer) (width int, is bool) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return width, true
}
