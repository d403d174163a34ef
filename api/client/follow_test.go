package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

// stream is one answer of a channel: what it sends before the connection ends.
type stream struct {
	text string
	// hold keeps the connection open and silent afterwards.
	hold bool
}

type channel struct {
	streams []stream
	// Of each request: its Last-Event-ID.
	resumed []string
	queries []string
}

func (c *channel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.resumed = append(c.resumed, r.Header.Get("Last-Event-ID"))
	c.queries = append(c.queries, r.URL.RequestURI())
	if len(c.streams) == 0 {
		answerJSON(w, 404, `{"error":"not_found","message":"gone"}`)
		return
	}
	s := c.streams[0]
	c.streams = c.streams[1:]
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, s.text)
	w.(http.Flusher).Flush()
	if s.hold {
		<-r.Context().Done()
	}
}

func event(id, kind, data string) string {
	return fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", id, kind, data)
}

var errEnough = errors.New("enough")

func TestFollowTypesEveryEvent(t *testing.T) {
	c := &channel{streams: []stream{{text: ": hello\n\n" +
		event("4", "snapshot", `{"deploymentId":"example","state":"building","since":"2026-01-02T03:04:05Z"}`) +
		event("5", "build", `{"number":2,"action":"deploy","status":"running"}`) +
		event("5.2.6", "log", `{"build":2,"from":0,"text":"hello\n"}`) +
		": comment\n\n" +
		event("6", "weather", `{"unknown":"kinds are passed over"}`) +
		event("7", "state", `{"state":"active","since":"2026-01-02T03:04:05Z","live":2}`)}}}
	var got []Event
	err := start(t, c.ServeHTTP, Options{}).Follow(t.Context(), "example", FollowOptions{Log: true}, func(e Event) error {
		got = append(got, e)
		if e.ID == "7" {
			return errEnough
		}
		return nil
	})
	require.ErrorIs(t, err, errEnough)
	require.Equal(t, []string{"/deployments/example/events?log=true"}, c.queries)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	live := int64(2)
	require.Equal(t, []Event{
		{"4", deployment.Deployment{ID: "example", Standing: deployment.Standing{State: "building", Since: since}}},
		{"5", deployment.Build{Number: 2, Action: "deploy", Status: "running"}},
		{"5.2.6", LogText{2, 0, "hello\n"}},
		{"7", deployment.Standing{State: "active", Since: since, Live: &live}},
	}, got)
}

func TestFollowResumesWithoutGapOrRepeat(t *testing.T) {
	log := func(from int, text string) string {
		return event(fmt.Sprintf("3.1.%d", from+len(text)), "log", fmt.Sprintf(`{"build":1,"from":%d,"text":%q}`, from, text))
	}
	c := &channel{streams: []stream{
		{text: event("3", "snapshot", `{"deploymentId":"example","state":"building"}`) + log(0, "one ")},
		{text: ""}, // ends before the first event
		{text: log(4, "two ") + "id: 3.1.99\nevent: log\ndata: {\"build\":1,\"fro"}, // cut inside an event
		{text: log(8, "three")},
		{text: event("4", "build", `{"number":1,"status":"succeeded"}`), hold: true},
	}}
	var text strings.Builder
	var troubles []error
	client := start(t, c.ServeHTTP, Options{Trouble: func(err error, _ time.Duration) { troubles = append(troubles, err) }})
	err := client.Follow(t.Context(), "example", FollowOptions{Log: true}, func(e Event) error {
		switch data := e.Data.(type) {
		case LogText:
			require.Equal(t, int64(text.Len()), data.From)
			text.WriteString(data.Text)
		case deployment.Build:
			return errEnough
		}
		return nil
	})
	require.ErrorIs(t, err, errEnough)
	require.Equal(t, "one two three", text.String())
	require.Equal(t, []string{"", "3.1.4", "3.1.4", "3.1.8", "3.1.13"}, c.resumed)
	require.Len(t, troubles, 8)
	for i, trouble := range troubles {
		require.Equal(t, i%2 == 0, trouble != nil, "each loss is followed by its end")
	}
}

func TestFollowBeginsBehindAnEvent(t *testing.T) {
	c := &channel{streams: []stream{{text: event("9", "state", `{"state":"idle"}`)}}}
	err := start(t, c.ServeHTTP, Options{}).Follow(t.Context(), "example", FollowOptions{After: "8"}, func(Event) error { return errEnough })
	require.ErrorIs(t, err, errEnough)
	require.Equal(t, []string{"8"}, c.resumed)
	require.Equal(t, []string{"/deployments/example/events"}, c.queries)
}

