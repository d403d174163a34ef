package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tmaxmax/go-sse"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/cmd/slipway-dev/supervise"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/stand"
)

// event is one of a channel as it was sent.
type event struct{ ID, Kind, Data string }

// stream is an open channel.
type stream struct {
	t      *testing.T
	events chan event // closed when the stream has ended
}

// openChannel requests a channel, which must be answered.
func openChannel(t *testing.T, url string, header http.Header) *stream {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	require.Equal(t, "no-store", response.Header.Get("Cache-Control"))
	require.Equal(t, "no", response.Header.Get("X-Accel-Buffering"))
	s := &stream{t: t, events: make(chan event)}
	go func() {
		defer close(s.events)
		for raw, err := range sse.Read(response.Body, &sse.ReadConfig{MaxEventSize: 16 << 20}) {
			if err != nil {
				return
			}
			select {
			case s.events <- event{raw.LastEventID, raw.Type, raw.Data}:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return s
}

// channel opens a channel as one who may do everything.
func (s *site) channel(t *testing.T, id, query, last string) *stream {
	t.Helper()
	header := bearer(s.Token(all))
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	return openChannel(t, s.URL+"/deployments/"+id+"/events"+query, header)
}

// until reads to the event that is the last one, which must come.
func (s *stream) until(last func(event) bool) []event {
	s.t.Helper()
	var events []event
	limit := time.After(patience)
	for {
		select {
		case e, ok := <-s.events:
			require.True(s.t, ok, "the stream ended after %v", events)
			events = append(events, e)
			if last(e) {
				return events
			}
		case <-limit:
			s.t.Fatalf("no such event after %s, only %v", patience, events)
		}
	}
}

func (s *stream) next() event {
	s.t.Helper()
	return s.until(func(event) bool { return true })[0]
}

// ends waits for the end of the stream and returns when that was.
func (s *stream) ends() time.Time {
	s.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case _, ok := <-s.events:
			if !ok {
				return time.Now()
			}
		case <-limit:
			s.t.Fatalf("the stream goes on after %s", patience)
		}
	}
}

// isLive: the event says that a build is up.
func isLive(build int64) func(event) bool {
	return func(e event) bool {
		var state deployment.Standing
		return e.Kind == "state" && json.Unmarshal([]byte(e.Data), &state) == nil &&
			state.State == deployment.StateActive && state.Live != nil && *state.Live == build
	}
}

func hasID(id string) func(event) bool { return func(e event) bool { return e.ID == id } }

// story is what events tell: of a log the whole text that follows, whatever
// the pieces were.
func story(t *testing.T, events []event) (told []string, log string) {
	t.Helper()
	var next int64 = -1
	for _, e := range events {
		switch e.Kind {
		case "log":
			var text client.LogText
			require.NoError(t, json.Unmarshal([]byte(e.Data), &text))
			if next >= 0 {
				require.Equal(t, next, text.From, "no gap, no repeat")
			}
			next = text.From + int64(len(text.Text))
			log += text.Text
			if len(told) == 0 || told[len(told)-1] != "log" {
				told = append(told, "log")
			}
		case "build":
			var b deployment.Build
			require.NoError(t, json.Unmarshal([]byte(e.Data), &b))
			told = append(told, fmt.Sprintf("build %d %s", b.Number, b.Status))
		case "state":
			var s deployment.Standing
			require.NoError(t, json.Unmarshal([]byte(e.Data), &s))
			told = append(told, strings.TrimSpace(fmt.Sprintf("state %s %s", s.State, s.Reason)))
		default:
			told = append(told, e.Kind)
		}
	}
	return told, log
}

// lines are the lines that the controlled deployer prints for lines-… and
// slow-lines-….
func lines(deploy string, build int64, format string, count int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "deploy of build %d: %s\n", build, deploy)
	for i := range count {
		fmt.Fprintf(&b, format+"\n", i+1)
	}
	return b.String() + "done\n"
}

