package channel_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"slipway.dev/slipway/api/channel"
	"slipway.dev/slipway/api/internal/memory"
	"slipway.dev/slipway/schema/deployment"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// bundle is a hub with a server and a store.
type bundle struct {
	*memory.Store
	url     string
	stop    context.CancelFunc // of the hub
	dropped atomic.Int32
	until   time.Time
}

func start(t testing.TB, store *memory.Store, tune func(*channel.Config)) *bundle {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	b := &bundle{Store: store, stop: stop, until: time.Now().Add(time.Hour)}
	config := channel.Config{
		Reader: store, Listener: store, Log: zap.NewNop(), LogInterval: time.Millisecond,
		Encode:  func(d deployment.Deployment) ([]byte, error) { return json.Marshal(d) },
		Dropped: func() { b.dropped.Add(1) },
	}
	if tune != nil {
		tune(&config)
	}
	hub := channel.NewHub(ctx, config)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := hub.Serve(w, r, channel.Request{
			Deployment: strings.TrimPrefix(r.URL.Path, "/"),
			Log:        r.URL.Query().Has("log"),
			Last:       r.Header.Get("Last-Event-ID"),
			Until:      b.until,
		})
		switch {
		case errors.Is(err, deployment.ErrUnknown):
			http.Error(w, "unknown", http.StatusNotFound)
		case err != nil:
			http.Error(w, "away", http.StatusServiceUnavailable)
		}
	}))
	if _, ok := t.(*testing.T); ok {
		// A client that does not read is noticed after little data.
		server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
			return ctx
		}
	}
	server.Start()
	b.url = server.URL
	t.Cleanup(func() {
		stop()
		server.Close()
	})
	return b
}

type event struct{ kind, id, data string }

// client reads a channel.
type client struct {
	response *http.Response
	lines    *bufio.Reader
	cancel   context.CancelFunc
}

func (b *bundle) open(t *testing.T, id, last string, log bool) *client {
	t.Helper()
	c, err := b.connect(id, last, log)
	require.NoError(t, err)
	t.Cleanup(c.close)
	return c
}

func (b *bundle) connect(id, last string, log bool) (*client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	url := b.url + "/" + id
	if log {
		url += "?log"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		cancel()
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		cancel()
		return nil, errors.New(response.Status)
	}
	return &client{response, bufio.NewReader(response.Body), cancel}, nil
}

func (c *client) close() {
	c.cancel()
	_ = c.response.Body.Close()
}

// next reads an event; comments have the kind "".
func (c *client) next() (event, error) {
	var e event
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return e, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "event":
			e.kind = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		case "":
			if value != "" { // a comment
				e.data = value
			}
			if line == "" {
				return e, nil
			}
		default:
			return e, fmt.Errorf("a line that is no field: %q", line)
		}
	}
}

func (c *client) expect(t *testing.T, kind string) event {
	t.Helper()
	for {
		e, err := c.next()
		require.NoError(t, err)
		if e.kind == "" && kind != "" {
			continue
		}
		require.Equal(t, kind, e.kind, "%+v", e)
		return e
	}
}

type logText struct {
	Build int64
	From  int64
	Text  string
}

func (e event) log(t *testing.T) logText {
	t.Helper()
	var l logText
	require.NoError(t, json.Unmarshal([]byte(e.data), &l))
	return l
}

func (e event) build(t *testing.T) deployment.Build {
	t.Helper()
	var b deployment.Build
	require.NoError(t, json.Unmarshal([]byte(e.data), &b))
	return b
}

func (e event) state(t *testing.T) deployment.State {
	t.Helper()
	var s deployment.Standing
	require.NoError(t, json.Unmarshal([]byte(e.data), &s))
	return s.State
}

