package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"slipway.dev/slipway/schema/deployment"
)

// panel is a front-end that the stand may call back.
var panel *frontEnd

// frontEnd keeps what it is told, by path.
type frontEnd struct {
	*httptest.Server
	mu   sync.Mutex
	told map[string][]string // of each call: token and body
}

func newFrontEnd() *frontEnd {
	f := &frontEnd{told: map[string][]string{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.told[r.URL.Path] = append(f.told[r.URL.Path], r.Method+" "+r.Header.Get("Authorization")+" "+string(text))
		if strings.HasSuffix(r.URL.Path, "/moved") {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	return f
}

func (f *frontEnd) calls(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told[path]
}

func callbackTo(url, token string) http.Header {
	return http.Header{"X-Callback-Url": {url}, "X-Callback-Token": {token}}
}

// settledCallback waits until the callback of a build is settled.
func (s *site) settledCallback(t *testing.T, id string, number int64) deployment.Build {
	t.Helper()
	var build deployment.Build
	await(t, patience, func() error {
		var err error
		build, err = s.api(t).Build(t.Context(), deployment.Ref{Deployment: id, Build: number})
		if err == nil && (build.Callback == nil || build.Callback.State == deployment.CallbackPending) {
			err = fmt.Errorf("the callback is %+v", build.Callback)
		}
		return err
	})
	return build
}

func TestDestroyCallsBackOnce(t *testing.T) {
	t.Parallel()
	const id, token, query = "called-back", "callback-token-canary", "callback-query-canary"
	slipway.deploy(t, id, `"destroy":"gate"`)
	a := slipway.call(t, http.MethodDelete, "/deployments/"+id, callbackTo("https://panel.example/"+id+"?"+query, "an-earlier-"+token), "")
	require.Equal(t, http.StatusAccepted, a.Status, a.Body)
	require.JSONEq(t, `{"deploymentId":"called-back","build":2,"callback":"accepted"}`, a.Body)
	slipway.started(t, id, "destroy", 2)
	// While it runs: one that is refused and none change nothing, another one
	// takes the place of the first.
	a = slipway.call(t, http.MethodDelete, "/deployments/"+id, callbackTo("https://evil.example/", token), "")
	require.Contains(t, a.Body, `"callback":"refused"`)
	a = slipway.call(t, http.MethodDelete, "/deployments/"+id, callbackTo(panel.URL+"/"+id+"?"+query, token), "")
	require.JSONEq(t, `{"deploymentId":"called-back","build":2,"callback":"accepted"}`, a.Body)
	a = slipway.call(t, http.MethodDelete, "/deployments/"+id, nil, "")
	require.JSONEq(t, `{"deploymentId":"called-back","build":2,"callback":"none"}`, a.Body)
	slipway.open(t, id)

	build := slipway.settledCallback(t, id, 2)
	require.Equal(t, deployment.Callback{State: deployment.CallbackDelivered, Status: 204}, *build.Callback)
	require.Equal(t, []string{"POST Bearer " + token + ` {"deploymentId":"called-back","build":2,"state":"idle"}`}, panel.calls("/"+id))
	require.Equal(t, deployment.StateIdle, slipway.settled(t, id).State)

	// The channel has told it, and neither there, nor in Temporal, nor in a log,
	// nor in the database is anything of the token or the query.
	var events string
	require.NoError(t, slipway.database.QueryRow(t.Context(), `SELECT string_agg(data, ' ') FROM events WHERE deployment_id = $1`, id).Scan(&events))
	require.Contains(t, events, `"callback":{"state":"delivered","status":204}`)
	var rows string
	require.NoError(t, slipway.database.QueryRow(t.Context(), `
		SELECT coalesce(string_agg(b::text, ' '), '') || coalesce((SELECT string_agg(o::text, ' ') FROM callback_offers o WHERE deployment_id = $1), '')
		FROM builds b WHERE deployment_id = $1`, id).Scan(&rows))
	history := slipway.temporal.GetWorkflowHistory(t.Context(), build.WorkflowID, "", true, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	var written strings.Builder
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(t, err)
		text, err := protojson.Marshal(event)
		require.NoError(t, err)
		written.Write(text)
		for _, payload := range event.GetActivityTaskCompletedEventAttributes().GetResult().GetPayloads() {
			written.Write(payload.GetData())
		}
		for _, payload := range event.GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads() {
			written.Write(payload.GetData())
		}
	}
	require.Contains(t, written.String(), `"state":"delivered"`)
	for where, text := range map[string]string{"channel": events, "rows": rows, "history": written.String(), "logs": everyLog(t)} {
		require.NotContains(t, text, token, where)
		require.NotContains(t, text, query, where)
	}
	require.Len(t, panel.calls("/"+id), 1)
}

// everyLog is all that the pieces of the stand have written.
func everyLog(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	files, err := filepath.Glob(filepath.Join(slipway.Dir, "logs", "*.log"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	require.NotEmpty(t, all.String())
	return all.String()
}

func TestCallbacksThatAreNotDelivered(t *testing.T) {
	t.Parallel()
	const refused, moved, failed = "callback-refused", "callback-moved", "callback-destroy-failed"
	for id, members := range map[string]string{refused: "", moved: "", failed: `"destroy":"fail"`} {
		slipway.deploy(t, id, members)
	}
	a := slipway.call(t, http.MethodDelete, "/deployments/"+refused, callbackTo("http://169.254.169.254/latest/meta-data/", "x"), "")
	require.Equal(t, http.StatusAccepted, a.Status, "the delete goes on")
	require.Contains(t, a.Body, `"callback":"refused","callbackReason":"the callback URL is not https`)
	for _, id := range []string{moved, failed} {
		a := slipway.call(t, http.MethodDelete, "/deployments/"+id, callbackTo(panel.URL+"/"+id+"/moved", "x"), "")
		require.Contains(t, a.Body, `"callback":"accepted"`)
	}
	require.Equal(t, deployment.CallbackRefused, slipway.settledCallback(t, refused, 2).Callback.State)
	require.Equal(t, deployment.StateIdle, slipway.settled(t, refused).State)
	require.Equal(t, deployment.Callback{State: deployment.CallbackFailed, Status: 307, Reason: "the front-end answered 307, and redirects are not followed"},
		*slipway.settledCallback(t, moved, 2).Callback)
	require.Empty(t, panel.calls("/elsewhere"))
	require.Equal(t, deployment.Callback{State: deployment.CallbackSkipped, Reason: "the destroy did not succeed"}, *slipway.settledCallback(t, failed, 2).Callback)
	require.Empty(t, panel.calls("/"+failed+"/moved"))
}

func TestPagesOfFrontEnds(t *testing.T) {
	t.Parallel()
	for origin, allowed := range map[string]bool{panel.URL: true, "https://panel.example": true, "https://evil.example": false, "null": false} {
		a := slipway.call(t, http.MethodGet, "/deployments/nobody-knows", http.Header{"Origin": {origin}}, "")
		require.Equal(t, http.StatusNotFound, a.Status)
		want := ""
		if allowed {
			want = origin
		}
		require.Equal(t, want, a.Header.Get("Access-Control-Allow-Origin"))
		require.Contains(t, a.Header.Values("Vary"), "Origin")
	}
}
