package deployments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/deployment"
)

// patience is how long the API may be away while something is followed.
const patience = 2 * time.Minute

func (c *cli) logs() *cobra.Command {
	var number int64
	var following bool
	cmd := &cobra.Command{
		Use:   "logs <id>",
		Short: "Print the log of a build",
		Long: `Print the log of a build. Without --build it is the build that runs, or else the
newest. With --follow the log is printed as it grows, until the build ends; the
exit code does not tell how it ended ("submit --follow" does that).

Characters that would control the terminal are made visible. With -o json the
text is as the deployer printed it, in objects {"build", "from", "text"}, one a
line, where from is the offset in bytes.`,
		Example: `  slipway deployments logs example -f
  slipway deployments logs example -b 4 | grep error`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkBuild(cmd, number); err != nil {
				return err
			}
			return c.run(cmd, following, "the API", func(ctx context.Context, api *client.Client, out *console) error {
				build, err := pickBuild(ctx, api, args[0], number)
				if err != nil {
					return err
				}
				l := newLog(api, out, deployment.Ref{Deployment: args[0], Build: build.Number})
				if following {
					build, err = l.follow(ctx, build)
				} else {
					err = l.read(ctx, all, false)
				}
				l.lines.flush()
				if err != nil {
					return err
				}
				if l.next == 0 {
					out.note("build %d has no log; it is %s", build.Number, cell(string(build.Status)))
				}
				return nil
			})
		},
	}
	cmd.Flags().Int64VarP(&number, "build", "b", 0, "number of the build (default: the one that runs, or else the newest)")
	cmd.Flags().BoolVarP(&following, "follow", "f", false, "go on until the build ends")
	return cmd
}

func pickBuild(ctx context.Context, api *client.Client, id string, number int64) (deployment.Build, error) {
	if number > 0 {
		return api.Build(ctx, deployment.Ref{Deployment: id, Build: number})
	}
	history, err := api.Builds(ctx, id, recentBuilds, 0)
	if err != nil {
		return deployment.Build{}, err
	}
	if running := withStatus(history, deployment.StatusRunning); running != nil {
		return *running, nil
	}
	if len(history) == 0 {
		return deployment.Build{}, &exit.Error{Code: exit.Refused, Text: fmt.Sprintf("%s has no build", id)}
	}
	return history[0], nil
}

// buildLog prints the log of one build, each byte once.
type buildLog struct {
	api   *client.Client
	out   *console
	ref   deployment.Ref
	next  int64 // offset of what was not printed yet
	lines lines
	show  func(client.LogText) // as JSON, when that is wanted
}

func newLog(api *client.Client, out *console, ref deployment.Ref) *buildLog {
	l := &buildLog{api: api, out: out, ref: ref}
	l.lines.emit = func(line string) { out.line("%s", safe(line)) }
	if out.json {
		// Marshalling two numbers and a text does not fail.
		l.show = func(text client.LogText) { _ = out.record(text) }
	}
	return l
}

func (l *buildLog) add(text string) {
	if l.show != nil {
		l.show(client.LogText{Build: l.ref.Build, From: l.next, Text: text})
	} else {
		l.lines.write(text)
	}
	l.next += int64(len(text))
}

// all is the end of a log, wherever that is.
const all = -1

// read prints the log from where it was left to the offset to. With follow, it
// waits for more until the API ends it.
func (l *buildLog) read(ctx context.Context, to int64, follow bool) error {
	body, err := l.api.Log(ctx, l.ref, l.next, follow)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	var from io.Reader = body
	if to != all {
		from = io.LimitReader(body, to-l.next)
	}
	if err := copyText(from, l.add); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &client.ConnectionError{Base: "the log", Err: err}
	}
	return nil
}

// follow prints the log until the build has ended, and returns it as it is
// then. The API ends the log with the build, but so does a connection that
// breaks; the build knows which it was.
func (l *buildLog) follow(ctx context.Context, build deployment.Build) (deployment.Build, error) {
	l.out.wait("build %d is %s", build.Number, build.Status)
	answered := time.Now()
	for {
		before := l.next
		err := l.read(ctx, all, true)
		if err == nil {
			build, err = l.api.Build(ctx, l.ref)
		}
		switch {
		case err == nil && build.Status.Ended():
			return build, l.read(ctx, all, false)
		case err == nil || l.next > before:
			answered = time.Now()
		case !passes(err) || time.Since(answered) > patience:
			return build, err
		}
		if err == nil {
			err = errors.New("the log broke off")
		}
		const pause = time.Second
		l.out.hear(err, pause)
		select {
		case <-ctx.Done():
			return build, ctx.Err()
		case <-time.After(pause):
		}
		l.out.hear(nil, 0)
	}
}

// passes: the API is away, and may come back.
func passes(err error) bool {
	var refused *client.Error
	var broken *client.ConnectionError
	return errors.As(err, &refused) && refused.Away() || errors.As(err, &broken)
}
