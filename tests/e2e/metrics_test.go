package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	temporalclient "go.temporal.io/sdk/client"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/tests/alerts"
	"slipway.dev/slipway/tests/stand"
)

// TestMetricsOfTheAlerts: what alerts and dashboard ask for is what the API
// and the worker expose. OpenBao's and those of leases are looked at where
// there is an OpenBao, and Kubernetes.
func TestMetricsOfTheAlerts(t *testing.T) {
	t.Parallel()
	const id = "measured"
	slipway.submit(t, id, `"deploy":"fail"`)
	require.Equal(t, deployment.StateFailed, slipway.settled(t, id).State)
	slipway.submit(t, id, "")
	slipway.build(t, id, 2, deployment.StatusSucceeded)
	response, _, err := slipway.Do(t.Context(), http.MethodGet, "/deployments/"+id, nil, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	following, err := http.NewRequestWithContext(t.Context(), http.MethodGet, slipway.URL+"/deployments/"+id+"/events", nil)
	require.NoError(t, err)
	following.Header = response.Request.Header.Clone()
	stream, err := http.DefaultClient.Do(following)
	require.NoError(t, err)
	defer func() { _ = stream.Body.Close() }()
	require.Equal(t, http.StatusOK, stream.StatusCode)

	// The worker's word that the deployer of a terminated workflow lives is a
	// request that Temporal refuses.
	slipway.submit(t, id, `"deploy":"gate"`)
	slipway.started(t, id, "deploy", 3)
	require.NoError(t, slipway.temporal.TerminateWorkflow(t.Context(), slipway.workflowOf(t, id, 3), "", "a test"))
	// A workflow that the worker has no code for, as after a bad upgrade.
	strange, err := slipway.temporal.ExecuteWorkflow(t.Context(),
		temporalclient.StartWorkflowOptions{ID: "strange/" + uuid.NewString(), TaskQueue: wire.QueueMain}, "NoSuchWorkflow")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, slipway.temporal.TerminateWorkflow(context.Background(), strange.GetID(), "", "a test"))
	})

	await(t, patience, func() error {
		var text strings.Builder
		for _, piece := range []string{stand.API, stand.Worker} {
			scraped, err := http.Get(slipway.Metrics(piece))
			if err != nil {
				return err
			}
			_, err = io.Copy(&text, scraped.Body)
			_ = scraped.Body.Close()
			if err != nil {
				return err
			}
		}
		missing, err := alerts.Missing(text.String(), "slipway_api_", "slipway_build", "slipway_callbacks_", "slipway_database_",
			"slipway_nix_", "slipway_sbom_", "slipway_source_", "temporal_")
		if err != nil {
			return err
		}
		for _, series := range []string{
			"slipway_database_up 1", "slipway_source_problem 0",
			`slipway_build_duration_seconds_count{action="deploy",status="failed"} `,
			`slipway_nix_evaluation_duration_seconds_count{result="ok"} `,
			`slipway_callbacks_total{state="delivered"} `,
		} {
			if !strings.Contains(text.String(), "\n"+series) {
				missing = append(missing, series)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("not exposed: %q", missing)
		}
		return nil
	})
}
