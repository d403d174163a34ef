package nix

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// write writes files below the folder, by path.
func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
}

// collectGarbage runs Nix's own collector on the store of the evaluator.
func collectGarbage(t *testing.T, e *Evaluator) {
	t.Helper()
	out, err := e.store(context.Background(), t.TempDir(), "--gc")
	require.NoError(t, err)
	require.True(t, out.state.Success(), out.stderr)
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	ctx := context.Background()
	first, second, roots := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "roots")
	files := map[string]string{"slipway.nix": `{ schema = import ./lib/schema.nix; }`, "lib/schema.nix": `{ title = "one"; }`}
	write(t, first, files)
	write(t, second, files)
	write(t, second, map[string]string{".git/HEAD": "x", "lib/.git": "x", ".slipway/state": "x"})

	snapshot, err := e.Snapshot(ctx, first, filepath.Join(roots, "a"))
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(snapshot, "-slipway-source"), snapshot)
	target, err := os.Readlink(filepath.Join(roots, "a"))
	require.NoError(t, err)
	require.Equal(t, snapshot, target)

	same, err := e.Snapshot(ctx, second, filepath.Join(roots, "b"))
	require.NoError(t, err)
	require.Equal(t, snapshot, same, "the place, .git and .slipway are not part of it")
	require.NoFileExists(t, filepath.Join(snapshot, ".slipway/state"))

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(first, link))
	same, err = e.Snapshot(ctx, link, filepath.Join(roots, "c"))
	require.NoError(t, err)
	require.Equal(t, snapshot, same)

	// The snapshot is what is evaluated, whatever becomes of the folder.
	write(t, first, map[string]string{"lib/schema.nix": `{ title = "two"; }`})
	changed, err := e.Snapshot(ctx, first, filepath.Join(roots, "c"))
	require.NoError(t, err)
	require.NotEqual(t, snapshot, changed)
	require.NoError(t, os.RemoveAll(first))
	for path, want := range map[string]string{snapshot: `{"title": "one"}`, changed: `{"title": "two"}`} {
		result, err := e.Evaluate(ctx, Request{Snapshot: path, Entry: "slipway.nix", Attribute: "schema"})
		require.NoError(t, err)
		require.JSONEq(t, want, string(result))
	}

	require.NoError(t, e.Drop(filepath.Join(roots, "c")))
	collectGarbage(t, e)
	require.DirExists(t, snapshot)
	require.NoDirExists(t, changed)
	_, err = e.Evaluate(ctx, Request{Snapshot: changed, Entry: "slipway.nix", Attribute: "schema"})
	var gone *SourceError
	require.ErrorAs(t, err, &gone)
}

func TestSnapshotOfNoSource(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	file := filepath.Join(t.TempDir(), "file")
	write(t, filepath.Dir(file), map[string]string{"file": ""})
	const commit = "0123456789012345678901234567890123456789"
	for source, want := range map[string]string{
		filepath.Join(t.TempDir(), "gone"):                  "no such folder",
		file:                                                "not a folder",
		"git+https://example.org/x":                         "pinned",
		"git+https://example.org/x?rev=main":                "pinned",
		"git+https://example.org/x?rev=" + commit[1:]:       "pinned",
		"git+https://example.org/x?ref=main&rev=" + commit:  "pinned",
		"git+https://me:secret@example.org/x?rev=" + commit: "must not contain a user",
		"git+http://example.org/x?rev=" + commit:            "git+https",
		"git+ext::sh -c id?rev=" + commit:                   "git+https",
		"git+file:///nowhere/at/all?rev=" + commit:          "git cannot fetch it",
	} {
		_, err := e.Snapshot(context.Background(), source, filepath.Join(t.TempDir(), "root"))
		var missing *SourceError
		require.ErrorAs(t, err, &missing, source)
		require.Contains(t, err.Error(), want)
		requireNothingLeft(t, e)
	}
}

