package restore

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/stand"
)

const sbom = `{"bomFormat":"CycloneDX","specVersion":"1.6","version":1,"components":[{"type":"library","name":"kept","version":"1.0"}]}`

// kept is a deployment with a log and an SBOM.
func (w *world) kept() (ref deployment.Ref, served string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(filepath.Join(w.Record, "kept.script"), []byte(
		`echo '`+sbom+`' >"$SBOM_OUT_DIR/web.json"
echo '{"nodes":[{"name":"web","changed":true,"sbom":"web.json"}]}' >"$SBOM_OUT_DIR/nodes.json"
`), 0o644))
	ref = w.submit("kept", "script")
	w.becomes(ref, deployment.StatusSucceeded)
	served = w.served("kept")
	require.Contains(w.t, served, "deploy of build 1: script")
	require.Contains(w.t, served, sbom)
	return ref, served
}

// underway has two builds run, one wait for the second of them, and a deployment
// up that is to be hauled out.
func (w *world) underway() (running, waiting, next deployment.Ref) {
	w.t.Helper()
	running, waiting = w.submit("running", "gate"), w.submit("waiting", "gate")
	w.runs(running, 1)
	w.runs(waiting, 1)
	next = w.submit("waiting", "quick")
	w.becomes(w.submit("hauled", "quick"), deployment.StatusSucceeded)
	return running, waiting, next
}

// PostgreSQL is lost and restored from a dump. Temporal goes on, and has
// workflows of builds that the dump does not have.
func TestAnOlderDatabase(t *testing.T) {
	w := newWorld(t)
	docs := commands(t)
	_, served := w.kept()
	running, waiting, next := w.underway()

	w.shell(docs[0])

	w.openGate("running")
	w.becomes(running, deployment.StatusSucceeded)
	w.becomes(w.destroy("hauled"), deployment.StatusSucceeded)
	again, late := w.submit("kept", "gate"), w.submit("late", "gate")
	w.runs(again, 1)
	w.runs(late, 1)
	stale, err := w.api.Build(t.Context(), again)
	require.NoError(t, err)
	alone, err := w.api.Build(t.Context(), late)
	require.NoError(t, err)

	w.kill(stand.Worker, stand.API)
	restored, err := url.Parse(w.DatabaseURL)
	require.NoError(t, err)
	restored.Path = "/slipway_restored"
	w.shell(docs[1], "RESTORED_URL="+restored.String())
	w.DatabaseURL = restored.String()
	w.start(stand.Worker, stand.API)

	require.Equal(t, served, w.served("kept"))

	// The number is given again, while the workflow that had it is open. That
	// one finds that the build is not its own, and lets it be.
	require.Equal(t, again, w.submit("kept", "gate"))
	w.runs(again, 2)
	require.Contains(t, w.failure(stale.WorkflowID), "restored to an earlier time")
	w.becomes(again, deployment.StatusRunning)
	w.openGate("kept")
	w.becomes(again, deployment.StatusSucceeded)
	require.Equal(t, 2, w.ran(deployment.ActionDeploy, again))

	// A deployment that the dump does not have.
	require.Contains(t, w.failure(alone.WorkflowID), "restored to an earlier time")
	_, err = w.api.Get(t.Context(), "late")
	var refused *client.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 404, refused.Status)
	require.Equal(t, late, w.submit("late", "quick"))
	w.becomes(late, deployment.StatusSucceeded)

	// Builds that ran at the time of the dump come to an end, and never run
	// again, whatever became of them since.
	require.Contains(t, w.becomes(running, deployment.StatusFailed).Reason, "ended before the build did")
	require.Equal(t, "the worker that ran the deployer was lost", w.becomes(waiting, deployment.StatusFailed).Reason)
	w.becomes(next, deployment.StatusSucceeded)
	for _, ref := range []deployment.Ref{running, waiting, next} {
		require.Equal(t, 1, w.ran(deployment.ActionDeploy, ref), "%s", ref)
	}
	w.becomes(w.submit("running", "quick"), deployment.StatusSucceeded)

	// What was hauled out since is said to be up, and can be hauled out again.
	w.state("hauled", deployment.StateActive)
	w.becomes(w.destroy("hauled"), deployment.StatusSucceeded)
	w.state("hauled", deployment.StateIdle)
	w.settled()
}

// Temporal is lost and restored from a copy of its database. PostgreSQL goes on,
// and has builds that Temporal has no workflow of, or has an older state of.
func TestAnOlderTemporal(t *testing.T) {
	w := newWorld(t)
	_, served := w.kept()
	running, waiting, next := w.underway()

	database, copied := filepath.Join(w.Dir, "temporal"), filepath.Join(w.Dir, "temporal.copy")
	require.NoError(t, w.Stop(stand.Temporal))
	require.NoError(t, os.CopyFS(copied, os.DirFS(database)))
	w.start(stand.Temporal)

	w.openGate("running")
	w.openGate("waiting")
	w.becomes(running, deployment.StatusSucceeded)
	w.becomes(next, deployment.StatusSucceeded)
	w.becomes(w.destroy("hauled"), deployment.StatusSucceeded)
	late := w.submit("late", "gate")
	w.runs(late, 1)

	w.kill(stand.Worker, stand.API, stand.Temporal)
	require.NoError(t, os.RemoveAll(database))
	require.NoError(t, os.Rename(copied, database))
	require.NoError(t, w.Start(stand.Temporal))
	out, err := w.Command("temporal-setup").CombinedOutput()
	require.NoError(t, err, "%s", out)
	w.start(stand.Worker, stand.API)

	// A build without a workflow ends as its deployer did, which ended with the
	// worker. The workflow of the copy joins what has become of its build.
	require.Equal(t, "the worker that ran the deployer was lost", w.becomes(late, deployment.StatusFailed).Reason)
	w.settled()
	for _, ref := range []deployment.Ref{running, waiting, next} {
		require.Equal(t, 1, w.ran(deployment.ActionDeploy, ref), "%s", ref)
		w.becomes(ref, deployment.StatusSucceeded)
	}
	w.state("hauled", deployment.StateIdle)
	require.Equal(t, served, w.served("kept"))
	for _, id := range []string{"kept", "running", "waiting", "hauled", "late"} {
		w.becomes(w.submit(id, "quick"), deployment.StatusSucceeded)
		w.state(id, deployment.StateActive)
	}
	w.settled()
}