func TestChannelTellsTheStory(t *testing.T) {
	t.Parallel()
	const id = "channel"
	a := slipway.call(t, http.MethodGet, "/deployments/"+id+"/events", nil, "")
	require.Equal(t, http.StatusNotFound, a.Status, a.Body)
	slipway.deploy(t, id, "")

	with, without := slipway.channel(t, id, "?log=true", ""), slipway.channel(t, id, "", "")
	for _, s := range []*stream{with, without} {
		first := s.next()
		require.Equal(t, "snapshot", first.Kind)
		require.JSONEq(t, slipway.call(t, http.MethodGet, "/deployments/"+id, nil, "").Body, first.Data)
	}
	slipway.submit(t, id, `"deploy":"slow-lines-60"`)
	events := with.until(isLive(2))
	told, log := story(t, events)
	require.Equal(t, []string{
		"build 2 queued", "state building build 2 is queued",
		"build 2 running", "state building build 2 runs",
		"log", // all of it, before the end
		"build 2 succeeded", "state active",
	}, told)
	whole := lines("slow-lines-60", 2, "line %d", 60)
	require.Equal(t, whole, log)
	require.Equal(t, slipway.logOf(t, id, 2), log)
	require.Greater(t, len(events), 8, "the log comes while it grows")
	ids := map[string]bool{}
	for _, e := range events {
		require.NotEmpty(t, e.ID)
		require.False(t, ids[e.ID], "an ID comes twice: %s", e.ID)
		ids[e.ID] = true
	}
	told, _ = story(t, without.until(isLive(2)))
	require.Equal(t, []string{
		"build 2 queued", "state building build 2 is queued", "build 2 running", "state building build 2 runs", "build 2 succeeded", "state active",
	}, told)

	// Resumed behind every event, the rest is the same.
	last := events[len(events)-1].ID
	for i, e := range events[:len(events)-1] {
		resumed := slipway.channel(t, id, "?log=true", e.ID)
		if i%2 == 1 {
			resumed = slipway.channel(t, id, "?log=true&lastEventId="+e.ID, "")
		}
		got := resumed.until(hasID(last))
		wantTold, wantLog := story(t, events[i+1:])
		gotTold, gotLog := story(t, got)
		require.Equal(t, wantTold, gotTold, "behind %d, %s", i, e.ID)
		require.Equal(t, wantLog, gotLog, "behind %d, %s", i, e.ID)
		for _, g := range got {
			if g.Kind != "log" {
				require.Contains(t, events[i+1:], g, "with the same ID and data")
			}
		}
	}
	// Without the log too, by the same IDs.
	told, log = story(t, slipway.channel(t, id, "", events[len(events)-4].ID).until(isLive(2)))
	require.Equal(t, []string{"build 2 succeeded", "state active"}, told)
	require.Empty(t, log)

	// Behind the last event only what is new comes.
	behind := slipway.channel(t, id, "?log=true", last)
	slipway.submit(t, id, "")
	told, _ = story(t, behind.until(isLive(3)))
	require.Equal(t, "build 3 queued", told[0])
}

// A client that comes while a deploy runs gets the log from its first byte.
func TestChannelInTheMiddle(t *testing.T) {
	t.Parallel()
	const id = "middle"
	slipway.submit(t, id, `"deploy":"gate"`)
	slipway.started(t, id, "deploy", 1)
	slipway.submit(t, id, `"deploy":"lines-1"`)
	s := slipway.channel(t, id, "?log=true", "")
	told, log := story(t, s.until(func(e event) bool { return e.Kind == "log" }))
	require.Equal(t, []string{"snapshot", "log"}, told)
	require.Equal(t, "deploy of build 1: gate\n", log)
	slipway.open(t, id)
	told, log = story(t, s.until(func(e event) bool { return e.Kind == "build" }))
	require.Equal(t, []string{"log", "build 1 succeeded"}, told)
	require.Equal(t, "done\n", log)
	told, log = story(t, s.until(isLive(2)))
	require.Equal(t, []string{"build 2 running", "state building build 2 runs", "log", "build 2 succeeded", "state active"}, told[1:])
	require.Equal(t, lines("lines-1", 2, "%d", 1), log)
}

