package deployments

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway/exit"
)

const submitted = `{"deploymentId":"example","build":1,"evaluation":"evaluated","nodes":[{"name":"web","names":["a.example.org"]},{"name":"db","names":[]}]}`

// submitting is an API that takes a submit as build 1, whose channel and log
// the test gives.
func submitting(t *testing.T, channel http.HandlerFunc, log, endState string) *fake {
	return newFake(t).
		on("PUT /deployments/example", reply(202, submitted)).
		on("GET /deployments/example/events", channel).
		on("GET /deployments/example/builds/1/log", serveLog(log)).
		on("GET /deployments/example", reply(200, endState))
}

func (i *invocation) submit(t *testing.T, f *fake, args ...string) error {
	i.stdin = `{"fleet": {}}`
	return i.run(t, f, append([]string{"submit", "example", "-f", "-", "--follow"}, args...)...)
}

func TestSubmitFollowTellsTheStory(t *testing.T) {
	f := submitting(t, stream(true,
		sse("1.0.0", "snapshot", deploymentJSON("building", "build 1 is queued", build(1, "queued", ""))),
		sse("2.1.0", "build", build(1, "running", "")),
		sse("3.1.0", "state", standing("building", "build 1 runs")),
		logEvent("3.1.24", 1, 0, "activating web …\nactiv"),
		logEvent("3.1.33", 1, 24, "ating db\n"),
		sse("4.1.33", "state", standing("active", "")),
		sse("5.1.33", "build", build(1, "succeeded", "")),
	), "activating web …\nactivating db\n", deploymentJSON("active", "", build(1, "succeeded", "")))
	var i invocation
	require.NoError(t, i.submit(t, f))
	require.Equal(t, `submitted example, build 1 (evaluated: 2 nodes)
building: build 1 is queued
building: build 1 runs
  | activating web …
  | activating db
build 1 succeeded
active
`, steps(i.out.String()))
	require.Empty(t, i.err.String())
	require.Regexp(t, `^  \d\.\ds  submitted`, i.out.String())
	require.Regexp(t, `\n  \d\.\ds    \| activating web`, i.out.String())
	require.Equal(t, []string{"GET /deployments/example/events?log=true"}, f.requests("GET /deployments/example/events"))
}

func TestSubmitFollowEndsWithTheOutcomeOfItsBuild(t *testing.T) {
	for name, test := range map[string]struct {
		status, reason, state, stateReason string
		code                               int
		out, err                           string
	}{
		"failed": {"failed", "exit code 3\nno space left", "failed", "build 1 failed: exit code 3", 1,
			"build 1 failed: exit code 3\n          no space left\nfailed\n",
			"build 1 of example failed: exit code 3 / no space left\nits log: slipway deployments logs example -b 1"},
		"cancelled": {"cancelled", "", "failed", "build 1 cancelled", 3,
			"build 1 cancelled\nfailed\n", "build 1 of example was cancelled"},
		"superseded": {"superseded", "by build 2", "building", "build 2 runs", 3,
			"build 1 superseded: by build 2\nbuilding: build 2 runs\n", "build 1 of example was superseded: by build 2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := submitting(t, stream(true,
				sse("1.0.0", "snapshot", deploymentJSON("building", "build 1 is queued", build(1, "queued", ""))),
				sse("2.0.0", "build", build(2, "succeeded", "another build is not ours")),
				sse("3.0.0", "build", build(1, test.status, test.reason)),
			), "", deploymentJSON(test.state, test.stateReason, "null"))
			var i invocation
			err := i.submit(t, f)
			require.EqualError(t, err, test.err)
			require.Equal(t, test.code, exit.Code(err))
			require.Equal(t, "submitted example, build 1 (evaluated: 2 nodes)\nbuilding: build 1 is queued\n"+test.out, steps(i.out.String()))
		})
	}
}

func TestSubmitFollowThatComesTooLateStillTellsAll(t *testing.T) {
	for name, snapshot := range map[string]string{
		"the build has ended":  deploymentJSON("active", "", build(1, "succeeded", "")),
		"there is a newer one": deploymentJSON("active", "", build(2, "succeeded", "")),
	} {
		t.Run(name, func(t *testing.T) {
			f := submitting(t, stream(true, sse("9.0.0", "snapshot", snapshot)), "all of\nthe log", snapshot).
				on("GET /deployments/example/builds/1", reply(200, build(1, "succeeded", "")))
			var i invocation
			require.NoError(t, i.submit(t, f))
			require.Equal(t, "submitted example, build 1 (evaluated: 2 nodes)\n  | all of\n  | the log\nbuild 1 succeeded\nactive\n", steps(i.out.String()))
		})
	}
}

