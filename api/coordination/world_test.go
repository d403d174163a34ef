package coordination

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

var errAway = errors.New("connection refused")

// world is a cluster with the group bloodraven/orders, its database orders-app
// and the client application/deploy, and leases by the real rules.
type world struct {
	t       *testing.T
	handler *Handler
	log     bytes.Buffer
	metrics *prometheus.Registry
	// calls are the names of the calls of the interfaces, in order.
	calls []string

	mutex     sync.Mutex
	now       time.Time
	leading   func() bool
	users     map[string]string // by token
	databases []lease.Database
	groups    map[string]lease.Group // by namespace/name
	records   map[string]lease.Record
	// away are the calls that fail.
	away map[string]error
	// answers are given in place of what the rules say, by call.
	answers map[string]wire.LeaseAnswer
	grants  []wire.GrantRequest
	panics  bool
}

const (
	deploy = "token-of-deploy"
	other  = "token-of-other"
)

func stableGroup(namespace, name string) lease.Group {
	return lease.Group{
		Namespace: namespace, Name: name, UID: namespace + name, Sites: []string{"iad", "pdx"}, ActiveSite: "iad", Generation: 17,
		ObservedTopology: lease.Annotation{Present: true, Value: "iad@17"},
		Conditions:       []lease.Condition{{Type: "Ready", Status: "True"}},
		SiteStatuses:     []lease.SiteStatus{{Name: "iad", State: "writable"}, {Name: "pdx", State: "read-only", Replicating: true}},
	}
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, now: start, leading: func() bool { return true }, metrics: prometheus.NewRegistry(),
		users: map[string]string{
			deploy: "system:serviceaccount:application:deploy", other: "system:serviceaccount:other:deploy",
			"token-of-admin": "kubernetes-admin", "token-of-nobody": "system:serviceaccount:application:", "token-of-Upper": "system:serviceaccount:Application:deploy",
		},
		databases: []lease.Database{{
			Namespace: "bloodraven", Name: "orders-app", Group: "orders",
			Clients: []lease.Client{{Namespace: "application", ServiceAccount: "deploy"}},
		}},
		groups:  map[string]lease.Group{"bloodraven/orders": stableGroup("bloodraven", "orders")},
		records: map[string]lease.Record{}, away: map[string]error{}, answers: map[string]wire.LeaseAnswer{},
	}
	var err error
	w.handler, err = NewHandler(Config{
		Cluster: w, Leases: leases{w}, Workflows: workflows{w}, Leading: func() bool { return w.leading() }, Audience: "bloodraven-deploy",
		Now: func() time.Time { return w.now }, Log: NewLogger(&w.log), Registerer: w.metrics,
	})
	require.NoError(t, err)
	return w
}

func (w *world) called(name string) error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.calls = append(w.calls, name)
	if w.panics {
		panic("a bug")
	}
	return w.away[name]
}

func (w *world) Review(_ context.Context, token, audience string) (string, bool, error) {
	require.Equal(w.t, "bloodraven-deploy", audience)
	user, ok := w.users[token]
	return user, ok, w.called("review")
}

func (w *world) Databases(ctx context.Context) ([]lease.Database, error) {
	deadline, bounded := ctx.Deadline()
	require.True(w.t, bounded)
	require.LessOrEqual(w.t, time.Until(deadline), 10*time.Second)
	return w.databases, w.called("databases")
}

func (w *world) Group(_ context.Context, namespace, name string) (lease.Group, error) {
	err := w.called("group")
	group, ok := w.groups[namespace+"/"+name]
	if !ok && err == nil {
		err = errors.New("there is no such group")
	}
	return group, err
}

// places of a lease: the mutex and the object of the operation.
func (w *world) places(g lease.Group, kind lease.Kind, operation string) (mutex, own *lease.Record) {
	find := func(name string) *lease.Record {
		if r, ok := w.records[g.Namespace+"/"+name]; ok {
			return &r
		}
		return nil
	}
	return find(lease.MutexName(g.Name)), find(lease.OperationName(g.Name, kind, operation))
}

func (w *world) put(g lease.Group, r lease.Record) {
	name := lease.MutexName(g.Name)
	if r.Kind == lease.KindHold {
		name = lease.OperationName(g.Name, r.Kind, r.OperationID)
	}
	w.records[g.Namespace+"/"+name] = r
}

func (w *world) record(kind lease.Kind, operation string) *lease.Record {
	mutex, own := w.places(w.groups["bloodraven/orders"], kind, operation)
	if kind == lease.KindMigration {
		return mutex
	}
	return own
}

type leases struct{ *world }

func (l leases) Observe(_ context.Context, g lease.Group) (lease.Observation, *wire.LeaseAnswer, error) {
	err := l.called("observe")
	if reason := g.ReadGate(); reason != "" {
		return lease.Observation{}, &wire.LeaseAnswer{Verdict: lease.Verdict{Kind: lease.VerdictUnstable, Reason: reason}}, err
	}
	var records []lease.Record
	for _, r := range l.records {
		records = append(records, r)
	}
	return lease.Observe(l.now, g, records), nil, err
}

func (l leases) Consider(_ context.Context, g lease.Group, kind lease.Kind, holder lease.Holder) (wire.LeaseAnswer, error) {
	err := l.called("consider")
	mutex, own := l.places(g, kind, holder.OperationID)
	return l.or("consider", lease.DecideGrant(l.now, g, mutex, own, kind, holder)), err
}