func TestChannelResets(t *testing.T) {
	t.Parallel()
	const id = "resets"
	slipway.deploy(t, id, "")
	var newest int64
	require.NoError(t, slipway.database.QueryRow(t.Context(), `SELECT max(sequence) FROM events WHERE deployment_id = $1`, id).Scan(&newest))
	s := slipway.channel(t, id, "?log=true", "1.0.0")
	told, _ := story(t, s.until(isLive(1)))
	require.NotContains(t, told, "reset", "what is kept can be resumed")

	// The old events go, as they do when there are many.
	_, err := slipway.database.Exec(t.Context(), `DELETE FROM events WHERE deployment_id = $1 AND sequence <= 3`, id)
	require.NoError(t, err)
	for _, last := range []string{"1", "1.0.0", "2", strconv.FormatInt(newest+1, 10), "999999", "garbage", "-1", "3.1.999999", "1.2.3.4", "3.1", ""} {
		s := slipway.channel(t, id, "?log=true", last)
		told, _ := story(t, s.until(func(e event) bool { return e.Kind == "snapshot" }))
		if last == "" {
			require.Equal(t, []string{"snapshot"}, told)
			continue
		}
		require.Equal(t, []string{"reset", "snapshot"}, told, last)
	}
	told, _ = story(t, slipway.channel(t, id, "", "3").until(isLive(1)))
	require.NotContains(t, told, "reset", "the next one is kept")
}

func TestTicket(t *testing.T) {
	t.Parallel()
	const id, other = "ticketed", "ticketed-too"
	slipway.deploy(t, id, "")
	slipway.deploy(t, other, "")
	buy := func(header http.Header) (ticket string, expires time.Time) {
		a := slipway.call(t, http.MethodPost, "/deployments/"+id+"/events/ticket", header, "")
		require.Equal(t, http.StatusOK, a.Status, a.Body)
		var bought struct {
			Ticket    string
			ExpiresAt time.Time
		}
		require.NoError(t, json.Unmarshal([]byte(a.Body), &bought))
		return bought.Ticket, bought.ExpiresAt
	}
	ticket, expires := buy(bearer(slipway.Token(issuer.Claims{Expires: time.Now().Add(10 * time.Hour)})))
	require.WithinDuration(t, time.Now().Add(time.Hour), expires, patience, "at most an hour")
	until := time.Now().Add(8 * time.Second)
	short, expires := buy(bearer(slipway.Token(issuer.Claims{Expires: until, Scope: "deployments:read", Deployments: []string{id}})))
	require.Equal(t, until.Unix(), expires.Unix(), "not longer than the token")

	channel := slipway.URL + "/deployments/" + id + "/events?ticket="
	ending := openChannel(t, channel+short, nil)
	for range 2 { // more than once
		require.Equal(t, "snapshot", openChannel(t, channel+ticket+"&log=true", nil).next().Kind)
	}
	anonymous := http.Header{"Authorization": nil}
	for _, path := range []string{
		"/deployments/" + other + "/events?ticket=" + ticket,
		"/deployments/" + id + "/events?ticket=" + ticket + "x",
		"/deployments/" + id + "/events?ticket=" + ticket + "&ticket=" + ticket,
		"/deployments/" + id + "/events?ticket=",
		"/deployments/" + id + "/events",
		"/deployments/" + id + "?ticket=" + ticket, // this channel, and nothing else
		"/deployments/" + id + "/builds/1/log?ticket=" + ticket,
		"/deployments/no-such/events?ticket=" + ticket,
	} {
		a := slipway.call(t, http.MethodGet, path, anonymous, "")
		require.Equal(t, http.StatusUnauthorized, a.Status, "%s: %s", path, a.Body)
		require.NotContains(t, a.Body, ticket)
	}
	require.WithinDuration(t, expires, ending.ends(), 5*time.Second, "the stream ends with its ticket")
	require.Equal(t, http.StatusUnauthorized, slipway.call(t, http.MethodGet, "/deployments/"+id+"/events?ticket="+short, anonymous, "").Status)

	log := string(mustRead(t, filepath.Join(slipway.Dir, "logs", "api.log")))
	require.Contains(t, log, `"route":"/deployments/{id}/events"`)
	for _, secret := range []string{ticket, short, strings.SplitN(ticket, ".", 2)[1]} {
		require.NotContains(t, log, secret)
	}
}

