package deployments

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway/exit"
)

const sbomText = "\ufeff{ \"bomFormat\": \"CycloneDX\", \"n\": 1.0,\r\n\"x\": \"\u009b31m\u202e\" }\n"

// serveSBOM serves a document, or of it what was cut.
func serveSBOM(cut int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.cyclonedx+json; version=1.6")
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(sbomText))))
		_, _ = io.WriteString(w, sbomText[:len(sbomText)-cut])
	}
}

const (
	webSBOM = `{"node":"web","status":"ready","build":3,"time":"2026-01-02T03:04:05Z","specVersion":"1.6","components":1234}`
	dbSBOM  = `{"node":"db","status":"unavailable","reason":"the SBOM does not build","build":null,"time":null}`
)

func TestSBOM(t *testing.T) {
	f := newFake(t).
		on("GET /sbom-list/example", reply(200, `{"nodes":[`+webSBOM+`]}`)).
		on("GET /sbom/example", serveSBOM(0))
	out, errOut, err := f.run(t, "sbom", "example")
	require.NoError(t, err)
	require.Equal(t, sbomText, out, "byte for byte")
	require.Empty(t, errOut)
	out, _, err = f.run(t, "sbom", "example", "-o", "json")
	require.NoError(t, err)
	require.Equal(t, sbomText, out)
	require.Equal(t, []string{"GET /sbom/example?node=web", "GET /sbom/example?node=web"}, f.requests("GET /sbom/"))
	listed := len(f.requests("GET /sbom-list/"))
	_, _, err = f.run(t, "sbom", "example", "--node", "web")
	require.NoError(t, err)
	require.Len(t, f.requests("GET /sbom-list/"), listed)

	i := invocation{outWidth: 80}
	require.NoError(t, i.run(t, f, "sbom", "example"))
	require.NotContains(t, i.out.String(), "\u009b")
	require.NotContains(t, i.out.String(), "\u202e")

	f.on("GET /sbom/example", serveSBOM(3))
	_, _, err = f.run(t, "sbom", "example")
	require.Equal(t, 5, exit.Code(err))
	require.ErrorContains(t, err, "not the one that its ETag names")
	f.on("GET /sbom/example", reply(404, `{"error":"sbom_unavailable","message":"the SBOM does not build"}`))
	_, _, err = f.run(t, "sbom", "example")
	require.Equal(t, 4, exit.Code(err))
	require.ErrorContains(t, err, "the SBOM does not build (sbom_unavailable)")
}

func TestSBOMToAFile(t *testing.T) {
	f := newFake(t).
		on("GET /sbom-list/example", reply(200, `{"nodes":[`+webSBOM+`]}`)).
		on("GET /sbom/example", serveSBOM(0))
	folder := t.TempDir()
	file, link := filepath.Join(folder, "web.cdx.json"), filepath.Join(folder, "link")
	is := func(text string) {
		t.Helper()
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		for _, e := range entries {
			require.NotContains(t, e.Name(), ".part")
		}
	}
	require.NoError(t, os.WriteFile(file, []byte("before"), 0o600))

	f.on("GET /sbom/example", serveSBOM(1))
	_, _, err := f.run(t, "sbom", "example", "-o", file)
	require.Equal(t, 5, exit.Code(err))
	is("before")

	f.on("GET /sbom/example", serveSBOM(0))
	out, errOut, err := f.run(t, "sbom", "example", "--node", "web", "-o", file)
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, fmt.Sprintf("wrote %s, %d bytes\n", file, len(sbomText)), errOut)
	is(sbomText)

	require.NoError(t, os.WriteFile(file, []byte("before"), 0o600))
	require.NoError(t, os.Symlink(file, link))
	_, _, err = f.run(t, "sbom", "example", "-o", link)
	require.NoError(t, err)
	is(sbomText)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)

	_, _, err = f.run(t, "sbom", "example", "-o", os.DevNull)
	require.NoError(t, err)
	info, err = os.Stat(os.DevNull)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeDevice, "it is not replaced")

	for path, want := range map[string]string{folder: "is a folder", filepath.Join(folder, "no", "file"): "no such file"} {
		_, _, err = f.run(t, "sbom", "example", "-o", path)
		require.Equal(t, 2, exit.Code(err))
		require.ErrorContains(t, err, want)
	}
}

func TestSBOMsOfSeveralNodes(t *testing.T) {
	f := newFake(t).on("GET /sbom-list/example", reply(200, `{"nodes":[`+dbSBOM+`,`+webSBOM+`]}`))
	out, _, err := f.run(t, "sbom", "example")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^NODE  SBOM         BUILD  SINCE +CYCLONEDX  COMPONENTS  REASON$`, lines[0])
	require.Regexp(t, `^db    unavailable  -      - +-          -           the SBOM does not build$`, lines[1])
	require.Regexp(t, `^web   ready        3      2026-01-02 03:04:05Z \([^)]+\)  1.6        1234        -$`, lines[2])
	out, _, err = f.run(t, "sbom", "example", "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, `{"nodes":[`+dbSBOM+`,`+webSBOM+`]}`, out)

	_, _, err = f.run(t, "sbom", "example", "-o", "file")
	require.Equal(t, 2, exit.Code(err))
	require.ErrorContains(t, err, "example has 2 nodes: name one with --node")

	f.on("GET /sbom-list/example", reply(200, `{"nodes":[`+webSBOM+`]}`))
	out, _, err = f.run(t, "sbom", "example", "--list", "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, `{"nodes":[`+webSBOM+`]}`, out)
	f.on("GET /sbom-list/example", reply(200, `{"nodes":[]}`))
	out, errOut, err := f.run(t, "sbom", "example")
	require.NoError(t, err)
	require.Empty(t, out)
	require.Contains(t, errOut, "example has no nodes")
}

func TestSBOMDiff(t *testing.T) {
	const diff = `{"node":"web","build":3,"before":1,"added":[{"name":"new","version":"1"}],"removed":[{"name":"old"}],
		"changed":[{"name":"openssl","version":"3.1","purl":"pkg:nix/openssl@3.1","before":{"name":"openssl","version":"3.0"}}]}`
	f := newFake(t).on("GET /sbom-diff/example", reply(200, diff))
	out, _, err := f.run(t, "sbom", "example", "--diff", "--node", "web")
	require.NoError(t, err)
	require.Equal(t, `web: build 3 against build 1: 1 added, 1 removed, 1 changed
CHANGE   COMPONENT  BEFORE  NOW
added    new        -       1
removed  old        -       -
changed  openssl    3.0     3.1
`, out)
	require.Equal(t, []string{"GET /sbom-diff/example?node=web"}, f.asked)
	out, _, err = f.run(t, "sbom", "example", "--diff", "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, diff, out)
}
