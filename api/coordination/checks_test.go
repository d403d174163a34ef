package coordination

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/lease"
)

// The checks in their order: each request fails the check of its row and every
// later one that it can, and nothing has been asked that comes after it.
func TestOrderOfChecks(t *testing.T) {
	const nobody = "Basic x"
	for name, test := range map[string]struct {
		setup                    func(*world)
		method, path, body, auth string
		status                   int
		answer                   string
		calls                    []string
	}{
		"not the leader": {
			func(w *world) { w.leading = func() bool { return false } }, "BREW", "/nowhere", "x", nobody,
			503, `{"error":"not_leader"}`, nil},
		"token before route": {nil, "BREW", "/nowhere", "x", nobody, 401, `{"error":"unauthorized"}`, nil},
		"token before method": {
			nil, "BREW", group, "x", "Bearer wrong", 401, `{"error":"unauthorized"}`, []string{"review"}},
		"token that cannot be reviewed, before route": {
			func(w *world) { w.away["review"] = errAway }, "BREW", "/nowhere", "x", "Bearer wrong",
			503, `{"error":"unavailable"}`, []string{"review"}},
		"route": {
			func(w *world) { w.away["databases"] = errAway }, "PUT", "/deploy/v1/groups/Orders/leases/x/y", "x", "",
			404, `{"error":"not_found"}`, []string{"review"}},
		"method before values": {
			func(w *world) { w.away["databases"] = errAway }, "POST", grants + "/nonsense/%00", "x", "",
			405, `{"error":"method_not_allowed"}`, []string{"review"}},
		"values before caller": {
			func(w *world) { w.databases = nil }, "PUT", grants + "/nonsense/op-1", "x", "",
			400, `{"error":"invalid_request"}`, []string{"review"}},
		"body of a POST before caller": {
			func(w *world) { w.databases = nil }, "POST", grants, "x", "",
			400, `{"error":"invalid_request"}`, []string{"review"}},
		"size of a POST before caller": {
			func(w *world) { w.databases = nil }, "POST", grants, strings.Repeat("x", 4097), "",
			413, `{"error":"request_too_large"}`, []string{"review"}},
		"caller before group and body": {
			func(w *world) { w.databases = nil; w.groups = nil }, "PUT", migration, "x", "",
			403, `{"error":"forbidden"}`, []string{"review", "databases"}},
		"databases that cannot be listed": {
			func(w *world) { w.away["databases"] = errAway }, "GET", group, "", "",
			503, `{"error":"unavailable"}`, []string{"review", "databases"}},
		"group before the body of a PUT": {
			func(w *world) { w.groups = nil }, "PUT", migration, "x", "",
			503, `{"error":"unavailable"}`, []string{"review", "databases", "group"}},
		"leader again before the body of a PUT": {
			func(w *world) {
				asked := 0
				w.leading = func() bool { asked++; return asked == 1 }
			}, "PUT", migration, "x", "",
			503, `{"error":"not_leader"}`, []string{"review", "databases", "group"}},
		"body of a PUT": {
			nil, "PUT", migration, "x", "", 400, `{"error":"invalid_request"}`, []string{"review", "databases", "group"}},
		"size of a PUT": {
			nil, "PUT", migration, strings.Repeat(" ", 4097), "", 413, `{"error":"request_too_large"}`, []string{"review", "databases", "group"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if test.setup != nil {
				test.setup(w)
			}
			if test.auth == "" {
				test.auth = "Bearer " + deploy
			}
			answer := w.ask(test.method, test.path, test.body, "Authorization", test.auth)
			require.Equal(t, test.status, answer.Code)
			require.Equal(t, test.answer, answer.Body.String())
			require.Equal(t, test.calls, w.calls)
			if test.status == http.StatusUnauthorized {
				require.Equal(t, "Bearer", answer.Header().Get("WWW-Authenticate"))
			}
			// The next request comes by another connection, to the leader.
			leads := !strings.Contains(test.answer, "not_leader")
			require.Equal(t, leads, answer.Header().Get("Connection") != "close")
			require.Equal(t, leads, answer.Header().Get("Retry-After") != "2")
		})
	}
}

