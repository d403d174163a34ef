package coordination

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

func TestGroup(t *testing.T) {
	w := newWorld(t)
	require.JSONEq(t, `{"group":"orders","namespace":"bloodraven","activeSite":"iad","topologyGeneration":17,
		"health":{"ready":true,"degradedReason":"","replicationRunning":true,"replicationLagSeconds":0,"recoveryPending":false},
		"operations":{"plannedFailover":{"phase":"","reason":""},"updatePhase":"","restoreInPlace":"","dragonflyUpgrade":""},
		"stable":true,"unstableReason":"","leases":[]}`, w.ask(http.MethodGet, group, "").Body.String())

	w.granted(grantMigration)
	w.granted(grantHold)
	answer := w.ask(http.MethodGet, group+"?anything=1", "")
	require.Equal(t, 200, answer.Code)
	var observed struct{ Leases json.RawMessage }
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &observed))
	require.JSONEq(t, `[
		{"kind":"migration","operationId":"op-1","instance":"orders-app","expiresAt":"2026-11-30T12:00:30Z","topologyGeneration":17},
		{"kind":"failover-hold","operationId":"op-1","instance":"orders-app","expiresAt":"2026-11-30T12:00:30Z","topologyGeneration":17}]`, string(observed.Leases))

	w.change(func(g *lease.Group) { g.ActiveSite = "pdx" })
	answer = w.ask(http.MethodGet, group, "")
	require.Equal(t, 423, answer.Code)
	require.Equal(t, `{"error":"unstable","reason":"TopologyPersistencePending","retryAfterSeconds":1}`, answer.Body.String())
}

