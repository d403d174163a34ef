package e2e

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

// TestWhatADeploymentServes follows the facts through a life: submitted,
// deployed, changed by a deploy that fails, hauled out; and asks for those of
// drafts, without a token.
func TestWhatADeploymentServes(t *testing.T) {
	t.Parallel()
	const id = "serves"
	names := func(instances []deployment.Instance) []string {
		out := []string{}
		for _, i := range instances {
			out = append(out, i.Name)
		}
		return out
	}
	wiki, forum := `"applications":{"wiki":{}}`, `"applications":{"forum":{},"wiki":{}},"deploy":"fail"`
	slipway.deploy(t, id, wiki)
	d := slipway.settled(t, id)
	require.Equal(t, "example.org", *d.Domain)
	require.Equal(t, "test", *d.Method)
	require.Equal(t, []string{"wiki"}, names(d.Instances.Submitted))
	require.Equal(t, d.Instances.Submitted, d.Instances.Deployed)

	slipway.submit(t, id, forum)
	d = slipway.settled(t, id)
	require.Equal(t, deployment.StateFailed, d.State)
	require.Equal(t, []string{"forum", "wiki"}, names(d.Instances.Submitted))
	require.Equal(t, []string{"wiki"}, names(d.Instances.Deployed))
	listed, err := slipway.api(t).List(t.Context(), []string{id})
	require.NoError(t, err)
	require.Equal(t, d.Instances, listed[0].Instances)
	shown := cli(t, "show", id)
	require.Zero(t, shown.code, shown.err)
	inOrder(t, shown.out, "…", `domain +example\.org`, `method +test`, ``,
		`INSTANCE +DEPLOYED +SUBMITTED`, `application forum +- +no page`, `application wiki +no page +no page`, "…")

	d = slipway.destroy(t, id)
	require.Empty(t, d.Instances.Deployed)
	require.Equal(t, []string{"forum", "wiki"}, names(d.Instances.Submitted))

	anonymous := asJSON()
	anonymous.Set("Authorization", "")
	a := slipway.call(t, http.MethodPost, "/application-paths", anonymous,
		`{"configuration":`+string(configuration(forum))+`,"previous":`+string(configuration(wiki))+`}`)
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	require.JSONEq(t, `{"changed":["forum"],"applications":[
		{"application":"forum","path":"/test/applications/forum","enabled":true},
		{"application":"wiki","path":"/test/applications/wiki","enabled":true}]}`, a.Body)
	a = slipway.call(t, http.MethodPost, "/sections", anonymous, body(configuration(wiki)))
	require.JSONEq(t, `{"sections":[{"id":"wiki","title":"wiki","path":"/test/applications/wiki","kind":"application"}]}`, a.Body)
	var previewed struct{ Instances []deployment.Instance }
	require.NoError(t, json.Unmarshal([]byte(slipway.preview(t, id, body(configuration(wiki))).Body), &previewed))
	require.Equal(t, []string{"wiki"}, names(previewed.Instances))
}
