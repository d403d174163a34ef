package channel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"go.uber.org/zap"

	"slipway.dev/slipway/schema/deployment"
)

// Request is what a client asks of a channel.
type Request struct {
	Deployment string
	// Log adds the log events.
	Log bool
	// Last is the ID of the last event that the client has; empty for a fresh
	// start.
	Last string
	// Until ends the stream: when the token of the client expires.
	Until time.Time
}

// Serve streams a channel until the client leaves, its token expires or the
// hub's context ends. It returns an error only if it has not answered:
// deployment.ErrUnknown, or that of a reader.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, q Request) error {
	ctx, cancel := context.WithDeadline(r.Context(), q.Until)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	s := &stream{hub: h, w: w, control: http.NewResponseController(w), log: q.Log,
		rows: rows{reader: h.Reader, deployment: q.Deployment, log: q.Log}}

	first, err := s.open(ctx, q.Last)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	err = s.run(ctx, first)
	if !errors.Is(err, errWrite) {
		// For what the server writes to end the response.
		_ = s.limit()
	}
	switch {
	case errors.Is(err, errWrite) && errors.Is(err, os.ErrDeadlineExceeded):
		h.Log.Info("a client of a channel was too slow and is dropped", zap.String("deployment", q.Deployment))
		if h.Dropped != nil {
			h.Dropped()
		}
	case err != nil && ctx.Err() == nil && !errors.Is(err, errWrite):
		h.Log.Warn("a stream of a channel ended early", zap.String("deployment", q.Deployment), zap.Error(err))
	}
	return nil
}

// errWrite: the client has gone, or takes too long.
var errWrite = errors.New("write to the client")

type stream struct {
	hub     *Hub
	w       http.ResponseWriter
	control *http.ResponseController
	log     bool
	// rows has the place of the client, and reads for it alone where that lies
	// before the window of the topic.
	rows rows
	// from is the place of the snapshot that the stream began with; nil when
	// it resumed.
	from *place
}

// open finds the place of the client and what it gets first.
func (s *stream) open(ctx context.Context, last string) (first []byte, err error) {
	if last == "" {
		return s.snapshot(ctx)
	}
	resumed, err := s.resume(ctx, last)
	if err != nil || resumed {
		return nil, err
	}
	return s.reset(ctx)
}

// reset starts over.
func (s *stream) reset(ctx context.Context) ([]byte, error) {
	snapshot, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return append(encode("reset", "", []byte(`{"reason":"the events behind the given ID are not kept"}`)), snapshot...), nil
}

func (s *stream) snapshot(ctx context.Context) ([]byte, error) {
	snapshot, err := s.rows.reader.Snapshot(ctx, s.rows.deployment)
	if err != nil {
		return nil, fmt.Errorf("read the deployment: %w", err)
	}
	at := place{sequence: snapshot.Sequence}
	if s.log {
		if at.build, err = running(ctx, s.rows.reader, snapshot.Deployment); err != nil {
			return nil, err
		}
	}
	data, err := s.hub.Encode(snapshot.Deployment)
	if err != nil {
		return nil, fmt.Errorf("encode the deployment: %w", err)
	}
	s.rows.at, s.rows.told, s.from = at, 0, &at
	return encode("snapshot", at.id(s.log), data), nil
}

// resume takes the place that the client names, if what follows it is kept.
func (s *stream) resume(ctx context.Context, last string) (bool, error) {
	at, inLog, ok := parsePlace(last)
	if !ok {
		return false, nil
	}
	reader, id := s.rows.reader, s.rows.deployment
	found, err := reader.Events(ctx, id, at.sequence, 1)
	if err != nil {
		return false, fmt.Errorf("read the events: %w", err)
	}
	if at.sequence > found.Newest || at.sequence+1 < found.Oldest {
		return false, nil
	}
	switch {
	case !s.log:
		at = place{sequence: at.sequence}
	case !inLog:
		// The client has followed without the log.
		snapshot, err := reader.Snapshot(ctx, id)
		if err != nil {
			return false, fmt.Errorf("read the deployment: %w", err)
		}
		if at.build, err = running(ctx, reader, snapshot.Deployment); err != nil {
			return false, err
		}
	case at.build != 0:
		// A place that the log has not reached would hide what comes before.
		piece, err := reader.Log(ctx, deployment.Ref{Deployment: id, Build: at.build}, max(0, at.offset-1), 1)
		if errors.Is(err, deployment.ErrUnknown) || err == nil && at.offset > 0 && len(piece.Data) == 0 {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read the log: %w", err)
		}
	}
	s.rows.at = at
	return true, nil
}

// run writes what follows until ctx ends or a write fails.
func (s *stream) run(ctx context.Context, first []byte) error {
	t, leave := s.hub.join(topicKey{s.rows.deployment, s.log}, s.from)
	defer leave()
	ping := time.NewTicker(s.hub.Ping)
	defer ping.Stop()

	if err := s.send(first); err != nil {
		return err
	}
	var at cursor
	for ctx.Err() == nil {
		frames, before, changed := t.take(&at, s.rows.at)
		moved := len(frames) > 0
		var err error
		if before {
			moved, err = s.read(ctx)
		} else {
			err = s.pass(frames)
		}
		if moved && err == nil {
			err = s.flush()
		}
		if err != nil {
			return err
		}
		if moved {
			continue
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-ping.C:
			if err := s.send([]byte(": ping\n\n")); err != nil {
				return err
			}
		}
	}
	return nil
}

// pass writes those of the topic's frames that the client has not.
func (s *stream) pass(frames []frame) error {
	for _, f := range frames {
		next, wire, err := f.reframe(s.rows.at, s.log)
		if err != nil {
			return err
		}
		if err := s.write(wire); err != nil {
			return err
		}
		s.rows.at = next
	}
	return nil
}

// read writes what the rows have behind the client's place.
func (s *stream) read(ctx context.Context) (moved bool, err error) {
	emit := func(f frame) error { return s.write(f.wire) }
	moved, err = s.rows.events(ctx, emit)
	if err == nil && !moved {
		moved, err = s.rows.piece(ctx, emit)
	}
	if errors.Is(err, errTooOld) {
		first, err := s.reset(ctx)
		if err != nil {
			return false, err
		}
		return true, s.write(first)
	}
	return moved, err
}

func (s *stream) send(b []byte) error {
	if err := s.write(b); err != nil {
		return err
	}
	return s.flush()
}

// write takes at most Config.Write, as flush does: the server writes to the
// connection when its buffer is full.
func (s *stream) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if err := s.limit(); err != nil {
		return err
	}
	if _, err := s.w.Write(b); err != nil {
		return fmt.Errorf("%w: %w", errWrite, err)
	}
	return nil
}

func (s *stream) flush() error {
	if err := s.limit(); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errWrite, err)
	}
	// HTTP/2 resets a stream whose deadline passes, also one with nothing to write.
	return s.setDeadline(time.Time{})
}

func (s *stream) limit() error {
	return s.setDeadline(time.Now().Add(s.hub.Write))
}

func (s *stream) setDeadline(at time.Time) error {
	if err := s.control.SetWriteDeadline(at); err != nil {
		return fmt.Errorf("limit the time of a write: %w", err)
	}
	return nil
}