func TestSubmitFollowSurvivesADroppedStream(t *testing.T) {
	const log = "one\ntwo\nthree\nfour\nfive\n"
	var resumed []string
	channel := inTurn(
		stream(false,
			sse("1.1.0", "snapshot", deploymentJSON("building", "build 1 runs", build(1, "running", ""))),
			logEvent("1.1.4", 1, 0, "one\n")),
		reply(503, `{"error":"service_unavailable","message":"starting"}`),
		// A hole, and then a repeat: the contract has neither, the story copes.
		stream(false, logEvent("1.1.14", 1, 8, "three\n")),
		stream(false, sse("1.1.99", "reset", `{}`), sse("5.1.0", "snapshot", deploymentJSON("building", "build 1 runs", build(1, "running", "")))),
		stream(true, logEvent("5.1.19", 1, 4, "two\nthree\nfour\n"), sse("6.1.24", "build", build(1, "succeeded", ""))),
	)
	f := submitting(t, func(w http.ResponseWriter, r *http.Request) {
		resumed = append(resumed, r.Header.Get("Last-Event-ID"))
		channel(w, r)
	}, log, deploymentJSON("active", "", "null"))
	var i invocation
	require.NoError(t, i.submit(t, f))
	require.Equal(t, `submitted example, build 1 (evaluated: 2 nodes)
building: build 1 runs
  | one
  | two
  | three
  | four
  | five
build 1 succeeded
active
`, steps(i.out.String()))
	require.Equal(t, []string{"", "1.1.4", "1.1.4", "1.1.14", "5.1.0"}, resumed)
}

func TestSubmitFollowAsJSON(t *testing.T) {
	f := submitting(t, stream(true,
		sse("1.0.0", "snapshot", deploymentJSON("building", "build 1 is queued", build(1, "queued", ""))),
		sse("2.1.0", "build", build(1, "running", "")),
		logEvent("2.1.6", 1, 0, "half a"),
		logEvent("2.1.12", 1, 6, " line\n"),
		sse("3.1.12", "build", build(1, "failed", "exit code 1")),
	), "half a line\n", deploymentJSON("failed", "build 1 failed: exit code 1", "null"))
	var i invocation
	err := i.submit(t, f, "-o", "json")
	require.Equal(t, 1, exit.Code(err))

	type step struct {
		Time    time.Time
		Elapsed *float64
		Event   string
		Data    map[string]any
	}
	var events []string
	var log string
	scanner := bufio.NewScanner(strings.NewReader(i.out.String()))
	for scanner.Scan() {
		var s step
		require.NoError(t, json.Unmarshal(scanner.Bytes(), &s), scanner.Text())
		require.WithinDuration(t, time.Now(), s.Time, time.Minute)
		require.NotNil(t, s.Elapsed)
		switch s.Event {
		case "build":
			events = append(events, "build "+s.Data["status"].(string))
			require.NotContains(t, s.Data, "configuration")
		case "state":
			events = append(events, "state "+s.Data["state"].(string))
		case "log":
			log += s.Data["text"].(string)
		default:
			events = append(events, s.Event)
			require.EqualValues(t, 1, s.Data["build"])
		}
	}
	require.Equal(t, []string{"submit", "state building", "build running", "build failed", "state failed"}, events)
	require.Equal(t, "half a line\n", log)
}

// until waits for text in an output.
func until(t *testing.T, o *output, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(o.String(), text) }, 10*time.Second, 5*time.Millisecond, "waiting for %q", text)
}

func TestAnInterruptLeavesTheBuild(t *testing.T) {
	f := submitting(t, stream(true,
		sse("1.1.0", "snapshot", deploymentJSON("building", "build 1 runs", build(1, "running", ""))),
		logEvent("1.1.4", 1, 0, "half"),
	), "", "")
	ctx, interrupt := context.WithCancel(t.Context())
	i := invocation{ctx: ctx}
	ended := make(chan error, 1)
	go func() { ended <- i.submit(t, f) }()
	until(t, &i.out, "build 1 runs")
	interrupt()
	err := <-ended
	require.Equal(t, 130, exit.Code(err))
	require.EqualError(t, err, "interrupted\nbuild 1 goes on; look at it with: slipway deployments show example\nor follow its log with: slipway deployments logs example -b 1 -f")
	require.Empty(t, f.requests("POST"), "nothing is cancelled")
}

func TestTimeoutEndsAFollow(t *testing.T) {
	f := submitting(t, stream(true, sse("1.1.0", "snapshot", deploymentJSON("building", "build 1 runs", build(1, "running", "")))), "", "")
	var i invocation
	err := i.submit(t, f, "--timeout", "1s")
	require.Equal(t, 5, exit.Code(err))
	require.ErrorContains(t, err, "stopped after 1s (--timeout)\nbuild 1 goes on")
}

