package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/stand"
)

// sbomsOf are the states of the SBOMs of a deployment by node.
func (s *site) sbomsOf(t *testing.T, id string) map[string]deployment.NodeSBOM {
	t.Helper()
	nodes, err := s.api(t).SBOMs(t.Context(), id)
	require.NoError(t, err)
	out := map[string]deployment.NodeSBOM{}
	for _, n := range nodes {
		out[n.Node] = n
	}
	require.Len(t, out, len(nodes))
	return out
}

// sbom gets the document of a node, and holds its headers against it.
func (s *site) sbom(t *testing.T, id, node string) string {
	t.Helper()
	path := "/sbom/" + id + "?node=" + url.QueryEscape(node)
	a := s.call(t, http.MethodGet, path, nil, "")
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(a.Body)))
	require.Equal(t, tag, a.Header.Get("ETag"))
	require.Equal(t, fmt.Sprint(len(a.Body)), a.Header.Get("Content-Length"))
	require.Equal(t, "application/vnd.cyclonedx+json; version="+s.sbomsOf(t, id)[node].SpecVersion, a.Header.Get("Content-Type"))
	require.Equal(t, `attachment; filename="`+id+"-"+node+`.cdx.json"`, a.Header.Get("Content-Disposition"))
	require.Equal(t, http.StatusNotModified, s.call(t, http.MethodGet, path, http.Header{"If-None-Match": {tag}}, "").Status)
	head := s.call(t, http.MethodHead, path, nil, "")
	require.Equal(t, http.StatusOK, head.Status)
	require.Equal(t, tag, head.Header.Get("ETag"))
	return a.Body
}

// noSBOM is the reason why a node has none.
func (s *site) noSBOM(t *testing.T, path string) string {
	t.Helper()
	a := s.call(t, http.MethodGet, path, nil, "")
	require.Equal(t, http.StatusNotFound, a.Status, a.Body)
	require.Equal(t, "sbom_unavailable", a.Error, a.Body)
	return a.Message
}

// uses are the nodes that have a component, as "deployment/node".
func (s *site) uses(t *testing.T, q deployment.ComponentQuery) []string {
	t.Helper()
	found, more, err := s.api(t).Components(t.Context(), q, 0)
	require.NoError(t, err)
	require.False(t, more)
	nodes := []string{}
	for _, use := range found {
		nodes = append(nodes, use.Deployment+"/"+use.Node)
	}
	return nodes
}

