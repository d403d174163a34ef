package rolling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/cmd/slipway-dev/kube"
)

// load is what clients do during the roll.
type load struct {
	t *testing.T
	*world
	// phase is what is rolled now, for messages.
	phase atomic.Pointer[string]
	// over is closed when no client shall begin anything new.
	over chan struct{}
	// requests is how many there were, again how many of them a second time, by
	// phase and reason.
	requests atomic.Int64
	// evaluations is how many submits of evaluated there were.
	evaluations atomic.Int64
	mu          sync.Mutex
	again       map[string]int
	// slowest is how long the slowest request of a method took, and when.
	slowest map[string]string
	longest map[string]time.Duration
}

func (l *load) now(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.phase.Store(&text)
}

func (l *load) ended() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// rest waits, or less when the load is over.
func (l *load) rest(d time.Duration) {
	select {
	case <-l.over:
	case <-time.After(d):
	}
}

// refused is an answer that is not what was asked for.
type refused struct {
	status     int
	body       string
	retryAfter time.Duration
}

func (r *refused) Error() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// passes reports whether the answer says that another try may do.
func (r *refused) passes() bool {
	return r.status >= 500 || r.status == http.StatusTooManyRequests || strings.Contains(r.body, `"submit_in_progress"`)
}

// leaderless reports whether the answer says that nobody leads yet.
func (r *refused) leaderless() bool {
	return r.status == http.StatusServiceUnavailable && strings.Contains(r.body, `"not_leader"`)
}

// onceMore is when a client tries again that has not been told.
const onceMore = time.Second

// twice tries something, and once more after a failure that may pass. That
// nobody leads yet is no failure of the second: where the machine has much to do
// it takes as long as the one that let go still answers. It reports the failure,
// and whether it succeeded.
func (l *load) twice(what string, try func() error) bool {
	l.requests.Add(1)
	phase, at := *l.phase.Load(), time.Now()
	first := try()
	method := strings.Fields(what)[0]
	l.note(method, phase, time.Since(at))
	if first == nil {
		return true
	}
	took := time.Since(at)
	for last := first; ; {
		answer, answered := errors.AsType[*refused](last)
		if answered && !answer.passes() {
			l.t.Errorf("%s, %q: %v", what, phase, last)
			return false
		}
		l.mu.Lock()
		l.again[fmt.Sprintf("%s: %s: %v", phase, method, last)]++
		l.mu.Unlock()
		wait := onceMore
		if answered && answer.retryAfter > 0 {
			wait = answer.retryAfter
		}
		time.Sleep(wait)
		if last = try(); last == nil {
			return true
		}
		answer, answered = errors.AsType[*refused](last)
		if !answered || !answer.leaderless() || time.Since(at) > drain {
			l.t.Errorf("%s failed twice:\n\tat %s, %q, after %s: %v\n\tagain %s later, %q: %v", what,
				at.Format("15:04:05.000"), phase, took, first, time.Since(at)-took, *l.phase.Load(), last)
			return false
		}
	}
}

// note notes the slowest.
func (l *load) note(method, phase string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if took > l.longest[method] {
		l.longest[method], l.slowest[method] = took, phase
	}
}

// request is one of HTTP.
type request struct {
	client              *http.Client
	method, url, bearer string
	header              http.Header
	body                string
	want                []int // statuses
}