func TestAFollowThatIsRefusedSaysThatTheBuildGoesOn(t *testing.T) {
	f := submitting(t, reply(403, `{"error":"forbidden","message":"the token may not read","requestId":"r-1"}`), "", "")
	var i invocation
	err := i.submit(t, f)
	require.Equal(t, 4, exit.Code(err))
	require.ErrorContains(t, err, "the token may not read (forbidden)\n  request r-1\nbuild 1 goes on")
}

func TestAStateThatCannotBeReadIsNotAnError(t *testing.T) {
	f := submitting(t, stream(true, sse("1.1.0", "snapshot", deploymentJSON("active", "", build(1, "succeeded", "")))), "log\n", "").
		on("GET /deployments/example", reply(503, `{"error":"service_unavailable","message":"away"}`)).
		on("GET /deployments/example/builds/1/log", reply(503, `{"error":"service_unavailable","message":"away"}`))
	var i invocation
	require.NoError(t, i.submit(t, f))
	require.Contains(t, i.err.String(), "the end of the log may be missing here: away")
	require.Contains(t, i.err.String(), "the state cannot be read: away")
}

func TestProgressOnATerminalIsDrawnOver(t *testing.T) {
	release := make(chan struct{})
	f := submitting(t, func(w http.ResponseWriter, r *http.Request) {
		stream(false, sse("1.0.0", "snapshot", deploymentJSON("building", "build 4 waits for build 3", build(1, "queued", ""))))(w, r)
		<-release
		stream(true, sse("2.0.0", "build", build(1, "superseded", "")))(w, r)
	}, "", deploymentJSON("active", "", "null"))
	i := invocation{quiet: 20 * time.Millisecond, repeat: time.Hour, errWidth: 40}
	ended := make(chan error, 1)
	go func() { ended <- i.submit(t, f) }()
	until(t, &i.err, "waiting: build 4 waits")
	close(release)
	require.Equal(t, 3, exit.Code(<-ended))
	text := i.err.String()
	require.True(t, strings.HasSuffix(text, "\r\x1b[K"), "it is erased at the end: %q", text)
	for _, drawn := range strings.Split(text, "\r\x1b[K") {
		require.LessOrEqual(t, len([]rune(drawn)), 39)
		require.NotContains(t, drawn, "\n")
	}
	require.NotContains(t, i.out.String(), "waiting:")
}

func TestProgressElsewhereIsALineNowAndThen(t *testing.T) {
	release := make(chan struct{})
	f := newFake(t).on("POST /deployments/example/preview", func(w http.ResponseWriter, r *http.Request) {
		<-release
		reply(200, `{"nodes":[]}`)(w, r)
	})
	i := invocation{quiet: time.Millisecond, repeat: 100 * time.Millisecond, stdin: `{}`}
	begun, ended := time.Now(), make(chan error, 1)
	go func() { ended <- i.run(t, f, "preview", "example", "-f", "-") }()
	const line = "s  waiting: the configuration is checked and evaluated\n"
	require.Eventually(t, func() bool { return strings.Count(i.err.String(), line) >= 3 }, 10*time.Second, time.Millisecond)
	close(release)
	require.NoError(t, <-ended)
	require.LessOrEqual(t, strings.Count(i.err.String(), "\n"), int(time.Since(begun)/i.repeat), "never more often than it should be")
	require.Equal(t, "example is accepted: 0 nodes\n", i.out.String())
}

func TestProgressTellsOfTrouble(t *testing.T) {
	f := submitting(t, stream(true, sse("1.1.0", "snapshot", deploymentJSON("active", "", build(1, "succeeded", "")))), "", deploymentJSON("active", "", "null")).
		on("PUT /deployments/example", inTurn(
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", "1")
				reply(503, `{"error":"service_unavailable","message":"PostgreSQL is away"}`)(w, r)
			},
			reply(202, submitted)))
	i := invocation{quiet: time.Hour, repeat: 40 * time.Millisecond}
	require.NoError(t, i.submit(t, f))
	require.Contains(t, i.err.String(), "s  PostgreSQL is away (503 service_unavailable); next try in 1.0s\n")
	require.Len(t, f.requests("PUT"), 2)
}

func TestDestroyFollow(t *testing.T) {
	f := newFake(t).
		on("DELETE /deployments/example", reply(202, `{"deploymentId":"example","build":2,"callback":"none"}`)).
		on("GET /deployments/example/events", stream(true,
			sse("1.0.0", "snapshot", deploymentJSON("destroying", "build 2 runs", build(2, "running", ""))),
			sse("2.2.0", "build", build(2, "succeeded", "")))).
		on("GET /deployments/example/builds/2/log", serveLog("removing web\n")).
		on("GET /deployments/example", reply(200, deploymentJSON("idle", "", "null")))
	out, errOut, err := f.run(t, "destroy", "example", "--follow")
	require.NoError(t, err)
	require.Empty(t, errOut)
	require.Equal(t, "destroying example, build 2\ndestroying: build 2 runs\n  | removing web\nbuild 2 succeeded\nidle\n", steps(out))
}
