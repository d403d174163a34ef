package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

// A value that was stored before its field was a secret is shown nowhere, and
// stays where it is for the next submit.
func TestStoredSecretsAreMasked(t *testing.T) {
	const stored = `{"applications":{"wiki":{"key":"value-of-old","secretsSet":["other"]}},"name":"harbour"}`
	b := start(t, nil)
	b.Record("one", deployment.ActionDeploy, stored)
	// Recorded with the source of today: as it is, without another look.
	require.JSONEq(t, stored, string(configurationIn(t, b.do("GET", "/deployments/one", "").body)))

	b.SetSource(deployment.Source{Snapshot: "/nix/store/newer", Schema: json.RawMessage(testSchema)})
	const want = `{"applications":{"wiki":{"secretsSet":["other"]}},"name":"harbour"}`
	for _, path := range []string{"/deployments/one", "/deployments/one/builds/1"} {
		require.JSONEq(t, want, string(configurationIn(t, b.do("GET", path, "").body)), path)
	}
	list := b.do("GET", "/deployments?id=one", "").body
	var listed struct{ Deployments []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(list), &listed))
	require.JSONEq(t, want, string(configurationIn(t, string(listed.Deployments[0]))))

	snapshot, err := b.api.shown.Snapshot(t.Context(), "one")
	require.NoError(t, err)
	require.JSONEq(t, want, string(snapshot.Configuration))

	// A source that has no schema, or none that compiles, is no reason to fail.
	for _, schema := range []string{``, `{"type":"no-such-type"}`} {
		b.SetSource(deployment.Source{Snapshot: "/nix/store/newest", Schema: json.RawMessage(schema)})
		require.Equal(t, http.StatusOK, b.do("GET", "/deployments/one", "").status)
	}

	kept, err := b.Deployment(t.Context(), "one")
	require.NoError(t, err)
	require.JSONEq(t, stored, string(kept.Configuration))
}

func configurationIn(t *testing.T, body string) json.RawMessage {
	t.Helper()
	var out struct{ Configuration json.RawMessage }
	require.NoError(t, json.NewDecoder(strings.NewReader(body)).Decode(&out))
	return out.Configuration
}