func TestGrant(t *testing.T) {
	theirs := lease.Record{
		Kind: lease.KindMigration, OperationID: "op-2", Instance: "orders-jobs", Namespace: "jobs", ServiceAccount: "deploy", TokenHash: lease.HashToken("x"),
		ExpiresAt: start.Add(time.Minute), CreatedAt: start, TopologyGeneration: 17, State: lease.StateActive,
	}
	stale := theirs
	stale.TopologyGeneration = 16
	for name, test := range map[string]struct {
		setup  func(*world)
		body   string
		status int
		// answer is the body; that of a success follows from its status.
		answer string
		// started says whether the workflow of the lease was asked.
		started bool
	}{
		"new":   {nil, grantMigration, 201, "", true},
		"again": {func(w *world) { w.granted(grantMigration) }, grantMigration, 200, "", true},
		"after it expired": {func(w *world) {
			w.granted(grantMigration)
			w.now = start.Add(31 * time.Second)
		}, grantMigration, 201, "", true},
		"hold":       {func(w *world) { w.granted(grantMigration) }, grantHold, 201, "", true},
		"hold again": {func(w *world) { w.granted(grantMigration); w.granted(grantHold) }, grantHold, 200, "", true},
		"members in another order, with space": {nil, "\t{ \"ttlSeconds\" : 30,\r\n\"instance\":\"orders-app\", \"operationId\":\"op\\u002d1\",\"kind\":\"migration\" } ",
			201, "", true},
		"held": {func(w *world) { w.put(w.groups["bloodraven/orders"], theirs) }, grantMigration, 409,
			`{"error":"held","holder":{"operationId":"op-2","instance":"orders-jobs","expiresAt":"2026-11-30T12:01:00Z"}}`, false},
		"revoked": {func(w *world) { w.granted(grantMigration); w.revoke(lease.ReasonOperatorRevoked) }, grantMigration, 409,
			`{"error":"revoked","reason":"operator_revoked","topologyGeneration":17}`, false},
		"unstable": {func(w *world) { w.change(func(g *lease.Group) { g.UpdatePhase = "Rolling" }) }, grantMigration, 423,
			`{"error":"unstable","reason":"OrderedUpdate","retryAfterSeconds":1}`, false},
		"hold without migration": {nil, grantHold, 403, `{"error":"forbidden"}`, false},
		"hold beside the migration of another": {func(w *world) { w.put(w.groups["bloodraven/orders"], theirs) }, grantHold, 403,
			`{"error":"forbidden"}`, false},
		"something to sweep away first": {func(w *world) { w.put(w.groups["bloodraven/orders"], stale) }, grantMigration, 423,
			`{"error":"unstable","reason":"DeploymentRevocationPending","retryAfterSeconds":1}`, true},
		"taken after it was considered": {func(w *world) {
			w.answers["grant"] = wire.LeaseAnswer{Verdict: lease.Verdict{Kind: lease.VerdictHeld, Holder: &lease.View{OperationID: "op-3", Instance: "i", ExpiresAt: start}}}
		}, grantMigration, 409, `{"error":"held","holder":{"operationId":"op-3","instance":"i","expiresAt":"2026-11-30T12:00:00Z"}}`, true},
		"cannot be considered": {func(w *world) { w.away["consider"] = errAway }, grantMigration, 503, `{"error":"unavailable"}`, false},
		"Temporal is away":     {func(w *world) { w.away["grant"] = errAway }, grantMigration, 503, `{"error":"unavailable"}`, true},
		"another leads": {func(w *world) {
			w.away["grant"] = temporal.NewNonRetryableApplicationError("no", wire.ErrorNotLeader, nil)
		}, grantMigration, 503, `{"error":"not_leader"}`, true},
		"broken object": {func(w *world) {
			w.away["grant"] = temporal.NewNonRetryableApplicationError("look at it", wire.ErrorBrokenLease, nil)
		}, grantMigration, 503, `{"error":"unavailable"}`, true},
		"nonsense of a workflow": {func(w *world) { w.answers["grant"] = wire.LeaseAnswer{} }, grantMigration, 503, `{"error":"unavailable"}`, true},
		"no randomness":          {func(w *world) { w.handler.Random = strings.NewReader("short") }, grantMigration, 503, `{"error":"unavailable"}`, false},
		"a bug":                  {func(w *world) { w.panics = true }, grantMigration, 503, `{"error":"unavailable"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if test.setup != nil {
				test.setup(w)
			}
			w.calls, w.grants = nil, nil
			answer := w.ask(http.MethodPost, grants, test.body)
			require.Equal(t, test.status, answer.Code, answer.Body)
			require.Equal(t, test.started, slices.Contains(w.calls, "grant"))
			if test.answer != "" {
				require.Equal(t, test.answer, answer.Body.String())
				return
			}
			var granted map[string]any
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &granted))
			token, _ := granted["token"].(string)
			require.Regexp(t, "^[0-9a-f]{64}$", token)
			kind := lease.KindMigration
			if test.body == grantHold {
				kind = lease.KindHold
			}
			require.Equal(t, map[string]any{
				"kind": string(kind), "operationId": "op-1", "token": token, "topologyGeneration": 17.0,
				"expiresAt": w.now.Add(30 * time.Second).Format(time.RFC3339Nano),
			}, granted)
			require.Equal(t, []wire.GrantRequest{{
				Holder:    lease.Holder{OperationID: "op-1", Instance: "orders-app", Namespace: "application", ServiceAccount: "deploy"},
				TokenHash: lease.HashToken(token), TTL: 30 * time.Second,
			}}, w.grants)
		})
	}
}

func TestGrantClampsTheTTL(t *testing.T) {
	for ttl, want := range map[string]time.Duration{"-7": 5 * time.Second, "4": 5 * time.Second, "120": 2 * time.Minute, "99999999999999999999": 2 * time.Minute} {
		w := newWorld(t)
		token := w.granted(strings.Replace(grantMigration, "30", ttl, 1))
		require.Equal(t, want, w.grants[0].TTL)
		w.now = start.Add(time.Second)
		require.Equal(t, 200, w.ask(http.MethodPut, migration, `{"token":"`+token+`","ttlSeconds":`+ttl+`}`).Code)
		require.Equal(t, w.now.Add(want), w.record(lease.KindMigration, "").ExpiresAt)
	}
}

func TestGrantRotatesTheToken(t *testing.T) {
	w := newWorld(t)
	first, second := w.granted(grantMigration), w.granted(grantMigration)
	require.NotEqual(t, first, second)
	require.Equal(t, 403, w.ask(http.MethodPut, migration, `{"token":"`+first+`","ttlSeconds":30}`).Code)
	require.Equal(t, 200, w.ask(http.MethodPut, migration, `{"token":"`+second+`","ttlSeconds":30}`).Code)
}

func TestRenew(t *testing.T) {
	for name, test := range map[string]struct {
		setup  func(*world)
		token  string // "" for that of the lease
		status int
		answer string
	}{
		"held":              {nil, "", 200, `{"expiresAt":"2026-11-30T12:00:40Z","topologyGeneration":17}`},
		"wrong token":       {nil, "x", 403, `{"error":"token_mismatch"}`},
		"not there":         {func(w *world) { clear(w.records) }, "x", 404, `{"error":"not_found"}`},
		"expired":           {func(w *world) { w.now = start.Add(31 * time.Second) }, "", 404, `{"error":"not_found"}`},
		"expired, mismatch": {func(w *world) { w.now = start.Add(31 * time.Second) }, "x", 403, `{"error":"token_mismatch"}`},
		"revoked":           {func(w *world) { w.revoke(lease.ReasonTopologyChanged) }, "", 409, `{"error":"revoked","reason":"topology_changed","topologyGeneration":17}`},
		"revoked, mismatch": {func(w *world) { w.revoke(lease.ReasonTopologyChanged) }, "x", 403, `{"error":"token_mismatch"}`},
		"topology pending": {func(w *world) { w.change(func(g *lease.Group) { g.ActiveSite = "pdx" }) }, "", 423,
			`{"error":"unstable","reason":"TopologyPersistencePending","retryAfterSeconds":1}`},
		"not stable": {func(w *world) { w.change(func(g *lease.Group) { g.UpdatePhase = "Rolling" }) }, "", 200,
			`{"expiresAt":"2026-11-30T12:00:40Z","topologyGeneration":17}`},
		"of another caller": {func(w *world) {
			w.databases[0].Clients = append(w.databases[0].Clients, lease.Client{Namespace: "other", ServiceAccount: "deploy"})
			w.users[deploy] = w.users[other]
			w.handler.callers = newCallers(time.Now)
		}, "", 403, `{"error":"token_mismatch"}`},
		"API server away": {func(w *world) { w.away["renew"] = errAway }, "", 503, `{"error":"unavailable"}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			token := w.granted(grantMigration)
			w.now = start.Add(10 * time.Second)
			if test.setup != nil {
				test.setup(w)
			}
			if test.token != "" {
				token = test.token
			}
			before := w.record(lease.KindMigration, "")
			answer := w.ask(http.MethodPut, migration, `{"token":"`+token+`","ttlSeconds":30}`)
			require.Equal(t, test.status, answer.Code, answer.Body)
			require.Equal(t, test.answer, answer.Body.String())
			if test.status != 200 {
				require.Equal(t, before, w.record(lease.KindMigration, ""), "extends nothing")
			}
			require.NotContains(t, w.calls, "grant", "no workflow is asked")
			require.NotContains(t, w.calls, "release")
		})
	}
}

