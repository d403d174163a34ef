package deployer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/schema/deployment"
)

const (
	// pieceBytes is about the size of one AppendLog, and pieceDelay the longest
	// that a line waits for others to go with.
	pieceBytes = 64 << 10
	pieceDelay = 100 * time.Millisecond
	// waitingBytes is how much may wait for the database before the output of
	// the deployer is not read any more.
	waitingBytes = 256 << 10
	// quotedLines and quotedBytes bound what a reason quotes of the log.
	quotedLines = 5
	quotedBytes = 1 << 10
	// retryDelay is the time between two tries of a call of the database.
	retryDelay = 500 * time.Millisecond
)

// buildLog carries lines to the journal in pieces.
type buildLog struct {
	fence *fence
	limit int64

	mu      sync.Mutex
	waiting []byte // whole lines that are not in the journal
	start   int64  // offset of waiting
	full    bool   // the log has reached its limit
	dropped bool   // nothing is kept any more: the journal took no more
	closed  bool
	last    []string // the newest lines of the deployer that are not empty

	changed chan struct{} // something came, or the log was closed
	room    chan struct{} // something went
}

func newLog(f *fence, start int64, limit int) *buildLog {
	return &buildLog{fence: f, start: start, limit: int64(limit),
		changed: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// line adds a line of the deployer and waits while too much is waiting. Only
// one goroutine may call it.
func (l *buildLog) line(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if trimmed := strings.TrimSpace(text); trimmed != "" {
		if len(l.last) == quotedLines {
			l.last = append(l.last[:0], l.last[1:]...)
		}
		l.last = append(l.last, shorten(trimmed, quotedBytes))
	}
	for len(l.waiting) >= waitingBytes && !l.dropped {
		l.mu.Unlock()
		<-l.room
		l.mu.Lock()
	}
	l.add(text)
}

// note adds a line of the supervisor, and never waits.
func (l *buildLog) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add("[" + fmt.Sprintf(format, args...) + "]")
}

func (l *buildLog) add(text string) {
	if l.full || l.dropped {
		return
	}
	if l.start+int64(len(l.waiting)+len(text)+1) > l.limit {
		l.full = true
		text = fmt.Sprintf("[the log ends here: it has reached %d MiB]", l.limit>>20)
	}
	l.waiting = append(append(l.waiting, text...), '\n')
	poke(l.changed)
}

// close says that no line comes any more.
func (l *buildLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	poke(l.changed)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// quote is the end of what the deployer printed, for a reason.
func (l *buildLog) quote() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, from := 0, len(l.last)
	for from > 0 && size+len(l.last[from-1]) <= quotedBytes {
		from--
		size += len(l.last[from]) + 1
	}
	return strings.Join(l.last[from:], "\n")
}

// shorten cuts text to at most limit bytes, between characters.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// send carries what comes to the journal, and returns when the log is closed
// and all of it has arrived, or the journal takes no more of it, or ctx ends.
func (l *buildLog) send(ctx context.Context) {
	for {
		piece, start, closed := l.next()
		switch {
		case len(piece) == 0 && closed:
			return
		case len(piece) == 0:
			<-l.changed
			continue
		case len(piece) < pieceBytes/2 && !closed:
			l.gather()
			piece, start, _ = l.next()
		}
		if err := l.deliver(ctx, start, piece); err != nil {
			l.drop()
			return
		}
		l.took(len(piece))
	}
}

// gather gives other lines the time to come along.
func (l *buildLog) gather() {
	timer := time.NewTimer(pieceDelay)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-l.changed:
			if piece, _, closed := l.next(); closed || len(piece) >= pieceBytes/2 {
				return
			}
		}
	}
}

// next is the next piece: whole lines of about pieceBytes at most.
func (l *buildLog) next() (piece []byte, start int64, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	piece = l.waiting
	if len(piece) > pieceBytes {
		end := bytes.LastIndexByte(piece[:pieceBytes], '\n')
		if end < 0 {
			end = bytes.IndexByte(piece, '\n')
		}
		piece = piece[:end+1]
	}
	return bytes.Clone(piece), l.start, l.closed
}

func (l *buildLog) took(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting[:0], l.waiting[n:]...)
	l.start += int64(n)
	poke(l.room)
}

func (l *buildLog) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped, l.waiting = true, nil
	poke(l.room)
}

// deliver tries until the journal has the piece.
func (l *buildLog) deliver(ctx context.Context, start int64, piece []byte) error {
	since := time.Now()
	for {
		err := l.fence.call(ctx, func(ctx context.Context) error {
			return l.fence.journal.AppendLog(ctx, l.fence.ref, l.fence.id, start, piece)
		})
		if err == nil {
			return nil
		}
		if errors.Is(err, deployment.ErrFenced) {
			l.fence.lose(deployment.ErrFenced)
			return err
		}
		if time.Since(since) > l.fence.limits.LogPatience && l.fence.held() {
			return err
		}
		if err := pause(ctx, retryDelay); err != nil {
			return err
		}
	}
}

// pause waits, and returns an error when ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