func TestAResetIsNotAPlaceToResumeFrom(t *testing.T) {
	c := &channel{streams: []stream{
		{text: event("3", "state", `{"state":"building"}`)},
		{text: event("80", "reset", `{}`)}, // lost before its snapshot
		{text: event("81", "reset", `{}`) + event("81", "snapshot", `{"deploymentId":"example","state":"active"}`)},
		{text: event("82", "state", `{"state":"idle"}`)},
	}}
	var kinds []string
	err := start(t, c.ServeHTTP, Options{}).Follow(t.Context(), "example", FollowOptions{}, func(e Event) error {
		kinds = append(kinds, fmt.Sprintf("%T", e.Data))
		if e.ID == "82" {
			return errEnough
		}
		return nil
	})
	require.ErrorIs(t, err, errEnough)
	require.Equal(t, []string{"", "3", "", "81"}, c.resumed)
	require.Equal(t, []string{"deployment.Standing", "client.Reset", "client.Reset", "deployment.Deployment", "deployment.Standing"}, kinds)
}

func TestFollowGivesUpOnARefusal(t *testing.T) {
	c := &channel{streams: []stream{{text: event("3", "snapshot", `{}`)}}}
	err := start(t, c.ServeHTTP, Options{}).Follow(t.Context(), "example", FollowOptions{}, func(Event) error { return nil })
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 404, refused.Status)
	require.Len(t, c.resumed, 2)
}

func TestFollowGoesOnWhileTheAPIIsAway(t *testing.T) {
	tries := 0
	c := start(t, func(w http.ResponseWriter, _ *http.Request) {
		tries++
		switch tries {
		case 1, 2:
			answerJSON(w, 503, `{"error":"service_unavailable","message":"away"}`)
		case 3:
			answerJSON(w, 429, `{"error":"slow_down","message":"slow down"}`)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, event("3", "snapshot", `{}`))
		}
	}, Options{})
	require.ErrorIs(t, c.Follow(t.Context(), "example", FollowOptions{}, func(Event) error { return errEnough }), errEnough)
	require.Equal(t, 4, tries)
}

func TestFollowHasPatience(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, 503, `{"error":"service_unavailable","message":"away"}`)
	}, Options{})
	err := c.Follow(t.Context(), "example", FollowOptions{Patience: 30 * time.Millisecond}, func(Event) error { return nil })
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 503, refused.Status)
}

func TestFollowLeavesASilentConnection(t *testing.T) {
	t.Parallel()
	c := &channel{streams: []stream{
		{text: event("3", "snapshot", `{}`), hold: true},
		{text: event("4", "state", `{"state":"active"}`), hold: true},
	}}
	var lost error
	client := start(t, c.ServeHTTP, Options{Trouble: func(err error, _ time.Duration) {
		if err != nil {
			lost = err
		}
	}})
	client.silence = time.Second
	err := client.Follow(t.Context(), "example", FollowOptions{}, func(e Event) error {
		if e.ID == "3" {
			// A handler that takes its time is not a silent server.
			time.Sleep(client.silence + client.silence/5)
			return nil
		}
		return errEnough
	})
	require.ErrorIs(t, err, errEnough)
	require.ErrorContains(t, lost, "silent for 1s")
	require.Equal(t, []string{"", "3"}, c.resumed)
}

func TestFollowStopsWithItsContext(t *testing.T) {
	c := &channel{streams: []stream{{text: event("3", "snapshot", `{}`), hold: true}}}
	ctx, cancel := context.WithCancel(t.Context())
	err := start(t, c.ServeHTTP, Options{}).Follow(ctx, "example", FollowOptions{}, func(Event) error { cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, c.resumed, 1)
}

func TestFollowTakesAnEventOfAWholeConfiguration(t *testing.T) {
	big := strings.Repeat("x", 2<<20)
	c := &channel{streams: []stream{{text: event("3", "snapshot", `{"configuration":{"a":"`+big+`"}}`)}}}
	err := start(t, c.ServeHTTP, Options{}).Follow(t.Context(), "example", FollowOptions{}, func(e Event) error {
		require.Len(t, e.Data.(deployment.Deployment).Configuration, len(big)+len(`{"a":""}`))
		return errEnough
	})
	require.ErrorIs(t, err, errEnough)
}

func TestFollowRefusesWhatIsNotAChannel(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/deployments/page/events" {
			_, _ = io.WriteString(w, "<html>")
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event("3", "snapshot", `<html>`))
	}, Options{})
	require.ErrorContains(t, c.Follow(t.Context(), "page", FollowOptions{}, nil), "the deployments API?")
	require.ErrorContains(t, c.Follow(t.Context(), "example", FollowOptions{}, nil), "a snapshot event of the channel")
}
