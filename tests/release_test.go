package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// release runs deploy/release/release.sh in a clone of a commit of its own, with
// a Go and an SBOM generator that only write down how they were called:
// building for real takes minutes (make release). different is what each build
// has of its own; tamper changes the clone.
func release(t *testing.T, different string, tamper func(clone string)) (dist, calls, said string, err error) {
	t.Helper()
	folder := t.TempDir()
	clone, bin := filepath.Join(folder, "clone"), filepath.Join(folder, "bin")
	log := filepath.Join(folder, "calls")
	text, err := os.ReadFile("../deploy/release/release.sh")
	require.NoError(t, err)
	write := func(path, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	write(filepath.Join(clone, "deploy/release/release.sh"), string(text))
	write(filepath.Join(clone, ".gitignore"), "/dist/\n")
	note := `#!/bin/sh
echo "$0 GOFLAGS=$GOFLAGS GOWORK=$GOWORK GOARCH=$GOARCH GOOS=$GOOS CGO_ENABLED=$CGO_ENABLED $*" >>"$CALLS"
while [ "$#" -gt 1 ]; do case "$1" in -o | -output) echo "of $GOARCH` + different + `" >"$2" ;; esac; shift; done
`
	write(filepath.Join(bin, "go"), note)
	write(filepath.Join(bin, "cyclonedx-gomod"), note)
	run := func(name string, args ...string) ([]byte, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = clone
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "CALLS="+log, "HOME="+folder,
			"GOFLAGS=-buildvcs=false", "GOWORK="+filepath.Join(folder, "go.work"), "ARCHITECTURES=amd64 arm64")
		return cmd.CombinedOutput()
	}
	for _, args := range []string{"init -q", "add .", "-c user.name=a -c user.email=a@example.org commit -q -m a"} {
		out, err := run("git", strings.Fields(args)...)
		require.NoError(t, err, "%s", out)
	}
	if tamper != nil {
		tamper(clone)
	}
	out, failed := run("deploy/release/release.sh", "dist", filepath.Join(bin, "cyclonedx-gomod"))
	if text, err = os.ReadFile(log); !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return filepath.Join(clone, "dist"), string(text), string(out), failed
}

func TestRelease(t *testing.T) {
	t.Parallel()
	dist, calls, said, err := release(t, "", nil)
	require.NoError(t, err, said)
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dist
	out, err := check.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"slipway-linux-amd64", "slipway-linux-amd64.cdx.json", "slipway-linux-arm64", "slipway-linux-arm64.cdx.json"} {
		require.Contains(t, string(out), name+": OK")
	}
	lines := strings.Split(strings.TrimSpace(calls), "\n")
	require.Len(t, lines, 6, "two builds and an SBOM for each architecture")
	for i, line := range lines {
		require.Contains(t, line, " GOFLAGS=-mod=readonly GOWORK=off GOARCH="+[]string{"amd64", "arm64"}[i/3]+" GOOS=linux CGO_ENABLED=0 ",
			"what the machine has set for its own builds is not in a release")
		if i%3 < 2 {
			require.Contains(t, line, " -trimpath -buildvcs=true ")
		}
	}
	require.Contains(t, said, "builds it again", "what takes long says so")
}

func TestReleaseRefuses(t *testing.T) {
	t.Parallel()
	_, _, said, err := release(t, " by $$", nil)
	require.Error(t, err)
	require.Contains(t, said, "slipway-linux-amd64 is not reproducible")

	_, calls, said, err := release(t, "", func(clone string) {
		require.NoError(t, os.WriteFile(filepath.Join(clone, "new"), nil, 0o644))
	})
	require.Error(t, err)
	require.Contains(t, said, "not committed")
	require.Empty(t, calls)
}
