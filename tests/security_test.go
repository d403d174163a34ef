package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The threat model and the failure matrix name the test that shows a claim, and
// the folder that it is in: `TestOne`, `TestTwo` (api, api/auth).
func TestWhatTheThreatModelNamesIsThere(t *testing.T) { namedTests(t, "security.md", 30) }

func TestWhatTheFailureMatrixNamesIsThere(t *testing.T) { namedTests(t, "operations.md", 15) }

// namedTests looks for the tests that a page of docs names, more than least.
func namedTests(t *testing.T, page string, least int) {
	t.Helper()
	raw, err := os.ReadFile("../docs/" + page)
	require.NoError(t, err)
	named := regexp.MustCompile("((?:`Test[A-Za-z]+`(?:, )?)+) \\(([a-z0-9/, -]+)\\)")
	name := regexp.MustCompile("`(Test[A-Za-z]+)`")
	seen := 0
	for _, claim := range named.FindAllStringSubmatch(string(raw), -1) {
		var source strings.Builder
		for _, folder := range strings.Split(claim[2], ", ") {
			files, err := filepath.Glob("../" + folder + "/*_test.go")
			require.NoError(t, err)
			require.NotEmpty(t, files, folder)
			for _, file := range files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				source.Write(text)
			}
		}
		for _, test := range name.FindAllStringSubmatch(claim[1], -1) {
			seen++
			require.Contains(t, source.String(), "\nfunc "+test[1]+"(t *testing.T)", "in %s", claim[2])
		}
	}
	require.Len(t, name.FindAllString(string(raw), -1), seen, "each is followed by its folder")
	require.Greater(t, seen, least)
}