func TestToken(t *testing.T) {
	longest := strings.Repeat("t", 16384)
	for name, test := range map[string]struct {
		headers []string
		status  int
	}{
		"as usual":             {[]string{"Bearer " + deploy}, 200},
		"lower case":           {[]string{"bearer " + deploy}, 200},
		"upper case":           {[]string{"BEARER " + deploy}, 200},
		"two spaces":           {[]string{"Bearer  " + deploy}, 200},
		"spaces around":        {[]string{" Bearer " + deploy + " "}, 200},
		"16,384 bytes":         {[]string{"Bearer " + longest}, 200},
		"16,385 bytes":         {[]string{"Bearer " + longest + "t"}, 401},
		"none":                 {nil, 401},
		"empty":                {[]string{""}, 401},
		"scheme alone":         {[]string{"Bearer"}, 401},
		"scheme and space":     {[]string{"Bearer "}, 401},
		"token alone":          {[]string{deploy}, 401},
		"Basic":                {[]string{"Basic " + deploy}, 401},
		"no space":             {[]string{"Bearer" + deploy}, 401},
		"colon":                {[]string{"Bearer: " + deploy}, 401},
		"two tokens":           {[]string{"Bearer " + deploy + " " + deploy}, 401},
		"list":                 {[]string{"Bearer " + deploy + ", Bearer " + deploy}, 401},
		"two headers":          {[]string{"Bearer " + deploy, "Bearer " + deploy}, 401},
		"two, one good":        {[]string{"Bearer " + deploy, "Basic x"}, 401},
		"not known":            {[]string{"Bearer wrong"}, 401},
		"a person":             {[]string{"Bearer token-of-admin"}, 401},
		"account without name": {[]string{"Bearer token-of-nobody"}, 401},
		"no valid namespace":   {[]string{"Bearer token-of-Upper"}, 401},
		"account of another":   {[]string{"Bearer " + other}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.users[longest] = w.users[deploy]
			r := httptest.NewRequest(http.MethodGet, group, nil)
			r.Header["Authorization"] = test.headers
			answer := w.serve(r)
			require.Equal(t, test.status, answer.Code, answer.Body)
			if test.status == 401 {
				require.Equal(t, `{"error":"unauthorized"}`, answer.Body.String())
				require.Empty(t, w.handler.callers.known, "only successes are remembered")
			}
		})
	}
}

func TestTokenIsReviewedOnceIn15Seconds(t *testing.T) {
	w := newWorld(t)
	reviews := func() int {
		w.calls = nil
		require.Equal(t, 200, w.ask(http.MethodGet, group, "").Code)
		return len(slices.DeleteFunc(w.calls, func(call string) bool { return call != "review" }))
	}
	require.Equal(t, 1, reviews())
	require.Equal(t, 0, reviews())
	w.now = start.Add(14 * time.Second)
	w.away["review"] = errAway
	require.Equal(t, 0, reviews())
	delete(w.away, "review")
	w.now = start.Add(15 * time.Second)
	require.Equal(t, 1, reviews())
	w.now = w.now.Add(-time.Hour)
	require.Equal(t, 1, reviews(), "a clock set back makes nothing valid for longer")

	w.databases[0].Clients = nil
	require.Equal(t, 403, w.ask(http.MethodGet, group, "").Code, "authorization is not remembered")
}

