package channel

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
)

// retryDelay is how long a topic waits after it could not read.
const retryDelay = time.Second

// topic is what all clients of one deployment's channel share: the newest
// frames, and the only reader of the rows behind them.
type topic struct {
	hub     *Hub
	key     topicKey
	stop    context.CancelFunc
	clients int // guarded by hub.mu

	mu sync.Mutex
	// begun: the topic has a place. Before, every client reads by itself.
	begun bool
	// start is the place before the first frame.
	start  place
	frames []frame
	// first numbers frames[0] among all frames of the topic; it never falls.
	first uint64
	bytes int
	// changed is closed, and another one made, when there is news.
	changed chan struct{}
}

// cursor is where a client stands in the frames of a topic.
type cursor struct {
	joined bool
	next   uint64
}

// take gives a client at p the frames that it may not have yet, or says that
// its place lies before the window. changed is closed at the next news.
func (t *topic) take(c *cursor, p place) (frames []frame, before bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.joined && c.next >= t.first {
		frames = t.frames[c.next-t.first:]
	} else {
		c.joined = t.begun && !p.behind(t.start)
		if !c.joined {
			return nil, true, t.changed
		}
		frames = t.frames[sort.Search(len(t.frames), func(i int) bool { return p.behind(t.frames[i].to) }):]
	}
	c.next = t.first + uint64(len(t.frames))
	return frames, false, t.changed
}

// begin makes p the place of the topic and forgets all frames.
func (t *topic) begin(p place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun, t.start = true, p
	// One number is skipped, so that no client takes the new frames for those
	// that follow its own.
	t.first += uint64(len(t.frames)) + 1
	t.frames, t.bytes = nil, 0
	t.announce()
}

// append adds a frame, and lets old ones go where the window is twice as large
// as it should be. Clients may hold the old array, so it is not written to.
func (t *topic) append(f frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frames = append(t.frames, f)
	t.bytes += f.size()
	if t.bytes <= 2*t.hub.Window {
		return
	}
	gone := 0
	for ; t.bytes > t.hub.Window && gone < len(t.frames)-1; gone++ {
		t.bytes -= t.frames[gone].size()
	}
	if gone == 0 { // one frame alone is larger
		return
	}
	t.start = t.frames[gone-1].to
	t.first += uint64(gone)
	t.frames = append([]frame(nil), t.frames[gone:]...)
}

// size is about what a frame holds in memory.
func (f frame) size() int { return len(f.wire) + len(f.text) + len(f.event.Data) + 200 }

// wake tells the clients that there are frames.
func (t *topic) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.announce()
}

func (t *topic) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// run reads what happens until ctx ends.
func (t *topic) run(ctx context.Context) {
	log := t.hub.Log.With(zap.String("deployment", t.key.deployment))
	changed, unsubscribe := t.hub.Listener.Subscribe(t.key.deployment)
	defer unsubscribe()
	r := &rows{reader: t.hub.Reader, deployment: t.key.deployment, log: t.key.log}
	t.mu.Lock()
	begun := t.begun
	r.at = t.start
	t.mu.Unlock()

	timer := time.NewTimer(0)
	defer timer.Stop()
	var logAt time.Time // when the log may be read again
	for {
		var err error
		if !begun {
			begun, err = t.beginNow(ctx, r)
		}
		if err == nil {
			err = t.read(ctx, r, &logAt)
		}
		wait := t.hub.Poll
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errTooOld):
			begun = false
			continue
		case err != nil:
			log.Warn("the channel of a deployment could not be read", zap.Error(err))
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryDelay):
				continue
			}
		case t.key.log && time.Until(logAt) > 0:
			wait = min(wait, time.Until(logAt))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-timer.C:
		}
	}
}

// beginNow takes the present for the place of the topic.
func (t *topic) beginNow(ctx context.Context, r *rows) (begun bool, err error) {
	snapshot, err := r.reader.Snapshot(ctx, t.key.deployment)
	if err != nil {
		return false, fmt.Errorf("read the deployment: %w", err)
	}
	r.at = place{sequence: snapshot.Sequence}
	if t.key.log {
		if r.at.build, err = running(ctx, r.reader, snapshot.Deployment); err != nil {
			return false, err
		}
	}
	t.begin(r.at)
	return true, nil
}

// read takes in all that there is, but the log only when it is due.
func (t *topic) read(ctx context.Context, r *rows, logAt *time.Time) error {
	emit := func(f frame) error {
		t.append(f)
		if f.isLog() {
			t.wake()
		}
		return nil
	}
	for more := true; more; {
		var err error
		if more, err = r.events(ctx, emit); more {
			t.wake()
		}
		if err != nil {
			return err
		}
		if more || time.Until(*logAt) > 0 {
			continue
		}
		offset := r.at.offset
		if more, err = r.piece(ctx, emit); err != nil {
			return err
		}
		// A piece that is full has more behind it, which need not wait.
		if more && r.at.offset-offset < logAtOnce-utf8.UTFMax {
			*logAt = time.Now().Add(t.hub.LogInterval)
		}
	}
	return nil
}
