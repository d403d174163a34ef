package alerts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSelectors(t *testing.T) {
	require.Equal(t, map[string][]string{
		"a_total": {"status", "x"}, "a_bucket": nil, "up": {"job"}, "b": nil,
	}, selectors(`histogram_quantile(0.99, sum by (le, route) (rate(a_bucket[$__rate_interval]))) > 1e3
		and on (le) a_total{status=~"4xx|{5}", x!="y{"} offset 5m or up{job="c(d)"} unless b`))
}

func TestMissing(t *testing.T) {
	wanted, err := Selectors()
	require.NoError(t, err)
	var exposition strings.Builder
	for name, labels := range wanted {
		exposition.WriteString(name + "{x=\"}\"")
		for _, l := range labels {
			exposition.WriteString("," + l + `="a"`)
		}
		exposition.WriteString("} 1\n")
	}
	missing, err := Missing(exposition.String(), "slipway_", "temporal_", "bloodraven_")
	require.NoError(t, err)
	require.Empty(t, missing)

	missing, err = Missing("# HELP slipway_openbao_login_failures_total x\nslipway_openbao_request_duration_seconds_count 1\n", "slipway_openbao_")
	require.NoError(t, err)
	require.Equal(t, []string{
		"slipway_openbao_login_failures_total", "slipway_openbao_request_duration_seconds_bucket",
		"slipway_openbao_request_duration_seconds_count{status}",
	}, missing)
	_, err = Missing("", "nobody_")
	require.Error(t, err)
}

// Every metric is of a program that a test looks at.
func TestMetricsAreOurs(t *testing.T) {
	wanted, err := Selectors()
	require.NoError(t, err)
	require.Greater(t, len(wanted), 30)
	for name := range wanted {
		require.Regexp(t, `^(slipway|temporal|bloodraven)_`, name)
	}
}

func TestEachAlertHasARunbook(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(Folder(), "..", "docs", "operations.md"))
	require.NoError(t, err)
	rules, err := Rules()
	require.NoError(t, err)
	alerts := map[string]bool{}
	for _, r := range rules {
		require.False(t, alerts[r.Alert], r.Alert)
		alerts[r.Alert] = true
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], r.Alert)
	}
	books := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (Slipway\w+)\n\n\S`).FindAllStringSubmatch(string(raw), -1) {
		books[m[1]] = true
	}
	require.Equal(t, alerts, books)
}
