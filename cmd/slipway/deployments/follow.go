package deployments

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
)

// errEnded ends the channel when the build has ended.
var errEnded = errors.New("the build ended")

// follow prints what becomes of a build until it ends. name and answer are the
// call that made it and what it answered, and text says the same in words.
func follow(ctx context.Context, api *client.Client, out *console, ref deployment.Ref, name string, answer any, text string) error {
	f := &follower{api: api, out: out, ref: ref, log: newLog(api, out, ref)}
	f.build = deployment.Build{Number: ref.Build, Status: deployment.StatusQueued}
	f.log.lines.emit = func(line string) { out.line("%5.1fs    | %s", out.elapsed().Seconds(), safe(line)) }
	if out.json {
		f.log.show = func(text client.LogText) { _ = out.event("log", text) }
		if err := out.event(name, answer); err != nil {
			return err
		}
	} else {
		out.step(text)
	}
	out.wait("build %d is queued", ref.Build)

	err := api.Follow(ctx, ref.Deployment, client.FollowOptions{Log: true, Patience: patience}, func(e client.Event) error {
		if err := f.handle(ctx, e); err != nil {
			return err
		}
		return out.broken()
	})
	if errors.Is(err, errEnded) {
		return outcome(ref.Deployment, f.build)
	}
	f.log.lines.flush()
	return &hintError{err, fmt.Sprintf("build %d goes on; look at it with: slipway deployments show %s\nor follow its log with: %s",
		ref.Build, ref.Deployment, logCommand(ref))}
}

// event prints a step of what is followed as JSON.
func (c *console) event(name string, data any) error {
	return c.record(struct {
		Time    time.Time `json:"time"`
		Elapsed float64   `json:"elapsed"` // seconds since the start
		Event   string    `json:"event"`
		Data    any       `json:"data"`
	}{time.Now().UTC().Truncate(time.Millisecond), c.elapsed().Truncate(time.Millisecond).Seconds(), name, data})
}

// follower makes the story of one build out of the channel of its deployment,
// where it may find the build at any stage: it prints every change once.
type follower struct {
	api *client.Client
	out *console
	ref deployment.Ref
	log *buildLog

	build deployment.Build    // as it was seen last
	state deployment.Standing // as it was printed last
}

func (f *follower) handle(ctx context.Context, e client.Event) error {
	switch data := e.Data.(type) {
	case deployment.Deployment:
		if err := f.standing(data.Standing); err != nil {
			return err
		}
		if data.LatestBuild != nil && data.LatestBuild.Number == f.ref.Build {
			return f.built(ctx, *data.LatestBuild)
		}
		// There is a newer build by now.
		build, err := f.api.Build(ctx, f.ref)
		if err != nil {
			return err
		}
		return f.built(ctx, build)
	case deployment.Standing:
		return f.standing(data)
	case deployment.Build:
		if data.Number == f.ref.Build {
			return f.built(ctx, data)
		}
	case client.LogText:
		if data.Build == f.ref.Build {
			f.text(ctx, data)
		}
	}
	return nil
}

// standing prints a state. One that lasts is what the build made of the
// deployment, and is printed behind the end of the build.
func (f *follower) standing(s deployment.Standing) error {
	if s.Reason != "" {
		f.out.wait("%s", s.Reason)
	}
	if s.State.Settled() && !f.build.Status.Ended() || s.State == f.state.State && s.Reason == f.state.Reason {
		return nil
	}
	f.state = s
	if f.out.json {
		return f.out.event("state", s)
	}
	text := f.out.paint(cell(string(s.State)))
	// How the build ended was said in the line before.
	if s.Reason != "" && !strings.HasPrefix(s.Reason, fmt.Sprintf("build %d %s", f.build.Number, f.build.Status)) {
		text += ": " + safe(s.Reason)
	}
	f.out.step(text)
	return nil
}

// built takes the build as it is now, and returns errEnded when it has ended.
func (f *follower) built(ctx context.Context, b deployment.Build) error {
	if b.Status == f.build.Status {
		return nil
	}
	b.Configuration = nil // only some reads have it
	if !b.Status.Ended() {
		f.build = b
		if f.out.json {
			return f.out.event("build", b)
		}
		return nil
	}

	// The channel gives the whole log before the end, except to one who came
	// too late for it.
	if b.StartedAt != nil {
		if err := f.log.read(ctx, all, false); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.out.note("the end of the log may be missing here: %s", cell(err.Error()))
		}
		f.log.lines.flush()
	}
	f.build = b
	if f.out.json {
		if err := f.out.event("build", b); err != nil {
			return err
		}
	} else {
		text := fmt.Sprintf("build %d %s", b.Number, f.out.paint(cell(string(b.Status))))
		if b.Reason != "" {
			text += ": " + safe(b.Reason)
		}
		f.out.step(text)
	}
	d, err := f.api.Get(ctx, f.ref.Deployment)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		f.out.note("the state cannot be read: %s", cell(err.Error()))
	default:
		if err := f.standing(d.Standing); err != nil {
			return err
		}
	}
	return errEnded
}

// text prints a part of the log. What lies before it and was not printed is
// read first; what was printed already is left out.
func (f *follower) text(ctx context.Context, t client.LogText) {
	if t.From > f.log.next {
		if err := f.log.read(ctx, t.From, false); err != nil {
			f.out.note("a part of the log is missing here: %s", cell(err.Error()))
		}
		if f.log.next < t.From {
			f.log.next = t.From
		}
	}
	if known := f.log.next - t.From; known < int64(len(t.Text)) {
		f.log.add(t.Text[known:])
	}
}
