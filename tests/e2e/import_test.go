package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// imports asks for an import until the machine, which may be busy, has the time.
func (s *site) imports(t *testing.T, id, key, configuration string, deploy bool) (a answer) {
	t.Helper()
	await(t, patience, func() error {
		if a = s.importOnce(t, id, key, configuration, deploy); a.Status == http.StatusServiceUnavailable {
			return errors.New(a.Message)
		}
		return nil
	})
	return a
}

// importOnce asks for an import with a key, by which nothingStoredBy finds its
// workflow.
func (s *site) importOnce(t *testing.T, id, key, configuration string, deploy bool) answer {
	t.Helper()
	header := asJSON()
	header.Set("Idempotency-Key", key)
	return s.call(t, http.MethodPost, "/deployments/"+id+"/import", header,
		fmt.Sprintf(`{"configuration":{"test":{"domain":"example.org"%s}},"deploy":%t}`, configuration, deploy))
}

func TestImport(t *testing.T) {
	t.Parallel()
	const id = "imported"
	api := slipway.api(t)
	a := slipway.imports(t, id, "key", `,"systems":{"db":"good"}`, false)
	require.Equal(t, http.StatusCreated, a.Status, a.Body)
	require.JSONEq(t, `{"deploymentId":"imported","build":null,"evaluation":"evaluated",
		"nodes":[{"name":"db","names":["example.org"]},{"name":"web","names":["example.org"]}]}`, a.Body)
	require.Equal(t, "/deployments/imported", a.Header.Get("Location"))

	d, err := api.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, deployment.StateIdle, d.State)
	require.Nil(t, d.LatestBuild)
	require.Nil(t, d.Live)
	require.JSONEq(t, `{"test":{"domain":"example.org","systems":{"db":"good"}}}`, string(d.Configuration))
	require.Len(t, d.Nodes, 2)
	builds, err := api.Builds(t.Context(), id, 0, 0)
	require.NoError(t, err)
	require.Empty(t, builds)
	listed, err := api.List(t.Context(), []string{id})
	require.NoError(t, err)
	require.Len(t, listed, 1)

	again := slipway.imports(t, id, "key", `,"systems":{"db":"good"}`, false)
	require.Equal(t, a.Body, again.Body)
	require.Equal(t, "idempotency_conflict", slipway.imports(t, id, "key", ``, false).Error)
	require.Equal(t, "idempotency_conflict", slipway.imports(t, id, "key", `,"systems":{"db":"good"}`, true).Error)
	known := slipway.imports(t, id, "other", "", true)
	require.Equal(t, http.StatusConflict, known.Status)
	require.Equal(t, "already_exists", known.Error)

	destroyed, err := api.Destroy(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, deployment.StateIdle, destroyed.State, "slipway deployed nothing")
	require.EqualValues(t, 1, slipway.deploy(t, id, ""))
	require.Equal(t, deployment.StateIdle, slipway.destroy(t, id).State)
	require.Equal(t, "already_exists", slipway.imports(t, id, "other", "", true).Error, "also when it is idle")
	require.Equal(t, []string{"start deploy 1", "end deploy 1", "start destroy 2", "end destroy 2"}, slipway.runs(t, id))

	// An operator finds it.
	found, err := slipway.temporal.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("%s = '%s' AND WorkflowType = 'Import'", wire.AttributeDeployment, id),
	})
	require.NoError(t, err)
	require.NotEmpty(t, found.GetExecutions())
	require.Equal(t, "import/imported/"+wire.HashRequest("key"), found.GetExecutions()[len(found.GetExecutions())-1].GetExecution().GetWorkflowId())
}

func TestImportDeploys(t *testing.T) {
	t.Parallel()
	const id = "import-deploys"
	submitted, err := slipway.api(t).Import(t.Context(), id, configuration(""), true, "")
	require.NoError(t, err)
	require.EqualValues(t, 1, submitted.Build)
	require.Len(t, submitted.Nodes, 1)
	require.Equal(t, deployment.StateActive, slipway.settled(t, id).State)
	b := slipway.build(t, id, 1, deployment.StatusSucceeded)
	require.Contains(t, b.WorkflowID, "import/import-deploys/")
	require.Equal(t, deployment.EvaluationEvaluated, b.Evaluation)
	require.EqualValues(t, 2, slipway.deploy(t, id, ""))
}

// Whatever is refused has stored nothing, and every node has its own error.
func TestImportRefusals(t *testing.T) {
	t.Parallel()
	const id = "import-refused"
	for configuration, want := range map[string]string{
		`,"systems":{"a":"refuse","b":"good","c":"missing","d":"shape"}`: `{"error":"invalid_configuration","message":"the systems of 3 nodes do not evaluate","details":[
			{"path":"","node":"a","message":"the node a has no disk"},
			{"path":"","node":"c","message":"the source has no attribute \"systems.c\""},
			{"path":"","node":"d","message":"systems.d must be the path of a derivation (its drvPath), it is an attribute set"}]}`,
		`,"evaluate":"refuse"`: `{"error":"invalid_configuration","message":"the domain example.org is not ours\nask for one that is (see slipway.nix)"}`,
		`,"count":3`:           `{"error":"invalid_configuration","message":"the configuration is not valid","details":[{"path":"/test/count","message":"is not a multiple of 2"}]}`,
	} {
		a := slipway.imports(t, id, id, configuration, true)
		require.Equal(t, http.StatusBadRequest, a.Status, a.Body)
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(a.Body), &got))
		delete(got, "requestId")
		text, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, want, string(text))
		slipway.nothingStoredBy(t, id, wire.ImportID)
	}
	slipway.deploy(t, id, "")
}

// Of imports and submits of a deployment that come at once, one makes it known:
// the others get a 409, but for submits that come after it.
func TestImportRaces(t *testing.T) {
	t.Parallel()
	for round := range 3 {
		id := fmt.Sprintf("import-race-%d", round)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var imports, refused int
		for i := range 6 {
			wg.Go(func() {
				var a answer
				if i < 4 {
					a = slipway.imports(t, id, fmt.Sprint(i), "", i%2 == 0)
				} else if _, err := slipway.api(t).Submit(t.Context(), id, configuration(""), ""); err != nil {
					var refused *client.Error
					if !errors.As(err, &refused) {
						t.Error(err)
						return
					}
					a.Status, a.Error = refused.Status, refused.Code
				} else {
					a.Status = http.StatusAccepted
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case a.Status == http.StatusConflict && (a.Error == "already_exists" || a.Error == "submit_in_progress"):
					refused++
				case i < 4 && (a.Status == http.StatusCreated || a.Status == http.StatusAccepted):
					imports++
				case i < 4 || a.Status != http.StatusAccepted:
					t.Errorf("%d: %d %s", i, a.Status, a.Body)
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, imports, 1)
		require.GreaterOrEqual(t, refused, 3, "of four imports at most one is one")
		d := slipway.settled(t, id)
		require.Contains(t, []deployment.State{deployment.StateActive, deployment.StateIdle}, d.State)
	}
}
