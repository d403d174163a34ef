package deployments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
)

const followHelp = `
With --follow each step is printed as it happens, with the time since the start
and the log of the build, until the build ends. The exit code is that of the
build: 0 succeeded, 1 failed, 3 superseded or cancelled. Ctrl-C only ends the
following; the build goes on. With -o json every step is a JSON object on a
line of its own: {"time", "elapsed", "event", "data"}, where event is %s,
state, build or log.`

func (c *cli) submit() *cobra.Command {
	var file, key string
	var following bool
	cmd := &cobra.Command{
		Use:   "submit <id> -f <file>",
		Short: "Give a deployment a configuration and deploy it",
		Long: `Give a deployment a configuration, which makes a build that deploys it. The file
holds the configuration as a JSON object; - is standard input. The deployment
exists from its first submit on. A configuration that the API refuses changes
nothing (exit code 4).

A submit is taken at most once: it carries an idempotency key, and is sent again
while the API is away. Give --key yourself where your own program may run the
command again for the same submit: the same key gives the same build.
` + fmt.Sprintf(followHelp, "submit"),
		Example: `  slipway deployments submit example -f deploy/source/example.json --follow
  generate-configuration | slipway deployments submit example -f - --key release-42

  # what --follow prints
    0.0s  submitted example, build 1 (evaluated: 2 nodes)
    0.1s  building: build 1 runs
    0.2s    | activating web …
    3.1s  build 1 succeeded
    3.1s  active`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if key == "" {
				if cmd.Flags().Changed("key") {
					return exit.Misuse("--key is empty")
				}
				key = uuid.NewString()
			}
			body, err := readConfiguration(cmd, file)
			if err != nil {
				return err
			}
			return c.run(cmd, following, "the configuration is checked and evaluated", func(ctx context.Context, api *client.Client, out *console) error {
				submitted, err := api.Submit(ctx, args[0], body, key)
				if err != nil {
					return mayHaveBeenTaken(err, key)
				}
				evaluated := "evaluated: " + count(len(submitted.Nodes), "node")
				if submitted.Evaluation == deployment.EvaluationSkipped {
					evaluated = "not evaluated, because all slots were in use: the deploy does it"
				}
				text := fmt.Sprintf("submitted %s, build %d (%s)", args[0], submitted.Build, evaluated)
				ref := deployment.Ref{Deployment: args[0], Build: submitted.Build}
				switch {
				case following:
					return follow(ctx, api, out, ref, "submit", submitted, text)
				case out.json:
					return out.document(submitted)
				}
				out.line("%s", text)
				out.nodes(submitted.Nodes)
				out.note("its log: %s", logCommand(ref))
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with the configuration, - for standard input")
	cmd.Flags().BoolVar(&following, "follow", false, "print what happens until the build ends")
	cmd.Flags().StringVar(&key, "key", "", "idempotency key (default: a new one)")
	return cmd
}

// importTimeout ends an import that is not followed. The API gives up before
// that unless the operator gave the systems more time.
const importTimeout = 15 * time.Minute

func (c *cli) imports() *cobra.Command {
	var file, key string
	var following, noDeploy bool
	cmd := &cobra.Command{
		Use:   "import <id> -f <file>",
		Short: "Take over a deployment that slipway does not know",
		Long: `Take over a deployment that was run by something else, with its configuration.
All that a submit checks is checked, and the system of each node is evaluated
too, before anything is stored; that may take minutes. Each node whose system
does not evaluate is reported (exit code 4). A deployment that slipway knows
already is refused, also if it is idle.

The import becomes build 1, which deploys the deployment. With --no-deploy the
configuration is stored and nothing is deployed: the deployment is idle until
its first submit, and what is up stays as it is.

As with a submit, an import is taken at most once for its --key.
` + fmt.Sprintf(followHelp, "import"),
		Example: `  slipway deployments import example -f example.json --no-deploy
  slipway deployments import example -f example.json --follow`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if key == "" {
				if cmd.Flags().Changed("key") {
					return exit.Misuse("--key is empty")
				}
				key = uuid.NewString()
			}
			if following && noDeploy {
				return exit.Misuse("--follow follows a build, and with --no-deploy there is none")
			}
			body, err := readConfiguration(cmd, file)
			if err != nil {
				return err
			}
			if c.timeout == 0 && !following {
				c.timeout = importTimeout
			}
			return c.run(cmd, following, "the configuration is checked, and the system of each node evaluated", func(ctx context.Context, api *client.Client, out *console) error {
				imported, err := api.Import(ctx, args[0], body, !noDeploy, key)
				if err != nil {
					return mayHaveBeenTaken(err, key)
				}
				evaluated := "evaluated: " + count(len(imported.Nodes), "node")
				ref := deployment.Ref{Deployment: args[0], Build: imported.Build}
				text := fmt.Sprintf("imported %s, build %d (%s)", args[0], imported.Build, evaluated)
				switch {
				case following:
					return follow(ctx, api, out, ref, "import", imported, text)
				case out.json:
					return out.document(imported)
				case noDeploy:
					out.line("imported %s, nothing is deployed (%s)", args[0], evaluated)
					out.nodes(imported.Nodes)
					return nil
				}
				out.line("%s", text)
				out.nodes(imported.Nodes)
				out.note("its log: %s", logCommand(ref))
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with the configuration, - for standard input")
	cmd.Flags().BoolVar(&following, "follow", false, "print what happens until the build ends")
	cmd.Flags().BoolVar(&noDeploy, "no-deploy", false, "store the configuration, and deploy nothing")
	cmd.Flags().StringVar(&key, "key", "", "idempotency key (default: a new one)")
	return cmd
}

// mayHaveBeenTaken adds to an error that left open whether a submit was taken
// how to find out.
func mayHaveBeenTaken(err error, key string) error {
	var refused *client.Error
	var broken *client.ConnectionError
	open := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &refused) && refused.Away() || errors.As(err, &broken)
	if !open {
		return err
	}
	return &hintError{err, "it may have been taken; the same submit with --key " + cell(key) + " is taken at most once"}
}

// readConfiguration reads a configuration and makes sure that it is JSON, for
// the API cannot say on which line it is not.
func readConfiguration(cmd *cobra.Command, file string) (json.RawMessage, error) {
	var from io.Reader
	name := file
	switch file {
	case "":
		return nil, exit.Misuse("%s takes the configuration with -f, as a file or - for standard input\nsee: %s --help", cmd.Name(), cmd.CommandPath())
	case "-":
		from, name = cmd.InOrStdin(), "standard input"
	default:
		opened, err := os.Open(file)
		if err != nil {
			return nil, exit.Misuse("configuration: %v", err)
		}
		defer func() { _ = opened.Close() }()
		from = opened
	}
	data, err := io.ReadAll(io.LimitReader(from, configuration.MaxBytes+1))
	if err != nil {
		return nil, exit.Misuse("configuration: %v", err)
	}
	if len(data) > configuration.MaxBytes {
		return nil, exit.Misuse("%s has more than %d bytes, which no configuration may have", name, configuration.MaxBytes)
	}
	var object map[string]json.RawMessage
	err = json.Unmarshal(data, &object)
	if err == nil && object == nil {
		err = errors.New("a configuration is a JSON object, not null")
	}
	if err == nil {
		return data, nil
	}
	where := ""
	var syntax *json.SyntaxError
	var shape *json.UnmarshalTypeError
	if errors.As(err, &syntax) {
		where = place(data, syntax.Offset)
	} else if errors.As(err, &shape) {
		err = errors.New("a configuration is a JSON object, not " + shape.Value)
	}
	return nil, exit.Misuse("%s%s: %s", name, where, safe(err.Error()))
}

// place writes the line and column of the byte before offset.
func place(data []byte, offset int64) string {
	line, column := 1, 0
	for _, c := range data[:min(offset, int64(len(data)))] {
		column++
		if c == '\n' {
			line, column = line+1, 0
		}
	}
	return fmt.Sprintf(":%d:%d", line, column)
}

func (c *cli) destroy() *cobra.Command {
	var following bool
	var callback, tokenFile string
	cmd := &cobra.Command{
		Use:   "destroy <id>",
		Short: "Take down what a deployment has up",
		Long: `Queue a build that takes down what a deployment has up. Submits that are queued
are superseded. A deployment that is idle already is left alone (exit code 0),
and one that slipway does not know is refused (exit code 4). The deployment
stays known; its next submit brings it up again.

With --callback-url slipway calls a front-end once, without a retry, when the
destroy has reached idle: a POST with the token of --callback-token-file. The
origin of the URL must be one that the service allows; with another one the
destroy goes on without a call. What became of it is shown with the builds.
` + fmt.Sprintf(followHelp, "destroy"),
		Example: `  slipway deployments destroy example --follow`,
		Args:    oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			token, err := callbackToken(callback, tokenFile)
			if err != nil {
				return err
			}
			return c.run(cmd, following, "the API", func(ctx context.Context, api *client.Client, out *console) error {
				var destroyed client.Destroyed
				var err error
				if callback == "" {
					destroyed, err = api.Destroy(ctx, args[0])
				} else {
					destroyed, err = api.DestroyAndCallBack(ctx, args[0], callback, token)
				}
				if err != nil {
					return err
				}
				if destroyed.CallbackReason != "" {
					out.note("the callback is refused: %s", cell(destroyed.CallbackReason))
				}
				ref := deployment.Ref{Deployment: args[0], Build: destroyed.Build}
				text := fmt.Sprintf("destroying %s, build %d", args[0], destroyed.Build)
				idle := destroyed.State == deployment.StateIdle
				switch {
				case following && !idle:
					return follow(ctx, api, out, ref, "destroy", destroyed, text)
				case following && out.json:
					return out.event("destroy", destroyed)
				case out.json:
					return out.document(destroyed)
				case idle:
					out.line("%s is idle: there is nothing to destroy", args[0])
					if d, err := api.Get(ctx, args[0]); err == nil && d.LatestBuild == nil {
						out.note("it was imported and never deployed: what was up before that is up still. Submit it, then destroy it")
					}
					return nil
				}
				out.line("%s", text)
				out.note("its log: %s", logCommand(ref))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&following, "follow", false, "print what happens until the build ends")
	cmd.Flags().StringVar(&callback, "callback-url", "", "URL of a front-end to call when the destroy has reached idle")
	cmd.Flags().StringVar(&tokenFile, "callback-token-file", "", "file with the token that the front-end knows the call by")
	return cmd
}

// callbackToken reads the token of a callback, which has no flag of its own: the
// arguments of a program are for everybody to see.
func callbackToken(callback, file string) (string, error) {
	if (callback == "") != (file == "") {
		return "", exit.Misuse("--callback-url and --callback-token-file come together or not at all")
	}
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", exit.Misuse("token of the callback: %v", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", exit.Misuse("token of the callback: %s is empty", file)
	}
	return token, nil
}

func (c *cli) cancel() *cobra.Command {
	var number int64
	cmd := &cobra.Command{
		Use:   "cancel <id>",
		Short: "Stop a build",
		Long: `Stop a build: a queued one ends at once, and the deployer of a running one is
asked to stop, which may take a while and leaves what it has done so far.

Without --build it is the build that runs, or else the newest that is queued.`,
		Example: `  slipway deployments cancel example
  slipway deployments cancel example -b 4`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkBuild(cmd, number); err != nil {
				return err
			}
			return c.run(cmd, false, "the API", func(ctx context.Context, api *client.Client, out *console) error {
				ref := deployment.Ref{Deployment: args[0], Build: number}
				if number == 0 {
					history, err := api.Builds(ctx, args[0], recentBuilds, 0)
					if err != nil {
						return err
					}
					pending := withStatus(history, deployment.StatusRunning)
					if pending == nil {
						pending = withStatus(history, deployment.StatusQueued)
					}
					if pending == nil {
						return &exit.Error{Code: exit.Refused, Text: fmt.Sprintf("%s has no build that runs or is queued", args[0])}
					}
					ref.Build = pending.Number
				}
				build, err := api.Cancel(ctx, ref)
				if err != nil {
					return err
				}
				switch {
				case out.json:
					return out.document(build)
				case build.Status.Ended():
					out.line("build %d is %s", ref.Build, out.paint(cell(string(build.Status))))
				default:
					out.line("build %d is asked to stop", ref.Build)
					out.note("its log: %s", logCommand(ref))
				}
				return nil
			})
		},
	}
	cmd.Flags().Int64VarP(&number, "build", "b", 0, "number of the build (default: the one that runs, or else the newest queued)")
	return cmd
}

// recentBuilds is how far back a build that has not ended is looked for. Every
// submit supersedes the queued ones, so there are never many.
const recentBuilds = 50

func withStatus(builds []deployment.Build, status deployment.Status) *deployment.Build {
	for i := range builds {
		if builds[i].Status == status {
			return &builds[i]
		}
	}
	return nil
}

func checkBuild(cmd *cobra.Command, number int64) error {
	if cmd.Flags().Changed("build") && number < 1 {
		return exit.Misuse("--build is the number of a build, from 1")
	}
	return nil
}

func logCommand(ref deployment.Ref) string {
	return fmt.Sprintf("slipway deployments logs %s -b %d -f", ref.Deployment, ref.Build)
}