func (l leases) Renew(_ context.Context, g lease.Group, ref wire.LeaseRef, caller lease.Caller, tokenHash string, ttl time.Duration) (wire.LeaseAnswer, error) {
	err := l.called("renew")
	mutex, own := l.places(g, ref.Kind, ref.OperationID)
	answer := l.or("renew", lease.DecideRenew(l.now, g, mutex, own, ref.Kind, ref.OperationID, caller, tokenHash))
	if answer.Kind == lease.VerdictRenew && err == nil {
		record := *l.world.record(ref.Kind, ref.OperationID)
		record.ExpiresAt = l.now.Add(ttl)
		answer.ExpiresAt = record.ExpiresAt
		l.put(g, record)
	}
	return answer, err
}

func (l leases) Peek(_ context.Context, g lease.Group, ref wire.LeaseRef, request wire.ReleaseRequest) (wire.LeaseAnswer, error) {
	err := l.called("peek")
	mutex, own := l.places(g, ref.Kind, ref.OperationID)
	return l.or("peek", lease.DecideRelease(l.now, g, mutex, own, ref.Kind, ref.OperationID, request.Caller, request.TokenHash)), err
}

func (l leases) Release(_ context.Context, g lease.Group, ref wire.LeaseRef, request wire.ReleaseRequest) (wire.LeaseAnswer, error) {
	return l.release("release directly", g, ref, request)
}

func (w *world) release(name string, g lease.Group, ref wire.LeaseRef, request wire.ReleaseRequest) (wire.LeaseAnswer, error) {
	if err := w.called(name); err != nil {
		return wire.LeaseAnswer{}, err
	}
	mutex, own := w.places(g, ref.Kind, ref.OperationID)
	answer := w.or(name, lease.DecideRelease(w.now, g, mutex, own, ref.Kind, ref.OperationID, request.Caller, request.TokenHash))
	if answer.Kind == lease.VerdictRelease {
		record := *w.record(ref.Kind, ref.OperationID)
		record.State = lease.StateReleased
		w.put(g, record)
	}
	return answer, nil
}

type workflows struct{ *world }

func (w workflows) Grant(_ context.Context, ref wire.LeaseRef, request wire.GrantRequest) (wire.LeaseAnswer, error) {
	if err := w.called("grant"); err != nil {
		return wire.LeaseAnswer{}, err
	}
	w.grants = append(w.grants, request)
	g := w.groups[ref.Namespace+"/"+ref.Group]
	mutex, own := w.places(g, ref.Kind, ref.OperationID)
	answer := w.or("grant", lease.DecideGrant(w.now, g, mutex, own, ref.Kind, request.Holder))
	if answer.Kind == lease.VerdictGrant || answer.Kind == lease.VerdictRenew {
		answer.ExpiresAt = w.now.Add(request.TTL)
		w.put(g, lease.Record{
			Kind: ref.Kind, OperationID: ref.OperationID, Instance: request.Holder.Instance, Namespace: request.Holder.Namespace,
			ServiceAccount: request.Holder.ServiceAccount, ExpiresAt: answer.ExpiresAt, CreatedAt: w.now, TopologyGeneration: g.Generation,
			TokenHash: request.TokenHash, State: lease.StateActive,
		})
	}
	return answer, nil
}

func (w workflows) Release(ctx context.Context, ref wire.LeaseRef, request wire.ReleaseRequest) (wire.LeaseAnswer, error) {
	deadline, bounded := ctx.Deadline()
	require.True(w.t, bounded)
	require.LessOrEqual(w.t, time.Until(deadline), releaseTimeout)
	return w.world.release("release", w.groups[ref.Namespace+"/"+ref.Group], ref, request)
}

func (w *world) or(name string, verdict lease.Verdict) wire.LeaseAnswer {
	if answer, ok := w.answers[name]; ok {
		return answer
	}
	return wire.LeaseAnswer{Verdict: verdict}
}

const (
	group     = "/deploy/v1/groups/orders"
	grants    = group + "/leases"
	migration = grants + "/migration/op-1"
	hold      = grants + "/failover-hold/op-1"

	grantMigration = `{"kind":"migration","operationId":"op-1","instance":"orders-app","ttlSeconds":30}`
	grantHold      = `{"kind":"failover-hold","operationId":"op-1","instance":"orders-app","ttlSeconds":30}`
)

// ask makes a request of the client application/deploy; headers are pairs, and
// one that is given replaces the default.
func (w *world) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+deploy)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Del(headers[i])
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	return w.serve(r)
}

func (w *world) serve(r *http.Request) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, r)
	header := recorder.Header()
	require.Equal(w.t, "application/json", header.Get("Content-Type"))
	require.Equal(w.t, "no-store", header.Get("Cache-Control"))
	return recorder
}

// granted grants a lease and returns its token.
func (w *world) granted(body string) string {
	answer := w.ask(http.MethodPost, grants, body)
	require.Contains(w.t, []int{http.StatusOK, http.StatusCreated}, answer.Code, answer.Body)
	var granted struct{ Token string }
	require.NoError(w.t, json.Unmarshal(answer.Body.Bytes(), &granted))
	require.Regexp(w.t, "^[0-9a-f]{64}$", granted.Token)
	w.calls = nil
	return granted.Token
}

// revoke revokes the migration as Leases does it: tombstone, then mutex.
func (w *world) revoke(reason lease.Reason) {
	r := *w.record(lease.KindMigration, "")
	r.State, r.Reason = lease.StateRevoked, reason
	w.records["bloodraven/"+lease.OperationName("orders", r.Kind, r.OperationID)] = r
	w.records["bloodraven/"+lease.MutexName("orders")] = r
}

func (w *world) change(change func(*lease.Group)) {
	g := w.groups["bloodraven/orders"]
	change(&g)
	w.groups["bloodraven/orders"] = g
}