// TestSBOMsOfTheExample takes a deployment of the example module source, whose
// SBOMs Nix builds, through its life.
func TestSBOMsOfTheExample(t *testing.T) {
	t.Parallel()
	started, err := stand.New(stand.Options{Source: filepath.Join(stand.Root(), "deploy", "source")})
	require.NoError(t, err)
	s, err := newSite(started)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs())
		}
		require.NoError(t, s.Close())
	})
	const id = "example"
	fleet := func(title string, forum bool) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"fleet":{"domain":"example.org","applications":{"wiki":{"enable":true,"title":%q},"forum":{"enable":%t}}}}`, title, forum))
	}
	// The SBOMs are there when a build is seen to have succeeded.
	deploy := func(build int64, configuration json.RawMessage) map[string]deployment.NodeSBOM {
		t.Helper()
		_, err := s.api(t).Submit(t.Context(), id, configuration, "")
		require.NoError(t, err)
		var seen map[string]deployment.NodeSBOM
		errSeen := fmt.Errorf("seen")
		err = s.api(t).Follow(t.Context(), id, client.FollowOptions{Patience: patience}, func(e client.Event) error {
			b, ok := e.Data.(deployment.Build)
			if d, is := e.Data.(deployment.Deployment); is && d.LatestBuild != nil {
				b, ok = *d.LatestBuild, true
			}
			if !ok || b.Number != build || !b.Status.Ended() {
				return nil
			}
			require.Equal(t, deployment.StatusSucceeded, b.Status, b.Reason)
			seen = s.sbomsOf(t, id)
			return errSeen
		})
		require.ErrorIs(t, err, errSeen)
		return seen
	}

	nodes := deploy(1, fleet("Handbook", true))
	require.Len(t, nodes, 3)
	documents := map[string]string{}
	for name, components := range map[string]int{"gateway": 4, "wiki": 4, "forum": 4} {
		n := nodes[name]
		require.Equal(t, deployment.SBOMReady, n.Status, "%s: %s", name, n.Reason)
		require.EqualValues(t, 1, *n.Build)
		require.NotNil(t, n.Time)
		require.Equal(t, "1.5", n.SpecVersion)
		require.Equal(t, components, *n.Components)
		documents[name] = s.sbom(t, id, name)
		var bom cdx.BOM
		require.NoError(t, cdx.NewBOMDecoder(strings.NewReader(documents[name]), cdx.BOMFileFormatJSON).Decode(&bom))
		require.Len(t, *bom.Components, components)
		require.Equal(t, "slipway-system-"+name, bom.Metadata.Component.Name)
	}
	require.Contains(t, s.noSBOM(t, "/sbom-diff/"+id+"?node=wiki"), "before")
	a := s.call(t, http.MethodGet, "/sbom/"+id, nil, "")
	require.Equal(t, http.StatusBadRequest, a.Status)
	require.Contains(t, a.Message, "forum, gateway, wiki")
	runtime := deployment.ComponentQuery{PURL: "pkg:nix/slipway-example-runtime@4.2.1"}
	require.Equal(t, []string{"example/forum", "example/gateway", "example/wiki"}, s.uses(t, runtime))
	require.Equal(t, []string{"example/wiki"}, s.uses(t, deployment.ComponentQuery{Name: "slipway-example-wiki", Version: "1.41.2"}))
	require.Empty(t, s.uses(t, deployment.ComponentQuery{Name: "slipway-example-wiki", Version: "1"}))

	nodes = deploy(2, fleet("Notes", false))
	require.Len(t, nodes, 2, "the forum is gone")
	require.EqualValues(t, 1, *nodes["gateway"].Build, "it did not change")
	require.Equal(t, documents["gateway"], s.sbom(t, id, "gateway"))
	require.EqualValues(t, 2, *nodes["wiki"].Build)
	require.NotEqual(t, documents["wiki"], s.sbom(t, id, "wiki"))
	diff, err := s.api(t).SBOMDiff(t.Context(), id, "wiki")
	require.NoError(t, err)
	require.EqualValues(t, 2, diff.Build)
	require.EqualValues(t, 1, diff.Before)
	require.Empty(t, diff.Added)
	require.Empty(t, diff.Removed)
	require.Len(t, diff.Changed, 1)
	require.Equal(t, "configuration.nix", diff.Changed[0].Name)
	require.Equal(t, []string{"example/gateway", "example/wiki"}, s.uses(t, runtime))

	require.Equal(t, deployment.StateIdle, s.destroy(t, id).State)
	require.Empty(t, s.sbomsOf(t, id))
	require.Contains(t, s.noSBOM(t, "/sbom/"+id+"?node=wiki"), "destroyed")
	require.Empty(t, s.uses(t, runtime))
}

// TestSBOMsOfADeployer: what a deployer leaves comes back byte for byte, or is
// the reason of its node, and only a deploy that succeeds changes anything.
func TestSBOMsOfADeployer(t *testing.T) {
	t.Parallel()
	const id = "sboms"
	folder := t.TempDir()
	require.NoError(t, os.Chmod(folder, 0o755))
	documents := map[string]string{
		"odd":   "\ufeff {\t\"specVersion\" : \"1.6\",\r\n\"components\":[ {\"name\":\"a\",\"type\":\"library\",\"x\":1.0e0} ,{ \"name\":\"\\u0062\",\"type\":\"library\",\"components\":[{\"type\":\"library\",\"name\":\"inner-of-odd\"}]}],\"more\":[1.0,-0,\"\\/\"],\"bomFormat\":\"CycloneDX\",\"version\":1}\n\n",
		"empty": `{"bomFormat":"CycloneDX","specVersion":"1.4","version":1}`,
	}
	real, err := filepath.Glob(filepath.Join(stand.Root(), "schema", "sbom", "testdata", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, real)
	for i, path := range real {
		documents[fmt.Sprintf("real-%d", i)] = string(mustRead(t, path))
	}
	for name, text := range map[string]string{
		"text.json": "no JSON", "spdx.json": `{"spdxVersion":"SPDX-2.3"}`, "new.json": `{"bomFormat":"CycloneDX","specVersion":"9.9","version":1}`,
		"outside.json": documents["empty"], "web.json": documents["empty"],
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	type entry struct {
		Name    string  `json:"name"`
		Changed bool    `json:"changed"`
		SBOM    *string `json:"sbom"`
		Reason  *string `json:"reason"`
	}
	var list []entry
	script := `cp '` + folder + `'/*.json "$SBOM_OUT_DIR"
truncate -s 67108865 "$SBOM_OUT_DIR/large.json"
ln -s '` + folder + `/outside.json' "$SBOM_OUT_DIR/link.json"
mkfifo "$SBOM_OUT_DIR/pipe.json"
mkdir "$SBOM_OUT_DIR/folder.json"
`
	for name, text := range documents {
		file := name + ".cdx.json"
		require.NoError(t, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644))
		list = append(list, entry{Name: name, Changed: true, SBOM: &file})
	}
	reasons := map[string]string{}
	reason := func(node, file, says string) {
		reasons[node] = says
		list = append(list, entry{Name: node, Changed: true, SBOM: &file})
	}
	reason("text", "text.json", "not JSON")
	reason("spdx", "spdx.json", "not CycloneDX")
	reason("new", "new.json", "version")
	reason("missing", "missing.json", "no such file")
	reason("large", "large.json", "64 MiB")
	reason("link", "link.json", "symbolic link")
	reason("pipe", "pipe.json", "regular file")
	reason("folder", "folder.json", "regular file")
	reason("climbs", "../outside.json", "SBOM_OUT_DIR itself")
	reason("absolute", filepath.Join(folder, "outside.json"), "SBOM_OUT_DIR itself")
	said := "it took\ntoo \u202elong"
	reasons["said"], list = "it took too", append(list, entry{Name: "said", Changed: true, Reason: &said})
	reasons["silent"], list = "neither", append(list, entry{Name: "silent", Changed: true})
	if os.Geteuid() == 0 {
		script += "mknod \"$SBOM_OUT_DIR/device.json\" c 1 5\n"
		reason("device", "device.json", "regular file")
	}
	own := "web.json"
	// The node that the evaluation gives is listed always.
	list = append(list, entry{Name: "web", SBOM: &own})
	reasons["web"] = "since slipway keeps SBOMs"

	give := func(script string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(slipway.Record, id+".script"), []byte(script), 0o644))
	}
	nodesJSON := func(list []entry) string {
		text, err := json.Marshal(map[string][]entry{"nodes": list})
		require.NoError(t, err)
		file := filepath.Join(folder, "nodes")
		require.NoError(t, os.WriteFile(file, text, 0o644))
		return "cp '" + file + "' \"$SBOM_OUT_DIR/nodes.json\"\n"
	}
	give(script + nodesJSON(list))
	slipway.deploy(t, id, `"deploy":"script"`)
	before := slipway.sbomsOf(t, id)
	require.Len(t, before, len(list))
	for node, text := range documents {
		require.Equal(t, deployment.SBOMReady, before[node].Status, "%s: %s", node, before[node].Reason)
		require.EqualValues(t, 1, *before[node].Build)
		require.Equal(t, text, slipway.sbom(t, id, node), node)
		// cyclonedx-go, as the JSON of Go, takes no byte order mark.
		var bom cdx.BOM
		plain := bytes.TrimPrefix([]byte(text), []byte("\ufeff"))
		require.NoError(t, cdx.NewBOMDecoder(bytes.NewReader(plain), cdx.BOMFileFormatJSON).Decode(&bom))
	}
	for node, says := range reasons {
		require.Equal(t, deployment.SBOMUnavailable, before[node].Status, node)
		require.Contains(t, before[node].Reason, says, node)
		require.Contains(t, slipway.noSBOM(t, "/sbom/"+id+"?node="+node), says)
		require.NotContains(t, before[node].Reason, slipway.Dir)
	}
	require.Nil(t, before["web"].Build)
	require.Equal(t, []string{id + "/odd"}, slipway.uses(t, deployment.ComponentQuery{Name: "b"}))
	require.Equal(t, []string{id + "/odd"}, slipway.uses(t, deployment.ComponentQuery{Name: "inner-of-odd"}))
	limited := http.Header{"Authorization": {"Bearer " + slipway.Token(issuer.Claims{Deployments: []string{"another"}})}}
	require.JSONEq(t, `{"nodes":[],"more":false}`, slipway.call(t, http.MethodGet, "/components?name=inner-of-odd", limited, "").Body)

	// The command line.
	file := filepath.Join(t.TempDir(), "odd.cdx.json")
	r := cli(t, "sbom", id, "--node", "odd", "-o", file)
	require.Zero(t, r.code, r.err)
	require.Equal(t, documents["odd"], string(mustRead(t, file)))
	r = cli(t, "sbom", id, "--node", "odd")
	require.Equal(t, documents["odd"], r.out)
	r = cli(t, "sbom", id)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "REASON")
	r = cli(t, "sbom", id, "--node", "text")
	require.Equal(t, 4, r.code)
	require.Contains(t, r.err, "not JSON")

	// What changes nothing: a deploy that fails, and one that leaves no list, or
	// a bad one.
	changed := func(node string, build int64) {
		t.Helper()
		now := slipway.sbomsOf(t, id)
		require.EqualValues(t, build, *now[node].Build)
		now[node] = before[node]
		require.Equal(t, before, now)
	}
	give(script + nodesJSON([]entry{{Name: "odd", Changed: true, SBOM: &own}}))
	slipway.submit(t, id, `"deploy":"script-fail"`)
	require.Equal(t, deployment.StateFailed, slipway.settled(t, id).State)
	changed("odd", 1)
	give(script)
	slipway.deploy(t, id, `"deploy":"script"`)
	changed("odd", 1)
	for _, bad := range []string{`{"nodes"`, `[]`, `{"nodes":[{"name":"../web","changed":true}]}`, `{"nodes":[{"name":"a","changed":true},{"name":"a","changed":true}]}`} {
		give(script + "printf '%s' '" + bad + "' >\"$SBOM_OUT_DIR/nodes.json\"\n")
		build := slipway.deploy(t, id, `"deploy":"script"`)
		changed("odd", 1)
		require.Contains(t, slipway.logOf(t, id, build), "nodes.json", "the log says what is wrong")
	}

	// A change, with the earlier one kept; the others are gone.
	empty := "empty.cdx.json"
	give(script + nodesJSON([]entry{{Name: "odd", Changed: true, SBOM: &empty}, {Name: "empty"}, {Name: "web"}}))
	build := slipway.deploy(t, id, `"deploy":"script"`)
	require.Len(t, slipway.sbomsOf(t, id), 3)
	require.Equal(t, documents["empty"], slipway.sbom(t, id, "odd"))
	require.EqualValues(t, 1, *slipway.sbomsOf(t, id)["empty"].Build)
	diff, err := slipway.api(t).SBOMDiff(t.Context(), id, "odd")
	require.NoError(t, err)
	require.Equal(t, deployment.SBOMDiff{Node: "odd", Build: build, Before: 1, Added: []deployment.SBOMComponent{}, Changed: []deployment.SBOMChange{},
		Removed: []deployment.SBOMComponent{{Name: "a"}, {Name: "b"}}}, diff)
	require.Contains(t, cli(t, "sbom", id, "--node", "odd", "--diff").out, "2 removed")
	require.Empty(t, slipway.uses(t, deployment.ComponentQuery{Name: "inner-of-odd"}))

	require.Equal(t, deployment.StateIdle, slipway.destroy(t, id).State)
	require.Empty(t, slipway.sbomsOf(t, id))
}
