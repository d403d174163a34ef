package channel

import (
	"context"
	"errors"
	"fmt"

	"slipway.dev/slipway/schema/deployment"
)

const (
	// eventsAtOnce is how many events one read takes.
	eventsAtOnce = 200
	// logAtOnce is how much of a log one read takes, and logFrameBytes how
	// much of it one event has, in bytes.
	logAtOnce     = 256 << 10
	logFrameBytes = 32 << 10
	// buildsAtOnce is how far back a running build is looked for behind a
	// queued one.
	buildsAtOnce = 100
)

// errTooOld: the rows that follow the place are not kept.
var errTooOld = errors.New("the events behind this place are no longer kept")

// rows reads what follows a place.
type rows struct {
	reader     Reader
	deployment string
	log        bool
	at         place
	// told is the build whose log was read to its end.
	told int64
}

// events emits the stored events behind the place, and before the end of a
// build what is left of its log. It reports whether there were any; more may
// follow then.
func (r *rows) events(ctx context.Context, emit func(frame) error) (moved bool, err error) {
	found, err := r.reader.Events(ctx, r.deployment, r.at.sequence, eventsAtOnce)
	if err != nil {
		return false, fmt.Errorf("read the events: %w", err)
	}
	if r.at.sequence > found.Newest || r.at.sequence+1 < found.Oldest {
		return false, errTooOld
	}
	for _, e := range found.Events {
		if e.Sequence != r.at.sequence+1 {
			return moved, errTooOld
		}
		if r.log && e.Build == r.at.build && e.Build != 0 && e.Status.Ended() {
			for more := true; more; {
				if more, err = r.piece(ctx, emit); err != nil {
					return moved, err
				}
				moved = moved || more
			}
		}
		next := r.at.after(e, r.log)
		if err := emit(eventFrame(e, next, r.log)); err != nil {
			return moved, err
		}
		r.at, moved = next, true
	}
	return moved, nil
}

// piece emits the next piece of the told log and reports whether there was
// one.
func (r *rows) piece(ctx context.Context, emit func(frame) error) (moved bool, err error) {
	if !r.log || r.at.build == 0 || r.told == r.at.build {
		return false, nil
	}
	found, err := r.reader.Log(ctx, deployment.Ref{Deployment: r.deployment, Build: r.at.build}, r.at.offset, logAtOnce)
	if err != nil {
		return false, fmt.Errorf("read the log: %w", err)
	}
	for rest := found.Data; len(rest) > 0; moved = true {
		text := rest
		if len(text) > logFrameBytes || !found.Ended {
			text = whole(text[:min(len(text), logFrameBytes)])
		}
		if len(text) == 0 {
			return moved, nil // the first bytes of a rune; the others come later
		}
		next := r.at
		next.offset += int64(len(text))
		f, err := logFrame(r.at.offset, text, next)
		if err != nil {
			return moved, err
		}
		if err := emit(f); err != nil {
			return moved, err
		}
		r.at, rest = next, rest[len(text):]
	}
	if found.Ended {
		r.told = r.at.build
	}
	return moved, nil
}

// running finds the build that runs now, 0 if there is none.
func running(ctx context.Context, reader Reader, d deployment.Deployment) (int64, error) {
	latest := d.LatestBuild
	if latest == nil || d.State.Settled() {
		return 0, nil
	}
	if latest.Status == deployment.StatusRunning {
		return latest.Number, nil
	}
	builds, err := reader.Builds(ctx, d.ID, buildsAtOnce, latest.Number)
	if err != nil {
		return 0, fmt.Errorf("look for the running build: %w", err)
	}
	for _, b := range builds {
		if b.Status == deployment.StatusRunning {
			return b.Number, nil
		}
	}
	return 0, nil
}