func TestTheStoryOfABuild(t *testing.T) {
	b := start(t, memory.New(), nil)
	n := b.Record("one", deployment.ActionDeploy, `{"a":1}`)
	c := b.open(t, "one", "", true)
	require.Equal(t, "text/event-stream", c.response.Header.Get("Content-Type"))
	require.Equal(t, "no-store", c.response.Header.Get("Cache-Control"))
	require.Equal(t, "no", c.response.Header.Get("X-Accel-Buffering"))

	snapshot := c.expect(t, "snapshot")
	var d deployment.Deployment
	require.NoError(t, json.Unmarshal([]byte(snapshot.data), &d))
	require.Equal(t, deployment.StateBuilding, d.State)
	require.JSONEq(t, `{"a":1}`, string(d.Configuration))
	require.Equal(t, "2.0.0", snapshot.id)

	b.Start("one", n)
	started := c.expect(t, "build")
	require.Equal(t, deployment.StatusRunning, started.build(t).Status)
	require.Equal(t, "3.1.0", started.id)

	b.Print("one", n, "first <line>\n")
	line := c.expect(t, "log")
	require.Equal(t, logText{1, 0, "first <line>\n"}, line.log(t))
	require.Equal(t, "3.1.13", line.id)
	require.Contains(t, line.data, "<line>")

	b.PrintAndEnd("one", n, "last line\n", deployment.StatusSucceeded)
	last := c.expect(t, "log")
	require.Equal(t, logText{1, 13, "last line\n"}, last.log(t))
	end := c.expect(t, "build")
	require.Equal(t, deployment.StatusSucceeded, end.build(t).Status)
	require.Equal(t, "4.1.23", end.id)
	state := c.expect(t, "state")
	require.Equal(t, deployment.StateActive, state.state(t))
	require.Equal(t, "5.1.23", state.id)
}

func TestWithoutTheLog(t *testing.T) {
	b := start(t, memory.New(), nil)
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	c := b.open(t, "one", "", false)
	require.Equal(t, "2", c.expect(t, "snapshot").id)
	b.Start("one", n)
	b.Print("one", n, "text\n")
	b.End("one", n, deployment.StatusFailed)
	require.Equal(t, "3", c.expect(t, "build").id)
	require.Equal(t, "4", c.expect(t, "build").id)
	e := c.expect(t, "state")
	require.Equal(t, "5", e.id)
	require.Equal(t, deployment.StateFailed, e.state(t))
}

func TestAFreshClientGetsTheLogOfTheRunningBuildFromItsStart(t *testing.T) {
	b := start(t, memory.New(), nil)
	first := b.Record("one", deployment.ActionDeploy, `{}`)
	b.Start("one", first)
	b.Print("one", first, "printed before\n")
	second := b.Record("one", deployment.ActionDeploy, `{}`)
	for range 2 { // the first opens the topic, the other finds it
		c := b.open(t, "one", "", true)
		c.expect(t, "snapshot")
		require.Equal(t, logText{first, 0, "printed before\n"}, c.expect(t, "log").log(t))
	}
	c := b.open(t, "one", "", true)
	c.expect(t, "snapshot")
	c.expect(t, "log")
	b.End("one", first, deployment.StatusSucceeded)
	require.Equal(t, first, c.expect(t, "build").build(t).Number)
	b.Start("one", second)
	require.Equal(t, second, c.expect(t, "build").build(t).Number)
	b.Print("one", second, "second\n")
	require.Equal(t, logText{second, 0, "second\n"}, c.expect(t, "log").log(t))
}

func TestResumeFromEveryEvent(t *testing.T) {
	b := start(t, memory.New(), nil)
	first := b.Record("one", deployment.ActionDeploy, `{}`)
	whole := b.open(t, "one", "", true)
	b.Start("one", first)
	whole.expect(t, "snapshot")
	whole.expect(t, "build")
	second := b.Record("one", deployment.ActionDeploy, `{}`)
	whole.expect(t, "build")
	var events []event
	for i := range 5 {
		b.Print("one", first, fmt.Sprintf("line %d\n", i))
		events = append(events, whole.expect(t, "log"))
	}
	b.End("one", first, deployment.StatusSucceeded)
	events = append(events, whole.expect(t, "build"))
	b.Start("one", second)
	events = append(events, whole.expect(t, "build"))
	b.PrintAndEnd("one", second, "only line\n", deployment.StatusFailed)
	events = append(events, whole.expect(t, "log"), whole.expect(t, "build"), whole.expect(t, "state"))

	for i, from := range events {
		c := b.open(t, "one", from.id, true)
		var text strings.Builder
		for _, want := range events[i+1:] {
			if want.kind != "log" {
				// The log may come in other pieces, but in this place.
				for {
					got, err := c.next()
					require.NoError(t, err)
					if got.kind == "log" {
						text.WriteString(got.log(t).Text)
						continue
					}
					require.Equal(t, want, got)
					break
				}
				require.Equal(t, textOf(t, events[i+1:], want), text.String())
			}
		}
	}
	// Without the log in the ID, as from a client that followed without it.
	c := b.open(t, "one", strings.Split(events[5].id, ".")[0], true)
	require.Equal(t, deployment.StatusRunning, c.expect(t, "build").build(t).Status)
	require.Equal(t, logText{second, 0, "only line\n"}, c.expect(t, "log").log(t))
	// And with it, from a client that wants no log any more.
	c = b.open(t, "one", events[3].id, false)
	require.Equal(t, "5", c.expect(t, "build").id)
}

