package coordination

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/lease"
)

// lines are the log lines of requests; other ones are left out.
func (w *world) lines() []map[string]any {
	var lines []map[string]any
	for text := range bytes.Lines(w.log.Bytes()) {
		var line map[string]any
		require.NoError(w.t, json.Unmarshal(text, &line), "%s", text)
		if line["msg"] == "deploy api" {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestLogLine(t *testing.T) {
	w := newWorld(t)
	token := w.granted(grantMigration)
	w.log.Reset()
	for _, test := range []struct {
		method, path, body, auth string
		line                     string
	}{
		{"GET", group, "", deploy, `{"handler":"group","group":"orders","instance":"orders-app","namespace":"bloodraven","operationId":"","status":200}`},
		{"POST", grants, grantHold, deploy, `{"handler":"grant","group":"orders","instance":"orders-app","namespace":"bloodraven","operationId":"op-1","status":201}`},
		{"POST", grants, "{}", deploy, `{"handler":"grant","group":"orders","instance":"","namespace":"","operationId":"","status":400}`},
		{"POST", grants, grantHold, other, `{"handler":"grant","group":"orders","instance":"orders-app","namespace":"","operationId":"op-1","status":403}`},
		{"PUT", migration, `{"token":"` + token + `","ttlSeconds":30}`, deploy, `{"handler":"renew","group":"orders","instance":"orders-app","namespace":"bloodraven","operationId":"op-1","status":200}`},
		{"PUT", grants + "/migration/a%0A%22%2F", "", deploy, `{"handler":"renew","group":"orders","instance":"","namespace":"","operationId":"","status":400}`},
		{"DELETE", migration, "", deploy, `{"handler":"release","group":"orders","instance":"orders-app","namespace":"bloodraven","operationId":"op-1","status":403}`},
		{"DELETE", migration, "", "wrong", `{"handler":"release","group":"orders","instance":"","namespace":"","operationId":"","status":401}`},
		{"GET", "/secret", "", deploy, `{"handler":"notfound","group":"","instance":"","namespace":"","operationId":"","status":404}`},
		{"PATCH", group, "", deploy, `{"handler":"notfound","group":"","instance":"","namespace":"","operationId":"","status":405}`},
	} {
		w.log.Reset()
		w.ask(test.method, test.path, test.body, "Authorization", "Bearer "+test.auth)
		lines := w.lines()
		require.Len(t, lines, 1)
		line := lines[0]
		require.ElementsMatch(t, []string{"time", "level", "msg", "handler", "group", "instance", "namespace", "operationId", "status", "duration_ms"},
			slices.Collect(maps.Keys(line)))
		at, err := time.Parse(time.RFC3339Nano, line["time"].(string))
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(line["time"].(string), "Z"))
		require.WithinDuration(t, time.Now(), at, time.Minute)
		require.Equal(t, "INFO", line["level"])
		require.IsType(t, 1.0, line["duration_ms"])
		for _, name := range []string{"time", "level", "msg", "duration_ms"} {
			delete(line, name)
		}
		text, err := json.Marshal(line)
		require.NoError(t, err)
		require.JSONEq(t, test.line, string(text))
	}
}

// The cause of a failure is a line of its own, and not in the answer.
func TestLogOfFailures(t *testing.T) {
	for call, test := range map[string]struct{ method, path, body string }{
		"review": {"GET", group, ""}, "databases": {"GET", group, ""}, "group": {"GET", group, ""}, "observe": {"GET", group, ""},
		"consider": {"POST", grants, grantMigration}, "grant": {"POST", grants, grantMigration},
		"renew": {"PUT", migration, `{"token":"x","ttlSeconds":30}`}, "peek": {"DELETE", migration, ""},
	} {
		w := newWorld(t)
		w.away[call] = fmt.Errorf("dial the server: %w", errAway)
		answer := w.ask(test.method, test.path, test.body)
		require.Equal(t, 503, answer.Code, call)
		require.Equal(t, `{"error":"unavailable"}`, answer.Body.String())
		require.Equal(t, 2, bytes.Count(w.log.Bytes(), []byte("\n")), call)
		require.Equal(t, 1, strings.Count(w.log.String(), "dial the server: connection refused"), call)
		require.Len(t, w.lines(), 1)
	}
}

func TestNoSecretsInTheLog(t *testing.T) {
	w := newWorld(t)
	var secrets []string
	for _, token := range []string{deploy, other, "wrong-bearer"} {
		sum := sha256.Sum256([]byte(token))
		secrets = append(secrets, token, hex.EncodeToString(sum[:]))
	}
	use := func(token string) {
		secrets = append(secrets, token, lease.HashToken(token))
		w.ask("PUT", migration, `{"token":"`+token+`","ttlSeconds":30}`)
		w.ask("PUT", migration, `{"token":"`+token+`","ttlSeconds":30,"`+token+`":1}`)
		w.ask("PUT", migration, `{"token":"`+token+`","ttlSeconds":"`+token+`"}`)
		w.ask("DELETE", hold, "", "X-Lease-Token", token)
		w.ask("DELETE", hold+"/"+token, "", "X-Lease-Token", token)
	}
	for range 2 { // at first all is there, then everything fails
		for range 2 {
			answer := w.ask("POST", grants, grantMigration)
			if answer.Code == 201 || answer.Code == 200 {
				var granted struct{ Token string }
				require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &granted))
				use(granted.Token)
			}
		}
		use("wrong-lease-token")
		w.ask("GET", group, "", "Authorization", "Bearer "+other)
		w.ask("GET", group, "", "Authorization", "Bearer wrong-bearer")
		w.ask("GET", group, "", "Authorization", "Basic wrong-bearer")
		for _, call := range []string{"consider", "grant", "renew", "peek", "release", "release directly", "observe"} {
			w.away[call] = errAway
		}
	}
	require.Greater(t, len(secrets), 10)
	require.Greater(t, len(w.lines()), 20)
	for _, secret := range secrets {
		require.NotContains(t, w.log.String(), secret)
	}
	require.NotContains(t, strings.ToLower(w.log.String()), "authorization")
	require.NotContains(t, strings.ToLower(w.log.String()), "bearer")
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.ask("POST", grants, grantHold)                                          // no migration
	w.granted(grantMigration)                                                 // 201
	w.granted(grantMigration)                                                 // 200
	w.granted(grantHold)                                                      // 201
	w.ask("POST", grants, strings.Replace(grantMigration, "op-1", "op-2", 1)) // held
	w.ask("POST", grants, grantMigration, "Authorization", "Bearer wrong")    // 401
	w.ask("POST", grants, grantMigration, "Authorization", "Bearer "+other)   // 403
	w.ask("POST", "/deploy/v1/groups/made-up/leases", grantMigration)         // 403
	w.ask("POST", grants, "{}")                                               // 400: not counted as a grant
	w.ask("POST", "/deploy/v1/groups/Made-Up/leases", grantMigration)         // 404
	w.ask("GET", "/made/up", "")                                              // 404
	w.ask("INVENTED", group, "")                                              // 405
	w.ask("PUT", migration, `{"token":"x","ttlSeconds":30}`)                  // 403
	w.ask("DELETE", strings.Replace(hold, "op-1", "none", 1), "")             // 204
	w.ask("GET", group, "")                                                   // 200
	w.change(func(g *lease.Group) { g.UpdatePhase = "Rolling" })              // unstable from here
	w.ask("POST", grants, grantMigration)                                     // 423
	w.leading = func() bool { return false }                                  // not the leader from here
	w.ask("POST", grants, grantMigration)                                     // 503: not counted as a grant
	require.NoError(t, testutil.GatherAndCompare(w.metrics, strings.NewReader(`
# HELP bloodraven_deploy_lease_grants_total Grants of leases that were asked for, by result. The group is empty where none was resolved.
# TYPE bloodraven_deploy_lease_grants_total counter
bloodraven_deploy_lease_grants_total{group="",kind="",result="unauthorized"} 1
bloodraven_deploy_lease_grants_total{group="",kind="migration",result="unauthorized"} 2
bloodraven_deploy_lease_grants_total{group="orders",kind="failover-hold",result="granted"} 1
bloodraven_deploy_lease_grants_total{group="orders",kind="failover-hold",result="unauthorized"} 1
bloodraven_deploy_lease_grants_total{group="orders",kind="migration",result="conflict"} 1
bloodraven_deploy_lease_grants_total{group="orders",kind="migration",result="granted"} 2
bloodraven_deploy_lease_grants_total{group="orders",kind="migration",result="unstable"} 1
# HELP bloodraven_http_requests_total HTTP requests that were answered, by handler, method and class of status.
# TYPE bloodraven_http_requests_total counter
bloodraven_http_requests_total{handler="grant",method="POST",server="deploy",status="2xx"} 3
bloodraven_http_requests_total{handler="grant",method="POST",server="deploy",status="4xx"} 7
bloodraven_http_requests_total{handler="grant",method="POST",server="deploy",status="5xx"} 1
bloodraven_http_requests_total{handler="group",method="GET",server="deploy",status="2xx"} 1
bloodraven_http_requests_total{handler="notfound",method="GET",server="deploy",status="4xx"} 1
bloodraven_http_requests_total{handler="notfound",method="POST",server="deploy",status="4xx"} 1
bloodraven_http_requests_total{handler="notfound",method="other",server="deploy",status="4xx"} 1
bloodraven_http_requests_total{handler="release",method="DELETE",server="deploy",status="2xx"} 1
bloodraven_http_requests_total{handler="renew",method="PUT",server="deploy",status="4xx"} 1
`), "bloodraven_deploy_lease_grants_total", "bloodraven_http_requests_total"))

	families, err := w.metrics.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "bloodraven_http_request_duration_seconds" {
			continue
		}
		count := uint64(0)
		for _, metric := range family.GetMetric() {
			require.Len(t, metric.GetLabel(), 3)
			count += metric.GetHistogram().GetSampleCount()
		}
		require.EqualValues(t, 17, count)
	}

	w.handler.Forget("orders")
	w.handler.Forget("")
	require.Equal(t, 2, testutil.CollectAndCount(w.handler.metrics.grants), "those of no group stay")
}

func TestStatusOfCodes(t *testing.T) {
	for code, status := range map[code]int{
		codeNotLeader: 503, codeUnavailable: 503, codeUnauthorized: 401, codeNotFound: 404, codeMethodNotAllowed: 405, codeInvalidRequest: 400,
		codeRequestTooLarge: 413, codeForbidden: 403, codeTokenMismatch: 403, codeHeld: 409, codeRevoked: 409, codeUnstable: 423,
	} {
		require.Equal(t, status, code.status(), code)
	}
}