func TestSnapshotOfGit(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	ctx := context.Background()
	repository := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", repository, "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + repository, "GIT_CONFIG_NOSYSTEM=1"}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	git("init", "--quiet")
	write(t, repository, map[string]string{"slipway.nix": `{ schema.title = "pinned"; }`})
	git("add", ".")
	git("commit", "--quiet", "-m", "one")
	pinned := "git+file://" + repository + "?rev=" + git("rev-parse", "HEAD")
	write(t, repository, map[string]string{"slipway.nix": `{ schema.title = "later"; }`})
	git("commit", "--quiet", "-am", "two")

	root := filepath.Join(t.TempDir(), "root")
	snapshot, err := e.Snapshot(ctx, pinned, root)
	require.NoError(t, err)
	result, err := e.Evaluate(ctx, Request{Snapshot: snapshot, Entry: "slipway.nix", Attribute: "schema"})
	require.NoError(t, err)
	require.JSONEq(t, `{"title": "pinned"}`, string(result))

	// The same files in a folder are the same snapshot.
	folder := t.TempDir()
	write(t, folder, map[string]string{"slipway.nix": `{ schema.title = "pinned"; }`})
	same, err := e.Snapshot(ctx, folder, root)
	require.NoError(t, err)
	require.Equal(t, snapshot, same)

	// It is fetched once.
	require.NoError(t, os.RemoveAll(repository))
	again, err := e.Snapshot(ctx, pinned, root)
	require.NoError(t, err)
	require.Equal(t, snapshot, again)
	fingerprint, err := e.Fingerprint(pinned)
	require.NoError(t, err)
	require.NotEmpty(t, fingerprint)
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	folder := t.TempDir()
	fingerprint := func() string {
		f, err := e.Fingerprint(folder)
		require.NoError(t, err)
		return f
	}
	write(t, folder, map[string]string{"slipway.nix": "{ }", "lib/a.nix": "1"})
	before := fingerprint()
	require.Equal(t, before, fingerprint())
	write(t, folder, map[string]string{".git/index": "x", ".slipway/log": "x"})
	require.Equal(t, before, fingerprint())

	path := filepath.Join(folder, "lib/a.nix")
	changes := []func() error{
		func() error { return os.WriteFile(path, []byte("1 + 1"), 0o644) },
		func() error { later := time.Now().Add(time.Hour); return os.Chtimes(path, later, later) },
		func() error { return os.Chmod(path, 0o755) },
		func() error { return os.Rename(path, filepath.Join(folder, "lib/b.nix")) },
		func() error { return os.Symlink("b.nix", path) },
		func() error { return os.Mkdir(filepath.Join(folder, "empty"), 0o755) },
	}
	for i, change := range changes {
		require.NoError(t, change())
		after := fingerprint()
		require.NotEqual(t, before, after, "change %d", i)
		before = after
	}

	// Another content of the same size and time, in the same file.
	path = filepath.Join(folder, "slipway.nix")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the clock of a file system has steps
		return os.WriteFile(path, []byte("[ ]"), 0o644) == nil && os.Chtimes(path, time.Time{}, info.ModTime()) == nil && fingerprint() != before
	}, 10*time.Second, 10*time.Millisecond)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, []any{info.Size(), info.ModTime()}, []any{after.Size(), after.ModTime()})

	// A link that is moved from one folder to another, where all files have one time.
	link, other := filepath.Join(t.TempDir(), "link"), t.TempDir()
	require.NoError(t, os.CopyFS(other, os.DirFS(folder)))
	var seen []string
	for _, target := range []string{folder, other} {
		for _, name := range []string{"slipway.nix", "lib/b.nix"} {
			require.NoError(t, os.Chtimes(filepath.Join(target, name), time.Unix(1, 0), time.Unix(1, 0)))
			require.NoError(t, os.Chmod(filepath.Join(target, name), 0o444))
		}
		_ = os.Remove(link)
		require.NoError(t, os.Symlink(target, link))
		f, err := e.Fingerprint(link)
		require.NoError(t, err)
		seen = append(seen, f)
	}
	require.NotEqual(t, seen[0], seen[1])

	_, err = e.Fingerprint(filepath.Join(folder, "gone"))
	var missing *SourceError
	require.ErrorAs(t, err, &missing)
}
