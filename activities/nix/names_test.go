package nix

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

const aConfiguration = "/nix/store/nzdcrrragjbmqzlg9w1m0i9lw1r8d722-configuration.nix"

func TestDecodeNames(t *testing.T) {
	t.Parallel()
	names, err := DecodeNames(json.RawMessage(`{
		"nodes": {
			"web": {"names": ["example.org", "*.example.org"], "configuration": "` + aConfiguration + `"},
			"Data_1.x": {"names": [], "configuration": "` + aConfiguration + `"}
		},
		"disabledApplications": ["chat"]
	}`))
	require.NoError(t, err)
	require.Equal(t, deployment.Names{
		Nodes: []deployment.Node{
			{Name: "Data_1.x", Names: []string{}},
			{Name: "web", Names: []string{"example.org", "*.example.org"}},
		},
		DisabledApplications: []string{"chat"},
	}, names)

	names, err = DecodeNames(json.RawMessage(`{"nodes": {}, "disabledApplications": []}`))
	require.NoError(t, err)
	require.Empty(t, names.Nodes)
}

func TestDecodeNamesSaysWhatIsWrongWhere(t *testing.T) {
	t.Parallel()
	node := func(members string) string {
		return `{"nodes": {"web": ` + members + `}, "disabledApplications": []}`
	}
	for raw, want := range map[string]string{
		`[]`:                           "names must be an attribute set, it is a list",
		`null`:                         "names must be an attribute set, it is null",
		`{"disabledApplications": []}`: "names has no attribute nodes",
		`{"nodes": {}}`:                "names has no attribute disabledApplications",
		`{"nodes": {}, "disabledApplications": [], "x": 1}`:   `names has an attribute "x", it must have only nodes and disabledApplications`,
		`{"nodes": [], "disabledApplications": []}`:           "names.nodes must be an attribute set, it is a list",
		`{"nodes": {}, "disabledApplications": {}}`:           "names.disabledApplications must be a list of strings, it is an attribute set",
		`{"nodes": {}, "disabledApplications": null}`:         "names.disabledApplications must be a list of strings, it is null",
		`{"nodes": {}, "disabledApplications": ["a", null]}`:  "names.disabledApplications[1] must be a string that is not empty, it is null",
		`{"nodes": {"../x": {}}, "disabledApplications": []}`: `"../x" is not a name of a node`,
		`{"nodes": {"": {}}, "disabledApplications": []}`:     `"" is not a name of a node`,
		node(`true`):                    "names.nodes.web must be an attribute set, it is a bool",
		node(`{"names": []}`):           "names.nodes.web has no attribute configuration",
		node(`{"configuration": "/x"}`): "names.nodes.web has no attribute names",
		node(`{"names": "a.example", "configuration": "` + aConfiguration + `"}`):   "names.nodes.web.names must be a list of strings, it is a string",
		node(`{"names": [1], "configuration": "` + aConfiguration + `"}`):           "names.nodes.web.names[0] must be a string that is not empty, it is a number",
		node(`{"names": ["a b"], "configuration": "` + aConfiguration + `"}`):       "names.nodes.web.names[0] must be a DNS name",
		node(`{"names": [], "configuration": 1}`):                                   "names.nodes.web.configuration must be a store path, it is a number",
		node(`{"names": [], "configuration": "/etc/passwd"}`):                       "names.nodes.web.configuration must be a store path, it is a string",
		node(`{"names": [], "configuration": "` + aConfiguration + `", "more": 1}`): `names.nodes.web has an attribute "more", it must have only names and configuration`,
	} {
		_, err := DecodeNames(json.RawMessage(raw))
		require.Contains(t, requireFailure(t, err, KindWrongShape).Message, want, raw)
	}
}