func TestChannelEndsWithItsToken(t *testing.T) {
	t.Parallel()
	const id = "token-ends"
	slipway.submit(t, id, `"deploy":"gate"`)
	slipway.started(t, id, "deploy", 1)
	expires := time.Now().Add(8 * time.Second).Truncate(time.Second)
	header := bearer(slipway.Token(issuer.Claims{Expires: expires}))
	channel := openChannel(t, slipway.URL+"/deployments/"+id+"/events", header)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, slipway.URL+"/deployments/"+id+"/builds/1/log?follow=true", nil)
	require.NoError(t, err)
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, http.StatusOK, response.StatusCode)

	ended := channel.ends()
	require.False(t, ended.Before(expires), "not before")
	require.WithinDuration(t, expires, ended, 5*time.Second)
	_, err = io.ReadAll(response.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a log that is not whole is broken off")
	slipway.open(t, id)
	require.Equal(t, deployment.StateActive, slipway.settled(t, id).State)
}

func TestEveryReplicaDelivers(t *testing.T) {
	t.Parallel()
	const id = "replicas"
	slipway.deploy(t, id, "")
	second := replica(t)
	path := "/deployments/" + id + "/events?log=true"
	header := bearer(slipway.Token(all))
	streams := []*stream{openChannel(t, slipway.URL+path, header), openChannel(t, second+path, header)}
	for _, s := range streams {
		require.Equal(t, "snapshot", s.next().Kind)
	}
	slipway.submit(t, id, `"deploy":"slow-lines-20"`)
	here, there := streams[0].until(isLive(2)), streams[1].until(isLive(2))
	hereTold, hereLog := story(t, here)
	thereTold, thereLog := story(t, there)
	require.Equal(t, hereTold, thereTold)
	require.Equal(t, lines("slow-lines-20", 2, "line %d", 20), hereLog)
	require.Equal(t, hereLog, thereLog)
	require.Equal(t, here[len(here)-1], there[len(there)-1], "the same place by the same ID")

	// What one began, the other goes on with.
	header.Set("Last-Event-ID", here[3].ID)
	resumed := openChannel(t, second+path, header).until(hasID(here[len(here)-1].ID))
	told, log := story(t, resumed)
	wantTold, wantLog := story(t, here[4:])
	require.Equal(t, wantTold, told)
	require.Equal(t, wantLog, log)
	// A ticket of one is good for the other.
	a := slipway.call(t, http.MethodPost, "/deployments/"+id+"/events/ticket", nil, "")
	var bought struct{ Ticket string }
	require.NoError(t, json.Unmarshal([]byte(a.Body), &bought))
	require.Equal(t, "snapshot", openChannel(t, second+"/deployments/"+id+"/events?ticket="+bought.Ticket, nil).next().Kind)
}

// replica starts another API and returns its URL.
func replica(t *testing.T) string {
	t.Helper()
	address := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		return l.Addr().String()
	}
	listen, health := address(), address()
	cmd := slipway.Command("api", "--listen", listen, "--health-listen", health, "--metrics-listen", "127.0.0.1:0")
	log, err := supervise.OpenLog(filepath.Join(t.TempDir(), "api.log"))
	require.NoError(t, err)
	process, err := supervise.Start(supervise.Spec{Name: "api", Path: cmd.Path, Args: cmd.Args[1:], Env: cmd.Env, Dir: cmd.Dir, Output: log})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.False(t, process.Stop(patience), "it stops by itself")
		require.NoError(t, log.Close())
	})
	await(t, patience, func() error {
		response, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return fmt.Errorf("%w: %s", err, process.Tail(10))
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("the replica is not ready: %s", response.Status)
		}
		conn, err := net.Dial("tcp", listen)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return "http://" + listen
}

