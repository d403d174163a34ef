package nix

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// realise snapshots a source of the tests and realises its deployer.
func realise(t *testing.T, e *Evaluator, name string) (snapshot, deployer, roots string, err error) {
	t.Helper()
	ctx := context.Background()
	roots = filepath.Join(t.TempDir(), "roots")
	snapshot, err = e.Snapshot(ctx, source(t, name), filepath.Join(roots, "source"))
	require.NoError(t, err)
	deployer, err = e.Realise(ctx, snapshot, "slipway.nix", filepath.Join(roots, "deployer"), func() {})
	requireNothingLeft(t, e)
	return snapshot, deployer, roots, err
}

func TestRealisePath(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	snapshot, deployer, _, err := realise(t, e, "good")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(snapshot, "deployer"), deployer)
	require.NoError(t, exec.Command(deployer).Run())
}

func TestRealiseDerivation(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	for _, name := range []string{"built", "built-file", "built-main"} {
		_, deployer, roots, err := realise(t, e, name)
		require.NoError(t, err, name)
		require.FileExists(t, filepath.Join(roots, "deployer"))
		collectGarbage(t, e)
		out, err := exec.Command(deployer).Output()
		require.NoError(t, err)
		require.Equal(t, "deployed\n", string(out))
	}
}

func TestRealiseWrongDeployers(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	_, _, _, err := realise(t, e, "built-badly")
	failure := requireFailure(t, err, KindBuildFailed)
	require.NotContains(t, failure.Message, "/store/")
	require.Contains(t, failure.Output, "no rope")
	require.False(t, failure.Lasting())

	_, _, _, err = realise(t, e, "built-many")
	require.Contains(t, requireFailure(t, err, KindWrongShape).Message, "2 programs")

	_, _, _, err = realise(t, e, "shapes")
	require.Equal(t, "deployer: slipway.nix is not an executable file", requireFailure(t, err, KindWrongShape).Message)

	_, _, _, err = realise(t, e, "endless")
	requireFailure(t, err, KindNoSuchAttribute)

	_, _, _, err = realise(t, e, "lambda")
	requireFailure(t, err, KindWrongShape)

	for text, want := range map[string]string{
		`{ deployer = ./gone; }`:                 "there is no file gone",
		`{ deployer = ./.; }`:                    "not a path inside the source",
		`{ deployer = /bin/sh; }`:                "not a path inside the source",
		`{ deployer = toString ./. + "/../x"; }`: "not a path inside the source",
		`{ deployer = 1; }`:                      "must be the path of an executable",
		`{ deployer = "${./slipway.nix}"; }`:     "must be the path of an executable",
	} {
		folder := t.TempDir()
		write(t, folder, map[string]string{"slipway.nix": text})
		snapshot, err := e.Snapshot(context.Background(), folder, filepath.Join(t.TempDir(), "root"))
		require.NoError(t, err)
		_, err = e.Realise(context.Background(), snapshot, "slipway.nix", filepath.Join(t.TempDir(), "root"), func() {})
		require.Contains(t, requireFailure(t, err, KindWrongShape).Message, want)
	}
}

func TestKeepAndDrop(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	ctx := context.Background()
	var paths []string
	scratchRoot := filepath.Join(t.TempDir(), "root")
	for _, name := range []string{"good", "shapes", "syntax"} {
		path, err := e.Snapshot(ctx, source(t, name), scratchRoot+name)
		require.NoError(t, err)
		paths = append(paths, path)
	}
	prefix := filepath.Join(t.TempDir(), "roots", "build-1")
	require.NoError(t, e.Keep(ctx, prefix, paths...))
	// Another prefix that begins the same, which is not ours.
	require.NoError(t, e.Keep(ctx, prefix+"-x", paths[2]))
	for _, name := range []string{"good", "shapes", "syntax"} {
		require.NoError(t, e.Drop(scratchRoot+name))
	}
	collectGarbage(t, e)
	for _, path := range paths {
		require.DirExists(t, path)
	}

	// Fewer paths: the roots of before are gone.
	require.NoError(t, e.Keep(ctx, prefix, paths[1]))
	collectGarbage(t, e)
	require.NoDirExists(t, paths[0])
	require.DirExists(t, paths[1])
	require.DirExists(t, paths[2])

	require.ErrorContains(t, e.Keep(ctx, prefix+"-gone", paths[0]), filepath.Base(paths[0]))
	require.NoError(t, e.Drop(prefix))
	require.NoError(t, e.Drop(prefix))
	collectGarbage(t, e)
	require.NoDirExists(t, paths[1])
	require.DirExists(t, paths[2])
	require.NoError(t, e.Drop(filepath.Join(t.TempDir(), "nowhere", "root")))
	_, err := os.Lstat(prefix + "-x")
	require.NoError(t, err)
}