// Who may: every call asks the databases as they are, and answers 403 without
// having looked at the group.
func TestAuthorization(t *testing.T) {
	client := []lease.Client{{Namespace: "application", ServiceAccount: "deploy"}}
	app := lease.Database{Namespace: "bloodraven", Name: "orders-app", Group: "orders", Clients: client}
	jobs := lease.Database{Namespace: "bloodraven", Name: "orders-jobs", Group: "orders", Clients: client}
	staging := lease.Database{Namespace: "staging", Name: "orders-app", Group: "orders", Clients: client}
	web := lease.Database{Namespace: "staging", Name: "orders-web", Group: "orders", Clients: client}
	deleted := app
	deleted.Deleting = true
	undeclared := app
	undeclared.Clients = nil
	elsewhere := app
	elsewhere.Group = "users"
	for name, test := range map[string]struct {
		databases []lease.Database
		// get and grant are the statuses of the two.
		get, grant int
		namespace  string
	}{
		"declared":                           {[]lease.Database{app}, 200, 201, "bloodraven"},
		"two databases of a group":           {[]lease.Database{app, jobs}, 200, 201, "bloodraven"},
		"another instance":                   {[]lease.Database{jobs}, 200, 403, ""},
		"none":                               {nil, 403, 403, ""},
		"being deleted":                      {[]lease.Database{deleted}, 403, 403, ""},
		"not declared":                       {[]lease.Database{undeclared}, 403, 403, ""},
		"another group":                      {[]lease.Database{elsewhere}, 403, 403, ""},
		"same group in two namespaces":       {[]lease.Database{app, staging}, 403, 403, ""},
		"two namespaces, told by instance":   {[]lease.Database{app, web}, 403, 201, "bloodraven"},
		"two namespaces, one deleted":        {[]lease.Database{deleted, staging}, 200, 201, "staging"},
		"two namespaces, one being declared": {[]lease.Database{undeclared, staging}, 200, 201, "staging"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.databases = test.databases
			w.groups["staging/orders"] = stableGroup("staging", "orders")
			get := w.ask(http.MethodGet, group, "")
			require.Equal(t, test.get, get.Code)
			if test.get == 200 && test.namespace != "" {
				require.Contains(t, get.Body.String(), `"namespace":"`+test.namespace+`"`)
			}
			for method, body := range map[string]string{http.MethodPut: `{"token":"x","ttlSeconds":30}`, http.MethodDelete: ""} {
				answer := w.ask(method, migration, body)
				require.Equal(t, test.get == 403, answer.Code == 403 && answer.Body.String() == `{"error":"forbidden"}`, method)
			}
			if test.get == 403 {
				require.NotContains(t, w.calls, "group")
			}
			w.calls = nil
			grant := w.ask(http.MethodPost, grants, grantMigration)
			require.Equal(t, test.grant, grant.Code, grant.Body)
			if test.grant == 403 {
				require.Equal(t, `{"error":"forbidden"}`, grant.Body.String())
				require.NotContains(t, w.calls, "group")
				return
			}
			require.Contains(t, w.records, test.namespace+"/"+lease.MutexName("orders"))
		})
	}
}

// A group that the caller may not ask about looks like one that does not exist.
func TestForbiddenTellsNothing(t *testing.T) {
	w := newWorld(t)
	exists := w.ask(http.MethodGet, group, "", "Authorization", "Bearer "+other)
	missing := w.ask(http.MethodGet, "/deploy/v1/groups/nothing", "", "Authorization", "Bearer "+other)
	require.Equal(t, exists.Code, missing.Code)
	require.Equal(t, exists.Body.String(), missing.Body.String())
	require.Equal(t, exists.Header(), missing.Header())
}

func TestBadBodies(t *testing.T) {
	w := newWorld(t)
	renewal := `{"token":"x","ttlSeconds":30}`
	for method, good := range map[string]string{http.MethodPost: grantMigration, http.MethodPut: renewal} {
		path := map[string]string{http.MethodPost: grants, http.MethodPut: migration}[method]
		for name, body := range badBodies(good) {
			answer := w.ask(method, path, body)
			require.Equal(t, 400, answer.Code, "%s %s: %s", method, name, body)
			require.Equal(t, `{"error":"invalid_request"}`, answer.Body.String())
		}
	}
	for member, values := range map[string][]string{
		"kind":        {`"Migration"`, `"hold"`, `""`, `7`, `null`, `["migration"]`, `"migration "`},
		"operationId": {`""`, `7`, `null`, `"a\u0000"`, `"a\n"`, `"\u007f"`, `"` + strings.Repeat("a", 129) + `"`, `"` + strings.Repeat("ä", 65) + `"`},
		"instance":    {`""`, `7`, `null`, `"Orders-App"`, `"orders_app"`, `"-orders"`, `"a/b"`, `"` + strings.Repeat("a", 254) + `"`},
	} {
		for _, value := range append(values, "") {
			body := map[string]json.RawMessage{"kind": []byte(`"migration"`), "operationId": []byte(`"op-1"`), "instance": []byte(`"orders-app"`), "ttlSeconds": []byte("30")}
			if body[member] = json.RawMessage(value); value == "" {
				delete(body, member)
			}
			text, err := json.Marshal(body)
			require.NoError(t, err)
			require.Equal(t, 400, w.ask(http.MethodPost, grants, string(text)).Code, "%s", text)
		}
	}
	for _, body := range []string{`{"ttlSeconds":30}`, `{"token":7,"ttlSeconds":30}`, `{"token":null,"ttlSeconds":30}`, `{"token":"x","ttlSeconds":30,"instance":"orders-app"}`} {
		require.Equal(t, 400, w.ask(http.MethodPut, migration, body).Code, body)
	}
	require.Empty(t, w.records)
	require.NotContains(t, w.calls, "consider")
	require.NotContains(t, w.calls, "renew")
}

