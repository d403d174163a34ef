package deployments

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/cmd/slipway/exit"
)

// fake is an API that answers as it is told: "GET /deployments/example" to a
// handler. What it is not told is a 404.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]http.HandlerFunc
	asked   []string // method, path and query of every request
	headers []http.Header
	bodies  []string
}

func newFake(t *testing.T) *fake {
	f := &fake{answers: map[string]http.HandlerFunc{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.RequestURI())
	f.headers = append(f.headers, r.Header)
	f.bodies = append(f.bodies, string(body))
	answer := f.answers[r.Method+" "+r.URL.Path]
	f.mu.Unlock()
	if answer == nil {
		answer = reply(404, `{"error":"not_found","message":"there is no such thing","requestId":"r-404"}`)
	}
	answer(w, r)
}

func (f *fake) on(call string, answer http.HandlerFunc) *fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[call] = answer
	return f
}

// requests that began with prefix.
func (f *fake) requests(prefix string) (found []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, asked := range f.asked {
		if strings.HasPrefix(asked, prefix) {
			found = append(found, asked)
		}
	}
	return found
}

func reply(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// serveLog serves a log of which there is only so much yet.
func serveLog(log string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var from int
		_, _ = fmt.Sscan(r.URL.Query().Get("from"), &from)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, log[min(from, len(log)):])
	}
}

// inTurn answers each request with the next handler, and with the last one for
// ever.
func inTurn(answers ...http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		answer := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		mu.Unlock()
		answer(w, r)
	}
}

// stream sends events and then breaks off, or holds the connection.
func stream(hold bool, events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.Join(events, ""))
		w.(http.Flusher).Flush()
		if hold {
			<-r.Context().Done()
		}
	}
}

func sse(id, kind, data string) string {
	return "id: " + id + "\nevent: " + kind + "\ndata: " + data + "\n\n"
}

const since = `"since":"2026-01-02T03:04:05Z"`

func standing(state, reason string) string {
	return fmt.Sprintf(`{"state":%q,"reason":%q,%s,"live":null}`, state, reason, since)
}

func build(number int, status, reason string) string {
	started := `"2026-01-02T03:04:05Z"`
	if status == "queued" || status == "superseded" {
		started = "null"
	}
	finished := "null"
	if status != "queued" && status != "running" {
		finished = `"2026-01-02T03:04:08.1Z"`
	}
	return fmt.Sprintf(`{"number":%d,"action":"deploy","status":%q,"reason":%q,"createdAt":"2026-01-02T03:04:04Z","startedAt":%s,"finishedAt":%s,"evaluation":"evaluated","workflowId":"submit/example/x"}`,
		number, status, reason, started, finished)
}

func deploymentJSON(state, reason, latest string) string {
	instance := func(kind, name, host string) string {
		if host == "" {
			return fmt.Sprintf(`{"name":%q,"title":"T","kind":%q,"domains":[],"url":null,"sections":[]}`, name, kind)
		}
		return fmt.Sprintf(`{"name":%q,"title":"T","kind":%q,"domains":[%q],"url":%q,"sections":[]}`, name, kind, host, "https://"+host)
	}
	submitted := instance("application", "backup", "") + "," + instance("application", "forum", "forum.example.org") + "," + instance("component", "status", "status.example.org")
	deployed := instance("application", "backup", "") + "," + instance("application", "forum", "old.example.org") + "," + instance("application", "wiki", "wiki.example.org")
	facts := `"domain":"example.org","method":"fleet","instances":{"submitted":[` + submitted + `],"deployed":[` + deployed + `]}`
	return fmt.Sprintf(`{"deploymentId":"example","state":%q,"reason":%q,%s,"live":null,`+facts+`,"nodes":[{"name":"web","names":["a.example.org","b.example.org"]}],"latestBuild":%s,"configuration":{"fleet":{}}}`,
		state, reason, since, latest)
}

func logEvent(id string, build, from int, text string) string {
	return sse(id, "log", fmt.Sprintf(`{"build":%d,"from":%d,"text":%q}`, build, from, text))
}

// invocation is a run of the command.
type invocation struct {
	env      map[string]string
	stdin    string
	outWidth int // 0: not a terminal
	errWidth int
	quiet    time.Duration
	repeat   time.Duration
	ctx      context.Context

	out, err output
}

// output may be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// run runs "slipway deployments" with the arguments against the API.
func (f *fake) run(t *testing.T, args ...string) (out, errOut string, err error) {
	t.Helper()
	i := &invocation{}
	err = i.run(t, f, args...)
	return i.out.String(), i.err.String(), err
}

func (i *invocation) run(t *testing.T, f *fake, args ...string) error {
	t.Helper()
	if i.env == nil {
		i.env = map[string]string{"SLIPWAY_TOKEN": "the-token"}
	}
	if f != nil {
		i.env["SLIPWAY_URL"] = f.URL
	}
	if i.quiet == 0 {
		i.quiet, i.repeat = time.Hour, time.Hour
	}
	if i.ctx == nil {
		i.ctx = t.Context()
	}
	cmd := exit.Strict(command(&cli{
		getenv: func(name string) string { return i.env[name] },
		terminal: func(w io.Writer) (int, bool) {
			width := i.outWidth
			if w == io.Writer(&i.err) {
				width = i.errWidth
			}
			return width, width > 0
		},
		quiet: i.quiet, repeat: i.repeat,
	}))
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(i.stdin))
	cmd.SetOut(&i.out)
	cmd.SetErr(&i.err)
	return cmd.ExecuteContext(i.ctx)
}

var elapsedAtStart = regexp.MustCompile(`(?m)^ *\d+\.\ds  `)

// steps is what a follow printed, without the times.
func steps(out string) string { return elapsedAtStart.ReplaceAllString(out, "") }
