package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// sourceOf is a module source that schema/configuration is tested with, as the
// snapshot at a path.
func sourceOf(t *testing.T, name, snapshot string) deployment.Source {
	t.Helper()
	text, err := os.ReadFile("../schema/configuration/testdata/" + name + ".json")
	require.NoError(t, err)
	source := deployment.Source{Snapshot: snapshot}
	var members struct {
		Schema  json.RawMessage
		Method  *string
		Methods []string
	}
	require.NoError(t, json.Unmarshal(text, &members))
	source.Schema, source.Method, source.Methods = members.Schema, members.Method, members.Methods
	return source
}

func pages(instances []deployment.Instance) []string {
	out := []string{}
	for _, i := range instances {
		if i.URL != nil {
			out = append(out, *i.URL)
		}
	}
	return out
}

const wikiOf = `{"fleet":{"domain":"%s","applications":{"wiki":{"enable":true}}}}`

func TestFactsOfADeployment(t *testing.T) {
	b := start(t, nil)
	b.SetSource(sourceOf(t, "example", "/nix/store/one"))
	shown := func() (d deployment.Deployment) {
		a := b.do("GET", "/deployments/one", "")
		a.json(t, &d)
		// The channel and the list show the same.
		snapshot, err := b.api.shown.Snapshot(t.Context(), "one")
		require.NoError(t, err)
		text, err := encodeDeployment(snapshot.Deployment)
		require.NoError(t, err)
		require.JSONEq(t, a.body, string(text))
		var listed struct{ Deployments []json.RawMessage }
		b.do("GET", "/deployments?id=one", "").json(t, &listed)
		require.JSONEq(t, a.body, string(listed.Deployments[0]))
		return d
	}
	submit := func(configuration string) int64 { return b.Record("one", deployment.ActionDeploy, configuration) }
	end := func(n int64, status deployment.Status) {
		b.Start("one", n)
		b.End("one", n, status)
	}

	first := submit(fmt.Sprintf(wikiOf, "example.org"))
	d := shown()
	require.Equal(t, "example.org", *d.Domain)
	require.Equal(t, "fleet", *d.Method)
	require.Equal(t, []string{"https://wiki.example.org", "https://status.example.org"}, pages(d.Instances.Submitted))
	require.Empty(t, d.Instances.Deployed)
	require.Contains(t, b.do("GET", "/deployments/one", "").body, `"deployed":[]`)

	end(first, deployment.StatusSucceeded)
	require.Equal(t, shown().Instances.Submitted, shown().Instances.Deployed)

	// Of a failed deploy the last one that succeeded still serves.
	end(submit(fmt.Sprintf(wikiOf, "example.net")), deployment.StatusFailed)
	d = shown()
	require.Equal(t, "example.net", *d.Domain)
	require.Equal(t, []string{"https://wiki.example.net", "https://status.example.net"}, pages(d.Instances.Submitted))
	require.Equal(t, []string{"https://wiki.example.org", "https://status.example.org"}, pages(d.Instances.Deployed))

	// Each is read by the source that it was recorded with.
	b.SetSource(sourceOf(t, "pinned", "/nix/store/two"))
	require.Equal(t, d.Instances, shown().Instances, "another source changes nothing that was recorded")
	second := submit(`{"domain":"Bücher.Example.","applications":{"mailer":{}}}`)
	d = shown()
	require.Equal(t, "xn--bcher-kva.example", *d.Domain)
	require.Equal(t, "appliance", *d.Method)
	require.Equal(t, []string{"https://www.xn--bcher-kva.example", "https://console.xn--bcher-kva.example"}, pages(d.Instances.Submitted))
	require.Equal(t, []string{"https://wiki.example.org", "https://status.example.org"}, pages(d.Instances.Deployed))
	end(second, deployment.StatusSucceeded)
	require.Equal(t, shown().Instances.Submitted, shown().Instances.Deployed)

	// Hauled out: nothing serves, and what was submitted stays to be seen.
	end(b.Record("one", deployment.ActionDestroy, ""), deployment.StatusSucceeded)
	d = shown()
	require.Empty(t, d.Instances.Deployed)
	require.Len(t, pages(d.Instances.Submitted), 2)
	require.Equal(t, "appliance", *d.Method)
}

// What cannot be read has no facts, and is shown all the same.
func TestFactsOfWhatCannotBeRead(t *testing.T) {
	b := start(t, nil)
	for name, source := range map[string]deployment.Source{
		"no-schema": {Snapshot: "/nix/store/none", Schema: json.RawMessage(``), Methods: []string{"fleet"}},
		"bad":       {Snapshot: "/nix/store/bad", Schema: json.RawMessage(`{"type":"no-such-type"}`), Methods: []string{"fleet"}},
		"method":    {Snapshot: "/nix/store/method", Schema: json.RawMessage(`{}`), Methods: []string{"other"}},
	} {
		b.SetSource(source)
		b.Record(name, deployment.ActionDeploy, `{"fleet":{"domain":"example.org"}}`)
		var d deployment.Deployment
		b.do("GET", "/deployments/"+name, "").json(t, &d)
		require.Nil(t, d.Domain)
		require.Nil(t, d.Method)
		require.Empty(t, d.Instances.Submitted)
		require.Contains(t, b.do("GET", "/deployments?id="+name, "").body, `"submitted":[]`)
	}
}

