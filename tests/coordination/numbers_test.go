package coordination

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/tests/alerts"
	"slipway.dev/slipway/tests/stand"
)

var age = regexp.MustCompile(`(age_seconds\{.*\}) [0-9.e+-]+$`)

func TestTheMetricsOfAGroup(t *testing.T) {
	t.Parallel()
	r := enter(t)
	token := r.granted(migration, operation, 60)
	require.Equal(t, http.StatusOK, r.grant(migration, operation, 60).status)
	require.Equal(t, http.StatusConflict, r.grant(migration, another, 60).status)
	r.granted(hold, operation, 5)
	require.Equal(t, http.StatusForbidden, r.grant(hold, another, 60).status) // the group was resolved
	has := func(limit time.Duration, lines ...string) {
		t.Helper()
		for i, line := range lines {
			lines[i] = "bloodraven_" + strings.Replace(line, "{", `{group="`+r.group+`",`, 1)
		}
		slices.Sort(lines)
		await(t, limit, func() error {
			got := r.series()
			for i := range got {
				got[i] = age.ReplaceAllString(got[i], "$1 <age>")
			}
			slices.Sort(got)
			if !slices.Equal(got, lines) {
				return fmt.Errorf("there is\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
			}
			return nil
		})
	}
	// The gauges follow a watch.
	has(3*time.Second,
		`deploy_leases_active{kind="migration"} 1`, `deploy_leases_active{kind="failover-hold"} 1`,
		`deploy_lease_age_seconds{kind="migration"} <age>`, `deploy_lease_age_seconds{kind="failover-hold"} <age>`,
		`deploy_lease_grants_total{kind="migration",result="granted"} 2`, `deploy_lease_grants_total{kind="migration",result="conflict"} 1`,
		`deploy_lease_grants_total{kind="failover-hold",result="granted"} 1`, `deploy_lease_grants_total{kind="failover-hold",result="unauthorized"} 1`,
		`deploy_lease_expirations_total{kind="migration"} 0`, `deploy_lease_expirations_total{kind="failover-hold"} 0`,
	)
	exposed, err := all.metrics(t.Context(), stand.API)
	require.NoError(t, err)
	r.becomes(10*time.Second, hold, operation, lease.StateExpired)
	r.set("Updating", "updatePhase")
	require.Equal(t, http.StatusLocked, r.grant(hold, operation, 60).status)
	r.annotate(lease.AnnotationRevoke, "")
	r.becomes(3*time.Second, migration, operation, lease.StateRevoked)
	for range 3 { // expired and revoked count once
		require.Equal(t, http.StatusForbidden, r.renew(migration, operation, token, 60).status) // rotated
		require.Equal(t, http.StatusOK, r.get().status)
	}
	has(3*time.Second,
		`deploy_lease_grants_total{kind="migration",result="granted"} 2`, `deploy_lease_grants_total{kind="migration",result="conflict"} 1`,
		`deploy_lease_grants_total{kind="failover-hold",result="granted"} 1`, `deploy_lease_grants_total{kind="failover-hold",result="unauthorized"} 1`,
		`deploy_lease_grants_total{kind="failover-hold",result="unstable"} 1`,
		`deploy_lease_expirations_total{kind="migration"} 0`, `deploy_lease_expirations_total{kind="failover-hold"} 1`,
		`deploy_lease_revocations_total{kind="migration",reason="operator_revoked"} 1`,
	)
	later, err := all.metrics(t.Context(), stand.API)
	require.NoError(t, err)
	missing, err := alerts.Missing(string(exposed)+string(later), "bloodraven_deploy_", "bloodraven_http_")
	require.NoError(t, err)
	require.Empty(t, missing, "what alerts and dashboard ask for")
	require.NoError(t, all.groups(r.namespace).Delete(t.Context(), r.group, metav1.DeleteOptions{}))
	has(10 * time.Second)
}

func TestTheMetricsOfRequests(t *testing.T) {
	t.Parallel()
	r := enter(t)
	all.kube.ServiceAccount(t, r.namespace, "other")
	other := *r
	other.token = all.bearer(t, r.namespace, "other", kube.Audience)
	of := *r
	of.group = "made-up-" + r.group
	for _, who := range []room{other, *r} {
		who.group = of.group
		who.t = t
		for _, a := range who.calls(of.group) {
			a.refused(t, http.StatusForbidden, "forbidden")
		}
	}
	r.call("INVENTED-BY-"+strings.ToUpper(r.group), "/"+of.group, "", nil).refused(t, http.StatusNotFound, "not_found")
	r.call(http.MethodGet, "/groups/"+r.group, "", authorization("Bearer x")).refused(t, http.StatusUnauthorized, "unauthorized")
	require.Equal(t, http.StatusNoContent, r.release(migration, operation, "x").status)
	r.get()
	text, err := all.metrics(t.Context(), stand.API)
	require.NoError(t, err)
	require.NotContains(t, string(text), of.group)
	require.NotContains(t, strings.ToLower(string(text)), "invented")
	for _, series := range []string{
		`bloodraven_deploy_lease_grants_total{group="",kind="migration",result="unauthorized"} `,
		`bloodraven_http_requests_total{handler="group",method="GET",server="deploy",status="2xx"} `,
		`bloodraven_http_requests_total{handler="grant",method="POST",server="deploy",status="4xx"} `,
		`bloodraven_http_requests_total{handler="renew",method="PUT",server="deploy",status="4xx"} `,
		`bloodraven_http_requests_total{handler="release",method="DELETE",server="deploy",status="2xx"} `,
		`bloodraven_http_requests_total{handler="notfound",method="other",server="deploy",status="4xx"} `,
		`bloodraven_http_request_duration_seconds_count{handler="group",method="GET",server="deploy"} `,
		`bloodraven_http_request_duration_seconds_bucket{handler="release",method="DELETE",server="deploy",le="1"} `,
	} {
		require.Contains(t, string(text), "\n"+series)
	}
	for line := range strings.Lines(string(text)) {
		if name, found := strings.CutPrefix(line, "bloodraven_"); found {
			require.Regexp(t, `^(deploy_leases_active|deploy_lease_age_seconds|deploy_lease_grants_total|deploy_lease_expirations_total|`+
				`deploy_lease_revocations_total|planned_failovers_deferred_total|http_requests_total|http_request_duration_seconds_(bucket|sum|count))\{`, name)
		}
	}
}

func TestTheLogHasALineForEachRequest(t *testing.T) {
	t.Parallel()
	r := enter(t)
	const id = "deploy 7/ü"
	token := r.granted(migration, id, 60)
	r.renew(migration, id, token, 60)
	r.release(migration, id, token)
	r.get()
	r.call(http.MethodGet, "/groups/"+r.group, "", authorization())
	text, err := os.ReadFile(filepath.Join(all.Dir, "logs", stand.API+".log"))
	require.NoError(t, err)
	var got []string
	for line := range strings.Lines(string(text)) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil || entry["msg"] != "deploy api" || entry["group"] != r.group {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, entry["time"].(string))
		require.NoError(t, err)
		require.Equal(t, time.UTC, at.Location())
		require.WithinDuration(t, time.Now(), at, time.Minute)
		require.GreaterOrEqual(t, entry["duration_ms"], 0.0)
		require.Len(t, entry, 10)
		require.Equal(t, "INFO", entry["level"])
		got = append(got, fmt.Sprintf("%v %v %v %v %v", entry["handler"], entry["instance"], entry["namespace"], entry["operationId"], entry["status"]))
	}
	ns := r.namespace
	require.Equal(t, []string{
		"grant orders-app " + ns + " " + id + " 201", "renew orders-app " + ns + " " + id + " 200", "release orders-app " + ns + " " + id + " 204",
		"group orders-app " + ns + "  200", "group    401",
	}, got)
}