// textOf is the log in events before one of them.
func textOf(t *testing.T, events []event, before event) string {
	var text strings.Builder
	for _, e := range events {
		if e == before {
			break
		}
		if e.kind == "log" {
			text.WriteString(e.log(t).Text)
		}
	}
	return text.String()
}

func TestReset(t *testing.T) {
	store := memory.New()
	store.Kept = 3
	b := start(t, store, nil)
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	b.Start("one", n)
	b.Print("one", n, "text\n")
	for i := range 5 {
		b.Change("one", n, fmt.Sprint(i))
	}
	// Sequences 6, 7 and 8 are kept.
	for _, last := range []string{
		"0", "4", "4.1.5", "9", "9223372036854775807", "9223372036854775808",
		"nonsense", "-1", "+5", "5 5", "05", "5.", "5.1", "5.1.2.3", "5.-1.0", "5..0", "5.1.x", "1e3", "٥",
		"7.2.0",       // no such build
		"7.1.6",       // the log is not that long
		"7.0000001.0", // not how a number is written
		strings.Repeat("9", 5000),
	} {
		c := b.open(t, "one", last, true)
		reset := c.expect(t, "reset")
		require.Empty(t, reset.id, last)
		require.True(t, json.Valid([]byte(reset.data)))
		snapshot := c.expect(t, "snapshot")
		require.Equal(t, "8.1.0", snapshot.id, last)
		require.Equal(t, logText{1, 0, "text\n"}, c.expect(t, "log").log(t))
	}
	for _, last := range []string{"5.1.5", "6.1.5", "8.1.5"} {
		c := b.open(t, "one", last, true)
		b.Print("one", n, "x")
		for {
			e, err := c.next()
			require.NoError(t, err)
			require.NotEqual(t, "reset", e.kind, last)
			if e.kind == "log" {
				require.EqualValues(t, 5, e.log(t).From)
				break
			}
		}
		b.Change("one", n, "") // the next ID must be kept too
		store.Kept++
	}
}

func TestAClientThatTheStoreLeftBehindIsReset(t *testing.T) {
	store := memory.New()
	store.Kept = 3
	b := start(t, store, func(c *channel.Config) { c.Poll = 10 * time.Millisecond })
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	c := b.open(t, "one", "", false)
	c.expect(t, "snapshot")
	b.Change("one", n, "seen")
	c.expect(t, "build")

	reads := b.Reads("Events")
	b.Fail(errors.New("away"))
	for i := range 10 {
		b.Change("one", n, fmt.Sprint(i))
	}
	require.Eventually(t, func() bool { return b.Reads("Events") > reads }, patience, time.Millisecond)
	b.Fail(nil)
	c.expect(t, "reset")
	require.Equal(t, "13", c.expect(t, "snapshot").id)
	b.Change("one", n, "after")
	require.Equal(t, "14", c.expect(t, "build").id)
}

func TestAStoreThatComesBackLosesNothing(t *testing.T) {
	b := start(t, memory.New(), nil)
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	c := b.open(t, "one", "", false)
	c.expect(t, "snapshot")
	b.Fail(errors.New("away"))
	b.Start("one", n)
	b.Fail(nil)
	require.Equal(t, deployment.StatusRunning, c.expect(t, "build").build(t).Status)
}

// deaf signals nothing.
type deaf struct{}

func (deaf) Subscribe(string) (<-chan struct{}, func()) { return nil, func() {} }

func TestALostNotificationCostsThePollOnly(t *testing.T) {
	b := start(t, memory.New(), func(c *channel.Config) { c.Listener, c.Poll = deaf{}, 5*time.Millisecond })
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	c := b.open(t, "one", "", true)
	c.expect(t, "snapshot")
	b.Start("one", n)
	c.expect(t, "build")
	b.Print("one", n, "text")
	c.expect(t, "log")
}

func TestPing(t *testing.T) {
	b := start(t, memory.New(), func(c *channel.Config) { c.Ping = 5 * time.Millisecond })
	b.Record("one", deployment.ActionDeploy, `{}`)
	c := b.open(t, "one", "", false)
	c.expect(t, "snapshot")
	require.Equal(t, "ping", c.expect(t, "").data)
	require.Equal(t, "ping", c.expect(t, "").data)
}