func TestAListReadsEachSnapshotOnce(t *testing.T) {
	b := start(t, nil)
	var ids []string
	for i := range 300 {
		name := []string{"example", "pinned", "composed"}[i%3]
		ids = append(ids, fmt.Sprintf("d%d", i))
		b.SetSource(sourceOf(t, name, "/nix/store/"+name))
		b.Record(ids[i], deployment.ActionDeploy, []string{fmt.Sprintf(wikiOf, "example.org"), `{"domain":"example.org"}`, `{"solo":{}}`}[i%3])
	}
	asked := slices.Concat(ids[:100], []string{"nobody"}, ids[100:])
	body, err := json.Marshal(map[string][]string{"ids": asked})
	require.NoError(t, err)
	for range 2 {
		var all struct{ Deployments []deployment.Deployment }
		b.do("POST", "/deployments/list", string(body)).json(t, &all)
		require.Len(t, all.Deployments, 300)
		for i, d := range all.Deployments {
			require.Equal(t, ids[i], d.ID)
			require.Equal(t, "example.org", *d.Domain)
			require.NotEmpty(t, d.Instances.Submitted)
		}
	}
	require.Equal(t, 3, b.Reads("SourceSnapshot"), "what is compiled is kept")
}

func TestPreviewHasTheInstances(t *testing.T) {
	b := start(t, nil)
	b.SetSource(sourceOf(t, "example", "/nix/store/one"))
	b.SetNames("evaluation", deployment.Names{})
	var out previewed
	b.do("POST", "/deployments/one/preview", `{"configuration":`+fmt.Sprintf(wikiOf, "example.org")+`}`).json(t, &out)
	require.Equal(t, []string{"https://wiki.example.org", "https://status.example.org"}, pages(out.Instances))
}

// A preview checks what a submit checks: the same refusals, and what passes goes
// to the evaluation in the same form.
func TestPreviewChecksWhatASubmitChecks(t *testing.T) {
	for name, refused := range map[string]struct {
		tune  func(*Config)
		times int
	}{
		"with OpenBao":    {func(c *Config) { c.Sealer = &sealer{} }, 24},
		"without OpenBao": {nil, 26},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, refused.times, previewChecksWhatASubmitChecks(t, start(t, refused.tune)))
		})
	}
}

// previewChecksWhatASubmitChecks says how often both refused.
func previewChecksWhatASubmitChecks(t *testing.T, b *bundle) (refused int) {
	b.SetSource(sourceOf(t, "example", "/nix/store/one"))
	b.SetNames("evaluation", deployment.Names{})
	of := func(applications string) string {
		return `{"configuration":{"fleet":{"domain":"example.org","applications":` + applications + `}}}`
	}
	for _, body := range []string{
		``, `{`, `[]`, `null`, `{}`, `{"configuration":null}`, `{"configuration":[]}`, `{"configuration":{}}`, `{"configuration":{},"more":1}`,
		`{"configuration":{"fleet":{},"fleet":{}}}`, `{"configuration":{"fleet":{},"single":{}}}`, `{"configuration":{"other":{}}}`,
		`{"configuration":{"fleet":{"domain":"EXAMPLE.org","applications":{}}}}`, `{"configuration":{"fleet":{"domain":"example.org"}}}`,
		of(`{}`), of(`[]`), of(`{"wiki":{"enable":1}}`), of(`{"wiki":{"enable":true}}`), of(`{"wiki":{"public":false,"enable":true}}`),
		of(`{"forum":{"uploadMegabytes":16.0}}`), of(`{"forum":{"uploadMegabytes":1e9}}`), of(`{"forum":{"uploadMegabytes":99999999999999999999}}`),
		of(`{"forum":{"secretsClear":["translationApiKey"],"secretsSet":["x"]}}`), of(`{"forum":{"secretsClear":["nothing"]}}`),
		of(`{"forum":{"secretsClear":7}}`), of(`{"forum":{"translationApiKey":"","smtp":{"password":null}}}`),
		of(`{"forum":{"translationApiKey":"twelve-letters-and-more"}}`), of(`{"forum":{"smtp":{"password":"twelve-letters-and-more"}}}`),
		of(`{"forum":{"translationApiKey":7}}`), of(`{"forum":{"smtp":{"password":{"a":1}}}}`),
		of(`{"forum":{"title":"\u0000"}}`), of(`{"forum":` + strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200) + `}`),
		of(`{"forum":{"title":"` + strings.Repeat("a", 1<<20) + `"}}`),
	} {
		b.workflows.set(func(w *workflows) { w.submits, w.previews = nil, nil })
		submit, preview := b.do("PUT", "/deployments/one", body), b.do("POST", "/deployments/one/preview", body)
		short := body[:min(len(body), 200)]
		if submit.status != http.StatusAccepted {
			refused++
			want, got := submit.failure(t), preview.failure(t)
			want.RequestID, got.RequestID = "", ""
			require.Equal(t, want, got, short)
			require.Equal(t, submit.status, preview.status, short)
			require.Empty(t, b.workflows.submits, short)
			require.Empty(t, b.workflows.previews, short)
			continue
		}
		require.Equal(t, http.StatusOK, preview.status, short+preview.body)
		if strings.Contains(body, "twelve-letters") {
			continue // a workflow marks what is set in the configuration of a submit
		}
		require.Equal(t, []wire.PreviewInput{{Deployment: "one", Snapshot: b.workflows.submits[0].Snapshot, Configuration: b.workflows.submits[0].Configuration}},
			b.workflows.previews, short)
	}
	return refused
}
