package source

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The files of the worked example in the guide are a source that keeps the
// contract, with nothing left to advise.
func TestGuideKeepsTheContract(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(root + "/docs/module-source.md")
	require.NoError(t, err)
	folder := t.TempDir()
	files := regexp.MustCompile("(?s)```[a-z]+ ([a-z.]+)\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	require.Len(t, files, 3)
	for _, file := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, file[1]), []byte(file[2]), 0o755))
	}
	out, code := run(t, folder, "--configuration", filepath.Join(folder, "configuration.json"))
	require.Zero(t, code, out)
	require.NotContains(t, out, "note")
	require.NotContains(t, out, "skipped")
}