func TestSizeOfBody(t *testing.T) {
	pad := func(body string, size int) string { return body + strings.Repeat(" ", size-len(body)) }
	w := newWorld(t)
	require.Equal(t, 201, w.ask(http.MethodPost, grants, pad(grantMigration, 4096)).Code)
	require.Equal(t, 413, w.ask(http.MethodPost, grants, pad(grantMigration, 4097)).Code)
	require.Equal(t, 404, w.ask(http.MethodPut, grants+"/migration/none", pad(`{"token":"x","ttlSeconds":30}`, 4096)).Code)
	answer := w.ask(http.MethodPut, migration, pad(`{"token":"x","ttlSeconds":30}`, 4097))
	require.Equal(t, 413, answer.Code)
	require.Equal(t, `{"error":"request_too_large"}`, answer.Body.String())

	chunked := httptest.NewRequest(http.MethodPost, grants, struct{ *strings.Reader }{strings.NewReader(pad(grantMigration, 4097))})
	chunked.ContentLength = -1
	chunked.Header.Set("Authorization", "Bearer "+deploy)
	require.Equal(t, 413, w.serve(chunked).Code)

	broken := httptest.NewRequest(http.MethodPost, grants, brokenBody{})
	broken.Header.Set("Authorization", "Bearer "+deploy)
	require.Equal(t, 400, w.serve(broken).Code)
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestOperations(t *testing.T) {
	for name, operation := range map[string]string{
		"UUID": "11111111-1111-4111-8111-111111111111", "slashes": "a/b//c/", "spaces": " a b ", "dots": "..", "percent": "%2F", "query": "a?b#c",
		"other scripts": "выпуск-7", "emoji": "🚢", "128 bytes": strings.Repeat("a", 128), "128 bytes of UTF-8": strings.Repeat("ä", 64),
		"not valid HTML": "<&>\u2028", "plus": "a+b", "quotes": `"\'`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			body, err := json.Marshal(map[string]any{"kind": "migration", "operationId": operation, "instance": "orders-app", "ttlSeconds": 30})
			require.NoError(t, err)
			token := w.granted(string(body))
			path := grants + "/migration/" + url.PathEscape(operation)
			if operation == ".." {
				path = grants + "/migration/.."
			}
			require.Equal(t, 200, w.ask(http.MethodPut, path, `{"token":"`+token+`","ttlSeconds":30}`).Code)
			require.Equal(t, 204, w.ask(http.MethodDelete, path, "", "X-Lease-Token", token).Code)
			require.Equal(t, lease.StateReleased, w.record(lease.KindMigration, operation).State)
			var got struct{ OperationID string }
			grant := w.ask(http.MethodPost, grants, string(body))
			require.NoError(t, json.Unmarshal(grant.Body.Bytes(), &got))
			require.Equal(t, operation, got.OperationID)
		})
	}
	for name, escaped := range map[string]string{
		"129 bytes": strings.Repeat("a", 129), "129 bytes of UTF-8": strings.Repeat("%c3%a4", 64) + "a", "NUL": "a%00", "newline": "a%0a", "delete": "%7f",
		"C1 control": "%c2%85", "not UTF-8": "%ff", "surrogate": "%ed%a0%80",
	} {
		w := newWorld(t)
		for method, body := range map[string]string{http.MethodPut: `{"token":"x","ttlSeconds":30}`, http.MethodDelete: ""} {
			answer := w.ask(method, grants+"/migration/"+escaped, body)
			require.Equal(t, 400, answer.Code, name)
			require.Equal(t, `{"error":"invalid_request"}`, answer.Body.String())
		}
	}
	for _, kind := range []string{"Migration", "failover%20hold", "hold", "migration%00", "%2e%2e"} {
		require.Equal(t, 400, newWorld(t).ask(http.MethodDelete, grants+"/"+kind+"/op-1", "").Code, kind)
	}
}

func TestNoRoute(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/", group + "/", "/" + group, "/deploy/v1/groups/../groups/orders", "/DEPLOY/v1/groups/orders", "/deploy/v1/groups/ord%2fers", "/keyring/escrow"} {
		answer := w.ask(http.MethodGet, path, "")
		require.Equal(t, 404, answer.Code, path)
		require.Equal(t, `{"error":"not_found"}`, answer.Body.String())
	}
	for path, allow := range map[string]string{group: "GET", grants: "POST", migration: "PUT, DELETE"} {
		answer := w.ask(http.MethodPatch, path, "")
		require.Equal(t, 405, answer.Code)
		require.Equal(t, allow, answer.Header().Get("Allow"))
		require.Equal(t, `{"error":"method_not_allowed"}`, answer.Body.String())
	}
}