func TestRelease(t *testing.T) {
	released := []string{"databases", "group", "peek"}
	byWorkflow := append(released[:3:3], "release")
	directly := append(byWorkflow[:4:4], "release directly")
	for name, test := range map[string]struct {
		setup  func(*world)
		tokens []string // nil for that of the lease
		status int
		answer string
		calls  []string
	}{
		"held":        {nil, nil, 204, "", byWorkflow},
		"wrong token": {nil, []string{"x"}, 403, `{"error":"token_mismatch"}`, released},
		"no token":    {nil, []string{""}, 403, `{"error":"token_mismatch"}`, released},
		"two tokens":  {nil, []string{"x", "y"}, 403, `{"error":"token_mismatch"}`, released},
		"not there":   {func(w *world) { clear(w.records) }, []string{""}, 204, "", released},
		"other lease": {func(w *world) {
			r := w.record(lease.KindMigration, "")
			r.OperationID = "op-2"
			w.put(w.groups["bloodraven/orders"], *r)
		}, nil, 204, "", released},
		"expired":      {func(w *world) { w.now = start.Add(31 * time.Second) }, nil, 204, "", released},
		"expired, bad": {func(w *world) { w.now = start.Add(31 * time.Second) }, []string{"x"}, 403, `{"error":"token_mismatch"}`, released},
		"released": {func(w *world) {
			r := w.record(lease.KindMigration, "")
			r.State = lease.StateReleased
			w.put(w.groups["bloodraven/orders"], *r)
		}, nil, 204, "", released},
		"revoked":      {func(w *world) { w.revoke(lease.ReasonOperatorRevoked) }, nil, 204, "", released},
		"revoked, bad": {func(w *world) { w.revoke(lease.ReasonOperatorRevoked) }, []string{"x"}, 403, `{"error":"token_mismatch"}`, released},
		"to be revoked": {func(w *world) {
			w.change(func(g *lease.Group) { g.Generation, g.ObservedTopology.Value = 18, "iad@18" })
		}, nil, 204, "", byWorkflow},
		"topology pending": {func(w *world) { w.change(func(g *lease.Group) { g.ActiveSite = "pdx" }) }, nil, 204, "", byWorkflow},
		"Temporal is away": {func(w *world) { w.away["release"] = errAway }, nil, 204, "", directly},
		"workflow stuck":   {func(w *world) { w.away["release"] = context.DeadlineExceeded }, nil, 204, "", directly},
		"step failed": {func(w *world) {
			w.away["release"] = temporal.NewNonRetryableApplicationError("no", wire.ErrorUnavailable, nil)
		}, nil, 204, "", directly},
		"all away":        {func(w *world) { w.away["release"], w.away["release directly"] = errAway, errAway }, nil, 503, `{"error":"unavailable"}`, directly},
		"API server away": {func(w *world) { w.away["peek"] = errAway }, nil, 503, `{"error":"unavailable"}`, released},
		"rotated meanwhile": {func(w *world) {
			w.answers["release"] = wire.LeaseAnswer{Verdict: lease.Verdict{Kind: lease.VerdictTokenMismatch}}
		}, nil, 403, `{"error":"token_mismatch"}`, byWorkflow},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tokens := []string{w.granted(grantMigration)}
			if test.setup != nil {
				test.setup(w)
			}
			if test.tokens != nil {
				tokens = test.tokens
			}
			var headers []string
			for _, token := range tokens {
				headers = append(headers, "X-Lease-Token", token)
			}
			answer := w.ask(http.MethodDelete, migration, "", headers...)
			require.Equal(t, test.status, answer.Code, answer.Body)
			require.Equal(t, test.answer, answer.Body.String())
			calls := slices.DeleteFunc(w.calls, func(call string) bool { return call == "review" })
			require.Equal(t, test.calls, calls)
		})
	}
}

