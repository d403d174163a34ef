package rolling

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tmaxmax/go-sse"
)

// follower is a client of a channel that holds each event against the one
// before, over all its connections.
type follower struct {
	*caller
	id  string
	log bool

	last     string // ID of the last event
	sequence int64  // in it
	events   int
	streams  int
	// logs is what was told of the log of each build.
	logs map[int64]string
	// statuses are what was told of each build last.
	statuses map[int64]string
	// succeeded is how many builds were told to have succeeded.
	succeeded atomic.Int64
	// enough is closed when it has been told everything.
	enough chan struct{}
}

func (l *load) follower(keep bool, id string, log bool) *follower {
	return &follower{caller: l.caller(keep), id: id, log: log, logs: map[int64]string{}, statuses: map[int64]string{}, enough: make(chan struct{})}
}

// follows follows until it has enough.
func (f *follower) follows() {
	for {
		var response *http.Response
		opened := f.twice("GET channel of "+f.id, func() (err error) {
			response, err = f.open()
			return err
		})
		if !opened {
			return
		}
		f.streams++
		err := f.read(response)
		_ = response.Body.Close()
		select {
		case <-f.enough:
			return
		default:
		}
		if err != nil {
			f.t.Errorf("channel of %s, %q: %v", f.id, *f.phase.Load(), err)
			return
		}
		time.Sleep(100 * time.Millisecond) // the "retry" of the client
	}
}

func (f *follower) open() (*http.Response, error) {
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.url(fmt.Sprintf("/deployments/%s/events?log=%t", f.id, f.log)), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+f.token)
	if f.last != "" {
		r.Header.Set("Last-Event-ID", f.last)
	}
	response, err := f.http.Do(r)
	if err == nil && response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		err = &refused{status: response.StatusCode}
	}
	return response, err
}

// read reads a stream to its end, which is no error however it came, or until it
// has enough.
func (f *follower) read(response *http.Response) error {
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-f.enough:
			_ = response.Body.Close()
		case <-done:
		}
	}()
	for raw, err := range sse.Read(response.Body, &sse.ReadConfig{MaxEventSize: 1 << 20}) {
		if err != nil {
			break
		}
		if err := f.take(raw); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) take(raw sse.Event) error {
	place := strings.Split(raw.LastEventID, ".")
	sequence, err := strconv.ParseInt(place[0], 10, 64)
	if err != nil {
		return fmt.Errorf("an event %s without an ID: %q", raw.Type, raw.LastEventID)
	}
	switch {
	case f.last == "" && raw.Type == "snapshot":
	case raw.Type == "log" && sequence == f.sequence:
		if err := f.takeLog(raw.Data); err != nil {
			return err
		}
	case raw.Type == "state" && sequence == f.sequence+1:
	case raw.Type == "build" && sequence == f.sequence+1:
		var build struct {
			Number int64  `json:"number"`
			Status string `json:"status"`
		}
		if err := json.Unmarshal([]byte(raw.Data), &build); err != nil {
			return err
		}
		f.statuses[build.Number] = build.Status
		if build.Status == "succeeded" {
			f.succeeded.Add(1)
		}
	default:
		return fmt.Errorf("an event %s with the ID %s after one with %s: one is lost or doubled", raw.Type, raw.LastEventID, f.last)
	}
	f.last, f.sequence = raw.LastEventID, sequence
	f.events++
	return nil
}

func (f *follower) takeLog(data string) error {
	var piece struct {
		Build int64  `json:"build"`
		From  int    `json:"from"`
		Text  string `json:"text"`
	}
	if err := json.Unmarshal([]byte(data), &piece); err != nil {
		return err
	}
	if have := len(f.logs[piece.Build]); piece.From != have {
		return fmt.Errorf("the log of build %d goes on at %d, after %d bytes", piece.Build, piece.From, have)
	}
	f.logs[piece.Build] += piece.Text
	return nil
}
