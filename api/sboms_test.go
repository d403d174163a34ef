package api

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"slipway.dev/slipway/api/internal/memory"
	"slipway.dev/slipway/schema/deployment"
)

// ready is the state of an SBOM that can be served.
func ready(node string, build int64) deployment.NodeSBOM {
	components, at := 2, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return deployment.NodeSBOM{Node: node, Status: deployment.SBOMReady, Build: &build, Time: &at, SpecVersion: "1.6", Components: &components}
}

func unavailable(node, reason string) deployment.NodeSBOM {
	return deployment.NodeSBOM{Node: node, Status: deployment.SBOMUnavailable, Reason: reason}
}

const sbomText = "\ufeff{ \"bomFormat\":\"CycloneDX\",\t\"n\": 1.0 }\n\n"

func TestSBOMList(t *testing.T) {
	b := start(t, nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	require.Equal(t, `{"nodes":[]}`, b.do("GET", "/sbom-list/one", "").body)
	b.SetSBOM("one", memory.SBOM{NodeSBOM: ready("web", 1), Text: sbomText})
	b.SetSBOM("one", memory.SBOM{NodeSBOM: unavailable("db", "it does not build")})
	require.JSONEq(t, `{"nodes":[
		{"node":"db","status":"unavailable","reason":"it does not build","build":null,"time":null},
		{"node":"web","status":"ready","build":1,"time":"2026-01-02T03:04:05Z","specVersion":"1.6","components":2}
	]}`, b.do("GET", "/sbom-list/one", "").body)
	require.Equal(t, codeNotFound, b.do("GET", "/sbom-list/two", "").failure(t).Error)
}

func TestSBOM(t *testing.T) {
	b := start(t, nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	b.SetSBOM("one", memory.SBOM{NodeSBOM: ready("web", 1), Text: sbomText})
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(sbomText)))

	a := b.do("GET", "/sbom/one?node=web", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, sbomText, a.body)
	want := map[string]string{
		"Content-Type":        "application/vnd.cyclonedx+json; version=1.6",
		"Content-Length":      fmt.Sprint(len(sbomText)),
		"Content-Disposition": `attachment; filename="one-web.cdx.json"`,
		"ETag":                tag,
		"Cache-Control":       "private, no-cache",
	}
	for name, value := range want {
		require.Equal(t, value, a.header.Get(name), name)
	}
	require.Equal(t, sbomText, b.do("GET", "/sbom/one", "").body, "there is one node")

	read := b.Reads("SBOMText")
	head := b.do("HEAD", "/sbom/one", "")
	require.Equal(t, http.StatusOK, head.status)
	require.Empty(t, head.body)
	for name, value := range want {
		require.Equal(t, value, head.header.Get(name), name)
	}
	for _, header := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
		for _, method := range []string{"GET", "HEAD"} {
			a := b.do(method, "/sbom/one", "", "If-None-Match", header)
			require.Equal(t, http.StatusNotModified, a.status, header)
			require.Empty(t, a.body)
			require.Equal(t, tag, a.header.Get("ETag"))
		}
	}
	require.Equal(t, read, b.Reads("SBOMText"), "no text was needed")
	require.Equal(t, sbomText, b.do("GET", "/sbom/one", "", "If-None-Match", `"other"`).body)
	require.Equal(t, codeMethodNotAllowed, b.do("POST", "/sbom/one", "").failure(t).Error)
}

