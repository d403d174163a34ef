package nix

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a module system refuses comes through in its own words, with the path of
// the option and without store paths and traces.
func TestSourceOfModules(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	ctx := context.Background()
	folder, err := filepath.Abs("../../tests/sources/modules")
	require.NoError(t, err)
	snapshot, err := e.Snapshot(ctx, folder, filepath.Join(t.TempDir(), "root"))
	require.NoError(t, err)
	names := func(configuration string) (string, error) {
		result, err := e.Evaluate(ctx, Request{Snapshot: snapshot, Entry: "slipway.nix", Attribute: "names", Configuration: []byte(configuration)})
		return string(result), err
	}

	result, err := names(`{"domain":"a.example","applications":{"forum":{"enable":true,"aliases":["b.example"]}}}`)
	require.NoError(t, err)
	require.Contains(t, result, `"names":["a.example","b.example"]`)
	_, err = e.System(ctx, Request{Snapshot: snapshot, Entry: "slipway.nix", Configuration: []byte(`{"domain":"a.example"}`)}, "host")
	require.NoError(t, err)

	for configuration, want := range map[string]string{
		`{"domain":"a.example","applications":{"forum":{"colour":"red"}}}`: "The option `applications.forum.colour' does not exist. Definition values:\n" +
			"- In `configuration': \"red\"",
		`{"domain":"a.example","applications":{"forum":"on"}}`: "The option `applications.forum' does not exist. Definition values:\n" +
			"- In `configuration': \"on\"",
		`{"domain":"a.example","applications":{"forum":{"port":"80"}}}`: "A definition for option `applications.forum.port' is not of type " +
			"`16 bit unsigned integer; between 0 and 65535 (both inclusive)'. Definition values:\n- In `configuration': \"80\"",
		`{"domain":"a.example","applications":{"forum":{"aliases":["a",1]}}}`: "A definition for option `applications.forum.aliases' is not of type " +
			"`list of string'. Definition values:\n- In `configuration': [\"a\",1]",
		`{"domain":"a.example","applications":{"forum":{"theme":"blue"}}}`: "A definition for option `applications.forum.theme' is not of type " +
			"`one of \"light\", \"dark\"'. Definition values:\n- In `configuration': \"blue\"",
		`{"domain":"broken.example"}`: "A definition for option `applications.forum.tls' is not of type `boolean'. Definition values:\n" +
			"- In `legacy.nix': \"yes\"",
		`{}`: "The option `domain' is used but not defined.",
		`{"domain":"a.example","applications":{"forum":{"aliases":["a.example"]}}}`: "Failed assertions:\n" +
			"- The forum has other names, but it is not enabled.\n" +
			"- The name a.example is taken by the deployment itself (see host.nix).",
	} {
		_, err := names(configuration)
		failure := requireFailure(t, err, KindRefused)
		require.Equal(t, want, failure.Message, configuration)
		require.NotContains(t, strings.ToLower(failure.Message), "store")
	}
}