// A hold outlives the migration that it was granted beside.
func TestHoldWithoutMigration(t *testing.T) {
	w := newWorld(t)
	mutex, token := w.granted(grantMigration), w.granted(grantHold)
	require.Equal(t, 204, w.ask(http.MethodDelete, migration, "", "X-Lease-Token", mutex).Code)
	require.Equal(t, 200, w.ask(http.MethodPut, hold, `{"token":"`+token+`","ttlSeconds":30}`).Code)
	require.Equal(t, 204, w.ask(http.MethodDelete, hold, "", "X-Lease-Token", token).Code)
	require.Equal(t, 403, w.ask(http.MethodPost, grants, grantHold).Code)
}

// A client that left is no failure: its connection is broken off, and nothing is
// logged but the request.
func TestClientGone(t *testing.T) {
	w := newWorld(t)
	w.away["databases"] = context.Canceled
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, group, nil)
	r.Header.Set("Authorization", "Bearer "+deploy)
	recorder := httptest.NewRecorder()
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { w.handler.ServeHTTP(recorder, r) })
	require.Empty(t, recorder.Body.String())
	require.Equal(t, 1, bytes.Count(w.log.Bytes(), []byte("\n")))
	require.Contains(t, w.log.String(), `"status":499`)

	// What was done is answered, should somebody still hear it.
	delete(w.away, "databases")
	recorder = httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, r)
	require.Equal(t, 200, recorder.Code)
}

func TestConfigHasToBeComplete(t *testing.T) {
	good := newWorld(t).handler.Config
	for name, change := range map[string]func(*Config){
		"cluster": func(c *Config) { c.Cluster = nil }, "leases": func(c *Config) { c.Leases = nil }, "workflows": func(c *Config) { c.Workflows = nil },
		"leading": func(c *Config) { c.Leading = nil }, "audience": func(c *Config) { c.Audience = "" }, "log": func(c *Config) { c.Log = nil },
		"registerer": func(c *Config) { c.Registerer = nil }, "metrics twice": func(*Config) {},
	} {
		c := good
		change(&c)
		_, err := NewHandler(c)
		require.Error(t, err, name)
	}
	require.Error(t, refusalOf(lease.Verdict{Kind: lease.VerdictHeld}), "a holder is needed")
	var r *refusal
	require.False(t, errors.As(refusalOf(lease.Verdict{Kind: lease.VerdictHeld}), &r))
}
