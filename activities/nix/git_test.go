package nix

import (
	"context"
	"encoding/pem"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A gitServer is git's own server over TLS, with a certificate that only the
// file ca vouches for.
type gitServer struct {
	*httptest.Server
	ca, commit string
}

func newGitServer(t *testing.T) gitServer {
	t.Helper()
	folder := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		cmd.Dir, cmd.Env = folder, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "GIT_CONFIG_NOSYSTEM=1"}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	git("init", "--quiet", "--initial-branch=main", "work")
	write(t, filepath.Join(folder, "work"), map[string]string{"slipway.nix": `{ schema.title = "over TLS"; }`})
	git("-C", "work", "add", ".")
	git("-C", "work", "commit", "--quiet", "-m", "one")
	s := gitServer{ca: filepath.Join(folder, "ca.pem"), commit: git("-C", "work", "rev-parse", "HEAD")}
	write(t, filepath.Join(folder, "work"), map[string]string{"slipway.nix": `{ schema.title = "later"; }`})
	git("-C", "work", "commit", "--quiet", "-am", "two")
	git("clone", "--quiet", "--bare", "work", "served/source.git")

	s.Server = httptest.NewUnstartedServer(&cgi.Handler{
		Path: filepath.Join(git("--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Join(folder, "served"), "GIT_HTTP_EXPORT_ALL=1"},
	})
	s.StartTLS()
	t.Cleanup(s.Close)
	write(t, folder, map[string]string{
		"ca.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
	})
	return s
}

// source is the commit at the server, by its address or by another name of it.
func (s gitServer) source(host, commit string) string {
	return "git+" + strings.Replace(s.URL, "127.0.0.1", host, 1) + "/source.git?rev=" + commit
}

func TestSnapshotOverTLS(t *testing.T) {
	t.Parallel()
	server, e := newGitServer(t), newEvaluator(t)
	ctx, root := context.Background(), filepath.Join(t.TempDir(), "root")
	pinned := server.source("127.0.0.1", server.commit)
	refused := func(source, why string) {
		t.Helper()
		_, err := e.Snapshot(ctx, source, root)
		var failure *SourceError
		require.ErrorAs(t, err, &failure)
		require.Contains(t, failure.Reason, why)
		require.False(t, IsSourceFailure(err), "another try may help")
		requireNothingLeft(t, e)
	}

	refused(pinned, "the certificate of its server is not trusted")
	e.config.CAFile = server.ca
	refused(server.source("localhost", server.commit), "the certificate of its server is not trusted")
	refused(server.source("127.0.0.1", strings.Repeat("0", 40)), "the repository has no commit 0000")
	refused("git+"+server.URL+"/another.git?rev="+server.commit, "git cannot fetch it")

	snapshot, err := e.Snapshot(ctx, pinned, root)
	require.NoError(t, err)
	result, err := e.Evaluate(ctx, Request{Snapshot: snapshot, Entry: "slipway.nix", Attribute: "schema"})
	require.NoError(t, err)
	require.JSONEq(t, `{"title": "over TLS"}`, string(result), "the pinned commit, not the newest")

	// It is fetched once.
	server.Close()
	again, err := e.Snapshot(ctx, pinned, root)
	require.NoError(t, err)
	require.Equal(t, snapshot, again)
	refused(server.source("127.0.0.1", strings.Repeat("1", 40)), "git cannot fetch it")
}