func TestTheTokenExpires(t *testing.T) {
	b := start(t, memory.New(), nil)
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	b.until = time.Now().Add(300 * time.Millisecond)
	c := b.open(t, "one", "", true)
	c.expect(t, "snapshot")
	b.Start("one", n)
	c.expect(t, "build")
	_, err := c.next()
	require.ErrorIs(t, err, io.EOF, "the stream is whole")
	require.False(t, time.Now().Before(b.until))
}

func TestTheHubEnds(t *testing.T) {
	b := start(t, memory.New(), nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	var clients []*client
	for range 5 {
		c := b.open(t, "one", "", true)
		c.expect(t, "snapshot")
		clients = append(clients, c)
	}
	b.stop()
	for _, c := range clients {
		_, err := c.next()
		require.ErrorIs(t, err, io.EOF)
	}
}

func TestATopicEndsWithItsLastClient(t *testing.T) {
	b := start(t, memory.New(), nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	first, second := b.open(t, "one", "", true), b.open(t, "one", "", true)
	first.expect(t, "snapshot")
	second.expect(t, "snapshot")
	one := func() bool { return b.Subscribers("one") == 1 }
	require.Eventually(t, one, patience, time.Millisecond)
	first.close()
	b.Change("one", 1, "x")
	second.expect(t, "build")
	require.True(t, one())
	second.close()
	require.Eventually(t, func() bool { return b.Subscribers("one") == 0 }, patience, time.Millisecond)
}

func TestUnknownDeploymentAndStoreAway(t *testing.T) {
	b := start(t, memory.New(), nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	for _, last := range []string{"", "1", "1.1.1", "nonsense"} {
		_, err := b.connect("two", last, true)
		require.ErrorContains(t, err, "404", last)
	}
	b.Fail(errors.New("away"))
	for _, last := range []string{"", "1", "1.1.1", "nonsense"} {
		_, err := b.connect("one", last, true)
		require.ErrorContains(t, err, "503", last)
	}
}

func TestHead(t *testing.T) {
	b := start(t, memory.New(), nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	response, err := http.Head(b.url + "/one")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
}

func TestClientsShareTheReads(t *testing.T) {
	b := start(t, memory.New(), nil)
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	const clients = 50
	var all []*client
	for range clients {
		c := b.open(t, "one", "", false)
		c.expect(t, "snapshot")
		all = append(all, c)
	}
	pass := func(reason string) {
		b.Change("one", n, reason)
		for _, c := range all {
			require.Equal(t, reason, c.expect(t, "build").build(t).Reason)
		}
	}
	pass("everybody has joined now")
	before := b.Reads("Events")
	const rounds = 5
	for i := range rounds {
		pass(fmt.Sprint(i))
	}
	// Each signal costs a read that finds the event, and one that finds no more.
	require.LessOrEqual(t, b.Reads("Events")-before, 2*rounds+2)
}

// stuck opens a channel and never reads from it.
func (b *bundle) stuck(t *testing.T, id string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(61<<10))
	_, err = io.WriteString(conn, "GET /"+id+"?log HTTP/1.1\r\nHost: test\r\n\r\n")
	require.NoError(t, err)
}

func TestNobodyWaitsForASlowClient(t *testing.T) {
	b := start(t, memory.New(), func(c *channel.Config) { c.Write = time.Hour })
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	b.Start("one", n)
	b.stuck(t, "one")
	c := b.open(t, "one", "", true)
	c.expect(t, "snapshot")
	// More than the buffers of a connection take.
	text := strings.Repeat(strings.Repeat("x", 1023)+"\n", 256)
	for printed, got := 0, 0; printed < 1<<20; {
		b.Print("one", n, text)
		for printed += len(text); got < printed; {
			got += len(c.expect(t, "log").log(t).Text)
		}
	}
	b.End("one", n, deployment.StatusSucceeded)
	c.expect(t, "build")
	c.expect(t, "state")
	require.Zero(t, b.dropped.Load())
}

func TestASlowClientIsDroppedAlone(t *testing.T) {
	b := start(t, memory.New(), func(c *channel.Config) { c.Write = time.Second })
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	b.Start("one", n)
	b.Print("one", n, strings.Repeat(strings.Repeat("x", 1023)+"\n", 1<<10))
	b.stuck(t, "one")
	require.Eventually(t, func() bool { return b.dropped.Load() == 1 }, patience, time.Millisecond)
	c := b.open(t, "one", "", true)
	c.expect(t, "snapshot")
	for got := 0; got < 1<<20; {
		got += len(c.expect(t, "log").log(t).Text)
	}
	require.EqualValues(t, 1, b.dropped.Load())
}

func TestTheLogIsCutBetweenRunes(t *testing.T) {
	b := start(t, memory.New(), nil)
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	b.Start("one", n)
	c := b.open(t, "one", "", true)
	c.expect(t, "snapshot")
	b.Print("one", n, "a\xe2\x82")
	require.Equal(t, "a", c.expect(t, "log").log(t).Text)
	b.Print("one", n, "\xac!")
	require.Equal(t, logText{1, 1, "€!"}, c.expect(t, "log").log(t))

	// Longer than one event, with runes over every boundary.
	text := strings.Repeat("€", 50_000)
	b.PrintAndEnd("one", n, text+"\xe2", deployment.StatusSucceeded)
	var got strings.Builder
	at := int64(5)
	for {
		e, err := c.next()
		require.NoError(t, err)
		if e.kind == "build" {
			break
		}
		l := e.log(t)
		require.Equal(t, at, l.From)
		at += int64(len(l.Text))
		got.WriteString(l.Text)
	}
	require.Equal(t, text+"\uFFFD", got.String())
}

// TestNoGapAndNoRepeat lets clients come, go and come back anywhere in the
// story of several builds, on two replicas, with a window that is too small for
// all of it.
func TestNoGapAndNoRepeat(t *testing.T) {
	store := memory.New()
	tune := func(c *channel.Config) { c.Window = 2000 }
	replicas := []*bundle{start(t, store, tune), start(t, store, tune)}
	const id, builds, lines = "one", 8, 40
	first := store.Record(id, deployment.ActionDeploy, `{}`)

	logs := map[int64]string{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := first; n < first+builds; n++ {
			store.Start(id, n)
			for i := range lines {
				text := fmt.Sprintf("build %d line %d %s\n", n, i, strings.Repeat("€", i))
				logs[n] += text
				if i == lines-1 {
					break
				}
				store.Print(id, n, text)
				if i == lines/2 && n+1 < first+builds {
					store.Record(id, deployment.ActionDeploy, `{}`)
				}
				if i%5 == 0 {
					time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
				}
			}
			last := fmt.Sprintf("build %d line %d %s\n", n, lines-1, strings.Repeat("€", lines-1))
			store.PrintAndEnd(id, n, last, deployment.StatusSucceeded)
		}
	}()

	var wait sync.WaitGroup
	failed := make(chan error, 100)
	for k := range 16 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if err := follow(replicas, id, builds, k%2 == 0, done, logs); err != nil {
				failed <- err
			}
		}()
	}
	wait.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
}

// follow reads a channel to the end of the last build, over many connections.
func follow(replicas []*bundle, id string, builds int, withLog bool, done <-chan struct{}, logs map[int64]string) error {
	var sequence int64
	last := ""
	text := map[int64]string{}
	for range 10_000 {
		c, err := replicas[rand.IntN(2)].connect(id, last, withLog)
		if err != nil {
			return err
		}
		for left := 1 + rand.IntN(30); left > 0; left-- {
			e, err := c.next()
			if err != nil {
				c.close()
				return err
			}
			switch e.kind {
			case "snapshot":
				if last != "" {
					return errors.New("a snapshot though the client resumed")
				}
				if _, err := fmt.Sscanf(e.id, "%d", &sequence); err != nil {
					return err
				}
			case "log":
				var l logText
				if err := json.Unmarshal([]byte(e.data), &l); err != nil {
					return err
				}
				if l.From != int64(len(text[l.Build])) {
					return fmt.Errorf("log of %d from %d, want %d, id %s after %s", l.Build, l.From, len(text[l.Build]), e.id, last)
				}
				text[l.Build] += l.Text
			case "build", "state":
				var n int64
				if _, err := fmt.Sscanf(e.id, "%d", &n); err != nil {
					return err
				}
				if n != sequence+1 {
					return fmt.Errorf("event %d after %d", n, sequence)
				}
				sequence = n
				var b deployment.Build
				if err := json.Unmarshal([]byte(e.data), &b); err != nil {
					return err
				}
				if e.kind == "build" && b.Status == deployment.StatusSucceeded && b.Number == int64(builds) {
					c.close()
					<-done // logs is whole
					for n, got := range text {
						if got != logs[n] {
							return fmt.Errorf("log of %d: %d bytes, want %d", n, len(got), len(logs[n]))
						}
					}
					if withLog && len(text) == 0 {
						return errors.New("no log at all")
					}
					return nil
				}
			default:
				return fmt.Errorf("unexpected %+v", e)
			}
			last = e.id
		}
		c.close()
	}
	return errors.New("the last build did not end")
}