func TestNoSBOM(t *testing.T) {
	b := start(t, nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	for _, path := range []string{"/sbom/one", "/sbom/one?node=web", "/sbom-diff/one"} {
		f := b.do("GET", path, "").failure(t)
		require.Equal(t, codeSBOMUnavailable, f.Error, path)
		require.Contains(t, f.Message, "no nodes", path)
	}
	b.SetSBOM("one", memory.SBOM{NodeSBOM: ready("web", 1), Text: sbomText})
	require.Contains(t, b.do("GET", "/sbom-diff/one", "").failure(t).Message, "no earlier")
	b.SetSBOM("one", memory.SBOM{NodeSBOM: unavailable("db", "the file db.json is not JSON")})
	b.Record("many", deployment.ActionDeploy, `{}`)
	for n := range 60 {
		b.SetSBOM("many", memory.SBOM{NodeSBOM: unavailable(fmt.Sprintf("node-%02d", n), "none")})
	}
	for _, c := range []struct {
		query string
		code  code
		says  string
	}{
		{"one", codeInvalidRequest, "the parameter node must name one of db, web"},
		{"one?node=", codeInvalidRequest, "node must not be empty"},
		{"one?node=web&node=db", codeInvalidRequest, "node must come once"},
		{"one?node=%00", codeInvalidRequest, "without NUL"},
		{"one?node=%ff", codeInvalidRequest, "UTF-8"},
		{"one?node=" + strings.Repeat("a", 4097), codeInvalidRequest, "at most 4096"},
		{"one?node=Web", codeNotFound, `no node "Web"; its nodes are db, web`},
		{"one?node=" + strings.Repeat("a", 4096), codeNotFound, "its nodes are db, web"},
		{"one?node=..%2f..%2fetc", codeNotFound, "its nodes are db, web"},
		{"one?node=db", codeSBOMUnavailable, "the file db.json is not JSON"},
		{"many", codeInvalidRequest, "node-49 and 10 more"},
		{"two?node=web", codeNotFound, "no such deployment"},
	} {
		for _, path := range []string{"/sbom/", "/sbom-diff/"} {
			f := b.do("GET", path+c.query, "").failure(t)
			require.Equal(t, c.code, f.Error, path+c.query)
			require.Contains(t, f.Message, c.says, path+c.query)
		}
	}
}

func TestSBOMDiff(t *testing.T) {
	b := start(t, nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	diff := deployment.SBOMDiff{Node: "web", Build: 3, Before: 1}
	b.SetSBOM("one", memory.SBOM{NodeSBOM: ready("web", 3), Text: sbomText, Diff: &diff})
	require.JSONEq(t, `{"node":"web","build":3,"before":1,"added":[],"removed":[],"changed":[]}`, b.do("GET", "/sbom-diff/one", "").body)
	diff.Added = []deployment.SBOMComponent{{Name: "a"}}
	diff.Changed = []deployment.SBOMChange{{
		SBOMComponent: deployment.SBOMComponent{Name: "b", Version: "2", PURL: "pkg:nix/b@2"},
		Before:        deployment.SBOMComponent{Name: "b", Version: "1", PURL: "pkg:nix/b@1"},
	}}
	require.JSONEq(t, `{"node":"web","build":3,"before":1,"added":[{"name":"a"}],"removed":[],
		"changed":[{"name":"b","version":"2","purl":"pkg:nix/b@2","before":{"name":"b","version":"1","purl":"pkg:nix/b@1"}}]}`,
		b.do("GET", "/sbom-diff/one?node=web", "").body)
}

func TestComponents(t *testing.T) {
	b := start(t, nil)
	openssl := deployment.SBOMComponent{Name: "openssl", Version: "3.0+1", PURL: "pkg:nix/openssl@3.0%2B1"}
	older := deployment.SBOMComponent{Name: "openssl", Version: "1.1"}
	for _, id := range []string{"one", "three", "two"} {
		b.Record(id, deployment.ActionDeploy, `{}`)
		b.SetSBOM(id, memory.SBOM{NodeSBOM: ready("web", 1), Components: []deployment.SBOMComponent{openssl}})
		b.SetSBOM(id, memory.SBOM{NodeSBOM: ready("db", 1), Components: []deployment.SBOMComponent{older}})
	}
	type found struct {
		Nodes []deployment.ComponentUse
		More  bool
	}
	find := func(query string, header ...string) (found, []string) {
		a := b.do("GET", "/components?"+query, "", header...)
		require.Equal(t, http.StatusOK, a.status, a.body)
		var f found
		a.json(t, &f)
		places := []string{}
		for _, n := range f.Nodes {
			places = append(places, n.Deployment+" "+n.Node)
		}
		return f, places
	}
	f, places := find("purl=pkg:nix/openssl@3.0%252B1")
	require.Equal(t, []string{"one web", "three web", "two web"}, places)
	require.Equal(t, deployment.ComponentUse{Deployment: "one", Node: "web", Build: 1, Component: openssl}, f.Nodes[0])
	_, places = find("name=openssl")
	require.Len(t, places, 6)
	_, places = find("name=openssl&version=3.0%2B1")
	require.Len(t, places, 3)
	f, places = find("name=openssl&limit=2")
	require.Equal(t, []string{"one db", "one web"}, places)
	require.True(t, f.More)
	f, _ = find("name=openssl&limit=6")
	require.False(t, f.More)
	require.Equal(t, `{"nodes":[],"more":false}`, b.do("GET", "/components?name=none", "").body)

	limited := func(ids ...string) string {
		return "Bearer " + b.token(both, claims{"deployments": append([]string{}, ids...)})
	}
	_, places = find("name=openssl", "Authorization", limited("two", "unknown", "NO\x00ID"))
	require.Equal(t, []string{"two db", "two web"}, places)
	before := b.Reads("ComponentUses")
	_, places = find("name=openssl", "Authorization", limited())
	require.Empty(t, places)
	_, places = find("name=openssl", "Authorization", limited("NO ID"))
	require.Empty(t, places)
	require.Equal(t, before, b.Reads("ComponentUses"))
	require.Equal(t, codeForbidden, b.do("GET", "/components?name=x", "", "Authorization", "Bearer "+b.token("", nil)).failure(t).Error)
	require.Equal(t, codeUnauthorized, b.do("GET", "/components?name=x", "", "Authorization", "").failure(t).Error)

	for query, says := range map[string]string{
		"":                                  "purl, or the parameter name",
		"version=1":                         "purl, or the parameter name",
		"purl=pkg:nix/a&name=a":             "purl comes alone",
		"purl=pkg:nix/a&version=1":          "purl comes alone",
		"purl=openssl":                      "begins with pkg:",
		"purl=":                             "purl must not be empty",
		"name=":                             "name must not be empty",
		"name=a&name=b":                     "name must come once",
		"name=a&version=%00":                "version must be UTF-8",
		"name=" + strings.Repeat("a", 5000): "at most 4096",
		"purl=pkg:nix/a%zz":                 "percent-encoded",
		"name=a&limit=0":                    "limit",
		"name=a&limit=10001":                "limit",
	} {
		f := b.do("GET", "/components?"+query, "").failure(t)
		require.Equal(t, codeInvalidRequest, f.Error, query)
		require.Contains(t, f.Message, says, query)
	}
}

// TestLargeSBOMsAreServedInTurn: as many as fit into memory are served, others
// wait, and a client that does not take its document is dropped.
func TestLargeSBOMsAreServedInTurn(t *testing.T) {
	b := start(t, func(c *Config) {
		c.Timeout = time.Second
		c.WriteTimeout = 4 * time.Second
	})
	// More than the system keeps on the way.
	const size = 16 << 20
	b.api.large = semaphore.NewWeighted(2 * size)
	b.Record("one", deployment.ActionDeploy, `{}`)
	large := strings.Repeat("0123456789abcdef", size/16)
	b.SetSBOM("one", memory.SBOM{NodeSBOM: ready("large", 1), Text: large})
	b.SetSBOM("one", memory.SBOM{NodeSBOM: ready("small", 1), Text: sbomText})

	// Two take nothing of theirs but the header.
	var held []io.ReadCloser
	for range 2 {
		response, err := http.DefaultClient.Do(b.request("GET", "/sbom/one?node=large", ""))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		held = append(held, response.Body)
		defer func() { _ = response.Body.Close() }()
	}
	for _, path := range []string{"/sbom/one?node=large", "/sbom/one?node=small", "/sbom-diff/one?node=large"} {
		f := b.do("GET", path, "").failure(t)
		require.Equal(t, codeServiceUnavailable, f.Error, path)
		require.Contains(t, f.Message, "as many SBOMs", path)
	}
	require.Equal(t, http.StatusOK, b.do("HEAD", "/sbom/one?node=large", "").status, "which needs no text")
	require.Eventually(t, func() bool {
		free := b.api.large.TryAcquire(2 * size)
		if free {
			b.api.large.Release(2 * size)
		}
		return free
	}, patience, 50*time.Millisecond, "who does not take his is dropped")
	require.Equal(t, sbomText, b.do("GET", "/sbom/one?node=small", "").body)
	for _, body := range held {
		_, err := io.Copy(io.Discard, body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "and can tell")
	}

	// Those that take theirs all get it, one after another.
	var wait sync.WaitGroup
	statuses := make([]int, 4)
	for i := range statuses {
		wait.Go(func() {
			for statuses[i] != http.StatusOK && !t.Failed() {
				response, err := http.DefaultClient.Do(b.request("GET", "/sbom/one?node=large", ""))
				if err != nil {
					t.Error(err)
					return
				}
				n, err := io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				statuses[i] = response.StatusCode
				if err != nil || statuses[i] == http.StatusOK && n != int64(len(large)) {
					t.Errorf("%d bytes: %v", n, err)
				}
			}
		})
	}
	wait.Wait()
	require.Equal(t, slices.Repeat([]int{http.StatusOK}, len(statuses)), statuses)
}
