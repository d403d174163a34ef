package nix

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/configuration"
)

// TestSourcesAsTestedElsewhere holds the schemas that schema/configuration is tested
// with against what Nix gives for their sources, and what it reads from a
// configuration against the names eval of the same: both say which applications
// are disabled, and where the others answer.
func TestSourcesAsTestedElsewhere(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	const fixtures = "../../schema/configuration/testdata"
	for name, folder := range map[string]string{
		"example": "../../deploy/source", "pinned": "../../tests/sources/pinned", "composed": "../../tests/sources/composed",
	} {
		t.Run(name, func(t *testing.T) {
			snapshot, err := e.Snapshot(t.Context(), folder, filepath.Join(t.TempDir(), "root"))
			require.NoError(t, err)
			var fixture map[string]json.RawMessage
			read(t, filepath.Join(fixtures, name+".json"), &fixture)
			require.Len(t, fixture, 3)
			for attribute, want := range fixture {
				got, err := e.Evaluate(t.Context(), Request{Snapshot: snapshot, Entry: "slipway.nix", Attribute: attribute})
				require.NoError(t, err)
				require.JSONEq(t, string(want), string(got), attribute)
			}

			schema, err := configuration.Compile(fixture["schema"])
			require.NoError(t, err)
			source := configuration.Source{Schema: schema}
			require.NoError(t, json.Unmarshal(fixture["method"], &source.Method))
			require.NoError(t, json.Unmarshal(fixture["methods"], &source.Methods))
			var cases []struct {
				Name          string
				Configuration json.RawMessage
			}
			read(t, filepath.Join(fixtures, name+".cases.json"), &cases)
			for _, c := range cases {
				result, err := e.Evaluate(t.Context(), Request{
					Snapshot: snapshot, Entry: "slipway.nix", Attribute: "names", Configuration: c.Configuration,
				})
				require.NoError(t, err)
				names, err := DecodeNames(result)
				require.NoError(t, err)
				value, err := configuration.Decode(c.Configuration)
				require.NoError(t, err)

				var published, served []string
				for _, node := range names.Nodes {
					published = append(published, node.Names...)
				}
				for _, i := range source.Facts(value).Instances {
					served = append(served, i.Domains...)
				}
				require.ElementsMatch(t, published, served, c.Name)
				var disabled []string
				for _, a := range source.Applications(value) {
					if !a.Enabled {
						disabled = append(disabled, a.Name)
					}
				}
				require.ElementsMatch(t, names.DisabledApplications, disabled, c.Name)
			}
		})
	}
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
}