func (l *load) request(ctx context.Context, q request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, q.method, q.url, strings.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	for name, values := range q.header {
		r.Header[name] = values
	}
	r.Header.Set("Authorization", "Bearer "+q.bearer)
	if q.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := q.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	for _, status := range q.want {
		if response.StatusCode == status {
			return text, nil
		}
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return nil, &refused{response.StatusCode, string(text), time.Duration(seconds) * time.Second}
}

// caller is a client of the deployments API with connections of its own.
type caller struct {
	*load
	http  *http.Client
	token string
}

// caller keeps its connections or makes one for each request.
func (l *load) caller(keep bool) *caller {
	return &caller{l, &http.Client{Transport: &http.Transport{DisableKeepAlives: !keep, MaxIdleConnsPerHost: 2}}, l.Token(issuer.Claims{})}
}

func (c *caller) url(path string) string { return "http://" + c.deployments.address() + path }

// ask sends a request, at most twice, and decodes its JSON into an object.
func (c *caller) ask(method, path, body string, header http.Header, into any, want ...int) bool {
	return c.twice(method+" "+path, func() error {
		text, err := c.request(c.t.Context(), request{c.http, method, c.url(path), c.token, header, body, want})
		if err != nil || into == nil {
			return err
		}
		return json.Unmarshal(text, into)
	})
}

// reads lists and shows until the load is over.
func (c *caller) reads(ids []string) {
	for i := 0; !c.ended(); i++ {
		c.ask(http.MethodGet, "/deployments?id="+strings.Join(ids, "&id="), "", nil, nil, http.StatusOK)
		c.ask(http.MethodGet, "/deployments/"+ids[i%len(ids)], "", nil, nil, http.StatusOK)
		c.rest(100 * time.Millisecond)
	}
}

// submit submits the n-th configuration of a deployment, of these members, and
// returns its build, or 0 where it failed.
func (c *caller) submit(id string, n int, members string) int64 {
	var answer struct {
		Build int64 `json:"build"`
	}
	body := fmt.Sprintf(`{"configuration":{"test":{"domain":"example.org","note":%d,%s}}}`, n, members)
	header := http.Header{"Idempotency-Key": {fmt.Sprintf("%s-%d", id, n)}}
	c.ask(http.MethodPut, "/deployments/"+id, body, header, &answer, http.StatusAccepted)
	return answer.Build
}

// until polls a build until its status is one of these, and returns it.
func (c *caller) until(id string, build int64, statuses ...string) string {
	var answer struct {
		Status string `json:"status"`
	}
	for deadline := time.Now().Add(time.Minute); build != 0; time.Sleep(100 * time.Millisecond) {
		if !c.ask(http.MethodGet, fmt.Sprintf("/deployments/%s/builds/%d", id, build), "", nil, &answer, http.StatusOK) {
			return ""
		}
		for _, status := range statuses {
			if answer.Status == status {
				return status
			}
		}
		if time.Now().After(deadline) {
			c.t.Errorf("build %s/%d is %s after a minute", id, build, answer.Status)
			return answer.Status
		}
	}
	return ""
}

var ends = []string{"succeeded", "failed", "cancelled", "superseded"}

// finished reports a build that did not succeed.
func (c *caller) finished(id string, build int64) {
	if status := c.until(id, build, ends...); build != 0 && status != "succeeded" {
		c.t.Errorf("build %s/%d: %s", id, build, status)
	}
}

// submits deploys one build after the other until the load is over; with queue
// the next one waits for its turn while one runs.
func (c *caller) submits(id, members string, queue bool) {
	n := 2
	build := c.submit(id, n, members)
	for !c.ended() && !c.t.Failed() {
		if queue {
			c.until(id, build, append(ends, "running")...)
		} else {
			c.finished(id, build)
		}
		n++
		next := c.submit(id, n, members)
		if queue {
			c.finished(id, build)
		}
		build = next
	}
	c.finished(id, build)
}

// migrator is a client of the deployment coordination API.
type migrator struct {
	*load
	http         *http.Client
	group, token string
}

// migrator is for a group of its own.
func (l *load) migrator(keep bool) *migrator {
	namespace := l.kube.Namespace(l.t)
	l.kube.Group(l.t, namespace, namespace)
	account := l.kube.ServiceAccount(l.t, namespace, "deploy")
	l.kube.Database(l.t, namespace, "orders-app", namespace, account)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: !keep, TLSClientConfig: l.roots(), ForceAttemptHTTP2: keep, MaxIdleConnsPerHost: 2,
	}}
	return &migrator{l, client, namespace, l.kube.ServiceAccountToken(l.t, namespace, "deploy", kube.Audience)}
}

func (m *migrator) ask(method, path, body string, header http.Header, into any, want ...int) bool {
	return m.twice(method+" "+path, func() error {
		text, err := m.request(m.t.Context(), request{m.http, method, "https://" + m.leases.address() + "/deploy/v1/groups/" + m.group + path,
			m.token, header, body, want})
		if err != nil || into == nil {
			return err
		}
		return json.Unmarshal(text, into)
	})
}

// grant takes the migration lease and returns its token.
func (m *migrator) grant(operation string) string {
	var answer struct {
		Token string `json:"token"`
	}
	// 200 for the second try of one that was granted without an answer.
	m.ask(http.MethodPost, "/leases", fmt.Sprintf(`{"kind":"migration","operationId":%q,"instance":"orders-app","ttlSeconds":15}`, operation),
		nil, &answer, http.StatusCreated, http.StatusOK)
	return answer.Token
}

// renews keeps one lease until the load is over.
func (m *migrator) renews() {
	token := m.grant("renewed")
	for !m.ended() {
		m.ask(http.MethodPut, "/leases/migration/renewed", fmt.Sprintf(`{"token":%q,"ttlSeconds":15}`, token), nil, nil, http.StatusOK)
		m.ask(http.MethodGet, "", "", nil, nil, http.StatusOK)
		m.rest(100 * time.Millisecond)
	}
}

// takes takes and gives back leases until the load is over.
func (m *migrator) takes() {
	for n := 0; !m.ended(); n++ {
		operation := fmt.Sprintf("taken-%d", n)
		token := m.grant(operation)
		if token == "" {
			return
		}
		// 404 for the second try of one that was released without an answer.
		m.ask(http.MethodDelete, "/leases/migration/"+operation, "", http.Header{"X-Lease-Token": {token}}, nil, http.StatusNoContent, http.StatusNotFound)
		m.rest(100 * time.Millisecond)
	}
}
