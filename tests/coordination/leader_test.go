package coordination

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/tests/stand"
)

// takeover is how long it may take until another replica leads: the lease of
// 8 s, a retry, and a busy machine.
const takeover = 12 * time.Second

// follows requires that a replica refuses everything and asks the API server
// nothing.
func (r *room) follows(piece string) {
	r.t.Helper()
	of := *r
	of.piece = piece
	for _, header := range []http.Header{nil, authorization("Bearer wrong"), authorization()} {
		for _, path := range []string{"/groups/" + r.group, "/nowhere"} {
			of.call(http.MethodGet, path, "", header).refused(r.t, http.StatusServiceUnavailable, "not_leader")
		}
	}
	for _, a := range of.calls(r.group) {
		a.refused(r.t, http.StatusServiceUnavailable, "not_leader")
	}
}

// labelled waits until of the two pods just these carry the label.
func labelled(t testing.TB, want ...string) {
	t.Helper()
	await(t, 5*time.Second, func() error {
		found, err := all.admin.CoreV1().Pods(kube.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "slipway/leader=true"})
		var names []string
		for _, pod := range found.Items {
			names = append(names, pod.Name)
		}
		if err == nil && strings.Join(names, " ") != strings.Join(want, " ") {
			err = fmt.Errorf("the pods %q are labelled, not %q", names, want)
		}
		return err
	})
}

// reviews is how many TokenReviews the API server was asked for.
func reviews(t testing.TB) (lines []string) {
	t.Helper()
	text, err := all.apiServerMetrics(t.Context())
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="tokenreviews"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Not parallel: it takes the leader away, four times.
func TestLeaders(t *testing.T) {
	r := enter(t)
	labelled(t, pod)
	tokens := map[string]string{}
	for _, id := range []string{operation, "expires", "revoked", "terminated"} {
		of := enter(t) // a mutex each
		tokens[id] = of.granted(migration, id, 120)
		tokens[id+" room"], tokens[id+" account"] = of.namespace, of.token
	}
	at := func(id, piece string) *room {
		return &room{
			t: t, piece: piece, namespace: tokens[id+" room"], group: tokens[id+" room"],
			instance: "orders-app", token: tokens[id+" account"],
		}
	}
	require.NoError(t, all.Start(stand.OtherAPI))
	t.Cleanup(func() { // for the tests after one that failed
		if t.Failed() {
			t.Log(all.Stop(stand.OtherAPI), all.Stop(stand.API), all.Start(stand.API))
			await(t, takeover, func() error { return all.leads(stand.API) })
		}
	})
	before := reviews(t)
	require.NotEmpty(t, before)
	r.follows(stand.OtherAPI)
	require.Equal(t, before, reviews(t))

	// The leader is killed, and meanwhile a workflow is terminated.
	require.Equal(t, http.StatusOK, at("expires", stand.API).renew(migration, "expires", tokens["expires"], 5).status)
	require.NoError(t, all.Kill(stand.API))
	require.NoError(t, all.temporal.TerminateWorkflow(t.Context(), at("terminated", "").workflow(migration, "terminated"), "", "by a test"))
	await(t, takeover, func() error { return all.leads(stand.OtherAPI) })
	for _, id := range []string{operation, "revoked", "terminated"} {
		at(id, stand.OtherAPI).renew(migration, id, tokens[id], 120).is(t, http.StatusOK, `{"expiresAt":"<time>","topologyGeneration":17}`)
	}
	await(t, 10*time.Second, func() error {
		run, err := all.temporal.DescribeWorkflowExecution(t.Context(), at("terminated", "").workflow(migration, "terminated"), "")
		if err == nil && run.GetWorkflowExecutionInfo().GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
			err = errors.New("nobody adopted the lease")
		}
		return err
	})
	at("revoked", stand.OtherAPI).annotate(lease.AnnotationRevoke, "")
	at("revoked", stand.OtherAPI).becomes(prompt, migration, "revoked", lease.StateRevoked)

	// Killed, it kept its label; restarted in the same pod it leads no more.
	require.NoError(t, all.Start(stand.API))
	r.follows(stand.API)
	labelled(t, otherPod)

	// The leader is paused for longer than its term, with a request in its
	// hands, whose lease is revoked meanwhile.
	client := all.newClient()
	client.Timeout = time.Minute
	paused := at(operation, stand.OtherAPI)
	renew := func() (answer, error) {
		return all.send(t.Context(), client, http.MethodPut, all.LeaseURL(stand.OtherAPI)+paused.path(migration, operation),
			authorization("Bearer "+paused.token), fmt.Sprintf(`{"token":%q,"ttlSeconds":120}`, tokens[operation]))
	}
	a, err := renew()
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.status)
	require.NoError(t, all.Signal(stand.OtherAPI, syscall.SIGSTOP))
	late := make(chan answer, 1)
	go func() {
		a, err := renew() // on the connection that is there
		if err != nil {
			a.body = err.Error()
		}
		late <- a
	}()
	await(t, takeover, func() error { return all.leads(stand.API) })
	at(operation, stand.API).annotate(lease.AnnotationRevoke, "")
	at(operation, stand.API).becomes(prompt, migration, operation, lease.StateRevoked)
	require.NoError(t, all.Signal(stand.OtherAPI, syscall.SIGCONT))
	(<-late).refused(t, http.StatusServiceUnavailable, "not_leader")
	r.follows(stand.OtherAPI)
	at(operation, stand.API).renew(migration, operation, tokens[operation], 120).is(t, http.StatusConflict,
		`{"error":"revoked","reason":"operator_revoked","topologyGeneration":17}`)
	labelled(t, pod)

	// A leader that stops lets go at once, and so does the next one.
	for _, next := range []struct{ stops, leads, pod string }{{stand.API, stand.OtherAPI, otherPod}, {stand.OtherAPI, stand.API, pod}} {
		begin := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- all.Stop(next.stops) }()
		await(t, takeover, func() error { return all.leads(next.leads) })
		require.Less(t, time.Since(begin), 6*time.Second, "it waited for the term of %s", next.stops)
		require.NoError(t, <-stopped)
		labelled(t, next.pod)
		if next.stops == stand.API {
			require.NoError(t, all.Start(stand.API))
		}
	}
	// Its workflow slept for the time that it was granted with.
	at("expires", stand.API).becomes(10*time.Second, migration, "expires", lease.StateExpired)
	id := "terminated"
	at(id, stand.API).renew(migration, id, tokens[id], 120).is(t, http.StatusOK, `{"expiresAt":"<time>","topologyGeneration":17}`)
	at(id, stand.API).release(migration, id, tokens[id]).is(t, http.StatusNoContent, "")
	at(id, stand.API).ends(migration, id, "released", "")
}