func TestLogIsFollowed(t *testing.T) {
	t.Parallel()
	const id = "follows"
	slipway.submit(t, id, `"deploy":"gate"`)
	slipway.started(t, id, "deploy", 1)
	ref := deployment.Ref{Deployment: id, Build: 1}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	body, err := slipway.api(t).Log(ctx, ref, 0, true)
	require.NoError(t, err)
	defer func() { _ = body.Close() }()
	reader := bufio.NewReader(body)
	line, err := reader.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "deploy of build 1: gate\n", line, "before the deployer ends")

	// Without follow it ends where the log does now.
	now := slipway.call(t, http.MethodGet, "/deployments/"+id+"/builds/1/log", nil, "")
	require.Equal(t, http.StatusOK, now.Status)
	require.Equal(t, "text/plain; charset=utf-8", now.Header.Get("Content-Type"))
	require.Equal(t, line, now.Body)

	slipway.open(t, id)
	rest, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Equal(t, "done\n", string(rest))
	whole := line + "done\n"
	for _, from := range []int{0, 1, 10, len(line), len(whole) - 1, len(whole), len(whole) + 1, 1 << 40} {
		for _, follow := range []string{"", "&follow=true", "&follow=false"} {
			a := slipway.call(t, http.MethodGet, fmt.Sprintf("/deployments/%s/builds/1/log?from=%d%s", id, from, follow), nil, "")
			require.Equal(t, http.StatusOK, a.Status)
			require.Equal(t, whole[min(from, len(whole)):], a.Body)
		}
	}
}

// Who does not take what is sent is dropped, and nobody waits for it.
func TestSlowClientIsDropped(t *testing.T) {
	t.Parallel()
	const id, count = "slow-client", 1_500_000
	slipway.deploy(t, id, "")
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		return errors.Join(failed, err)
	}}
	slow, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(slipway.URL, "http://"))
	require.NoError(t, err)
	defer func() { _ = slow.Close() }()
	_, err = fmt.Fprintf(slow, "GET /deployments/%s/events?log=true HTTP/1.1\r\nHost: slipway\r\nAuthorization: Bearer %s\r\n\r\n", id, slipway.Token(all))
	require.NoError(t, err)
	start := make([]byte, 12)
	_, err = io.ReadFull(slow, start)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 200", string(start))

	fast := slipway.channel(t, id, "?log=true", "")
	slipway.submit(t, id, fmt.Sprintf(`"deploy":"lines-%d"`, count))
	told, log := story(t, fast.until(isLive(2))[1:])
	require.Equal(t, []string{"log", "build 2 succeeded", "state active"}, told[len(told)-3:])
	require.True(t, lines(fmt.Sprintf("lines-%d", count), 2, "%d", count) == log, "the other has it all")

	await(t, patience, func() error {
		if !strings.Contains(string(mustRead(t, filepath.Join(slipway.Dir, "logs", "api.log"))), `too slow and is dropped","deployment":"`+id+`"`) {
			return fmt.Errorf("the slow client is not dropped")
		}
		return nil
	})
	require.NotEqual(t, "0", slipway.metric(t, stand.API, "slipway_api_slow_clients_total"))
	require.NoError(t, slow.SetReadDeadline(time.Now().Add(patience)))
	left, err := io.Copy(io.Discard, slow)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Less(t, left, int64(len(log)), "its connection ends before the log does")
}

func TestIdleChannelIsKeptAlive(t *testing.T) {
	t.Parallel()
	const id = "kept-alive"
	slipway.deploy(t, id, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, slipway.URL+"/deployments/"+id+"/events", nil)
	require.NoError(t, err)
	request.Header = bearer(slipway.Token(all))
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	begun := time.Now()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), ":") {
			require.WithinDuration(t, begun.Add(15*time.Second), time.Now(), 10*time.Second)
			return
		}
	}
	t.Fatal("no comment came")
}
