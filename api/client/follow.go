package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/tmaxmax/go-sse"

	"slipway.dev/slipway/schema/deployment"
)

// Event is one of a deployment's channel.
type Event struct {
	// ID is where the channel is after this event; see FollowOptions.After.
	ID string
	// Data is a deployment.Deployment (the snapshot that a channel begins
	// with), a deployment.Standing, a deployment.Build, a LogText or a Reset.
	Data any
}

// LogText is a part of the log of a build.
type LogText struct {
	Build int64 `json:"build"`
	// From is the offset of Text in the log, in bytes.
	From int64  `json:"from"`
	Text string `json:"text"`
}

// Reset says that events were lost, because the place to resume from is no
// longer kept. A snapshot follows.
type Reset struct{}

// FollowOptions of Follow. The zero value is good.
type FollowOptions struct {
	// Log asks for the log of the builds too.
	Log bool
	// After resumes behind the event with this ID; empty begins with a
	// snapshot.
	After string
	// Patience is how long the API may be away before Follow gives up; 0 is
	// for ever.
	Patience time.Duration
}

// maxEvent is the longest event, in bytes. A snapshot has a configuration of
// at most 1 MiB, which JSON may escape.
const maxEvent = 16 << 20

// steady is how long a stream lives before the next pause is short again: a
// server that ends every stream at once is not asked without a pause.
const steady = 5 * time.Second

// Follow calls handle for each event of a deployment's channel, in order, and
// connects again where it was when the stream ends. It returns when handle
// returns an error (that error), the context ends, the API refuses (an *Error
// that is not Away: no such deployment, or a token that has expired), or the
// API is away for longer than the patience.
func (c *Client) Follow(ctx context.Context, id string, o FollowOptions, handle func(Event) error) error {
	f := follow{Client: c, id: id, log: o.Log, last: o.After, handle: handle}
	pauses := c.pauses()
	answered := time.Now()
	for {
		f.opened = time.Time{}
		err := f.stream(ctx)
		var final *finalError
		if errors.As(err, &final) {
			return final.error
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !f.opened.IsZero() {
			answered = time.Now()
			if time.Since(f.opened) > steady {
				pauses = c.pauses()
			}
		}
		pause := pauses.next()
		var refused *Error
		if errors.As(err, &refused) {
			pause = max(pause, refused.RetryAfter)
		}
		if o.Patience > 0 && time.Since(answered)+pause > o.Patience {
			return err
		}
		f.troubled = true
		c.trouble(err, pause)
		if stopped := sleep(ctx, pause); stopped != nil {
			return stopped
		}
	}
}

type follow struct {
	*Client
	id     string
	log    bool
	handle func(Event) error

	last     string    // ID of the last event; empty before the first
	opened   time.Time // when the present stream was answered; zero before
	ever     bool      // a stream was answered once
	troubled bool      // somebody was told that the stream was lost
}

// finalError ends Follow; every other error of a stream is followed by another
// stream.
type finalError struct{ error }

func (f *follow) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := &ConnectionError{Base: f.base.String(), Err: fmt.Errorf("the channel was silent for %s", f.silence)}
	guard := time.AfterFunc(f.silence, func() { cancel(lost) })
	defer guard.Stop()

	open := call{method: http.MethodGet, path: []string{f.id, "events"}, query: url.Values{}, accept: "text/event-stream"}
	if f.log {
		open.query.Set("log", "true")
	}
	if f.last != "" {
		open.header = http.Header{"Last-Event-Id": {f.last}}
	}
	response, err := f.do(ctx, open)
	if err != nil {
		return f.failed(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	f.opened, f.ever = time.Now(), true
	if f.troubled {
		f.troubled = false
		f.trouble(nil, 0)
	}

	body := &guarded{Reader: response.Body, guard: guard, silence: f.silence}
	for raw, err := range sse.Read(body, &sse.ReadConfig{MaxEventSize: maxEvent}) {
		switch {
		case errors.Is(err, bufio.ErrTooLong):
			return &finalError{fmt.Errorf("an event of the channel has more than %d bytes", maxEvent)}
		case err != nil && errors.Is(context.Cause(ctx), lost):
			return lost
		case err != nil:
			return f.broken(ctx, err)
		}
		event, known, err := decode(raw)
		if err != nil {
			return &finalError{err}
		}
		if known {
			if err := f.handle(event); err != nil {
				return &finalError{err}
			}
		}
		if _, reset := event.Data.(Reset); reset {
			// Without the snapshot that follows there is no place to resume.
			f.last = ""
		} else if raw.LastEventID != "" {
			f.last = raw.LastEventID
		}
	}
	return &ConnectionError{Base: f.base.String(), Err: errors.New("the stream ended")}
}

// failed sorts the errors of a stream that was not answered.
func (f *follow) failed(ctx context.Context, err error) error {
	var refused *Error
	var broken *ConnectionError
	switch {
	case ctx.Err() != nil:
		// The channel was silent, or the caller had enough.
		return context.Cause(ctx)
	case errors.As(err, &refused) && refused.Away():
		return err
	case errors.As(err, &broken) && (f.ever || !broken.lasting()):
		return err
	default:
		return &finalError{err}
	}
}

// decode reads an event. One of a kind that this client does not know is
// passed over: the API may learn more.
func decode(raw sse.Event) (event Event, known bool, err error) {
	event.ID = raw.LastEventID
	switch raw.Type {
	case "snapshot":
		event.Data, err = read[deployment.Deployment](raw)
	case string(deployment.EventState):
		event.Data, err = read[deployment.Standing](raw)
	case string(deployment.EventBuild):
		event.Data, err = read[deployment.Build](raw)
	case "log":
		event.Data, err = read[LogText](raw)
	case "reset":
		event.Data = Reset{}
	default:
		return event, false, nil
	}
	return event, true, err
}

func read[T any](raw sse.Event) (T, error) {
	var value T
	if err := json.Unmarshal([]byte(raw.Data), &value); err != nil {
		return value, fmt.Errorf("a %s event of the channel is not what the deployments API gives: %w", raw.Type, err)
	}
	return value, nil
}

// guarded lets the guard run only while a read waits: a handler may take its
// time.
type guarded struct {
	io.Reader
	guard   *time.Timer
	silence time.Duration
}

func (g *guarded) Read(p []byte) (int, error) {
	g.guard.Reset(g.silence)
	defer g.guard.Stop()
	return g.Reader.Read(p)
}
