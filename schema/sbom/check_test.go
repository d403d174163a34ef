package sbom_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/sbom"
)

func TestReasonsForRefusal(t *testing.T) {
	const head = `{"bomFormat":"CycloneDX","specVersion":"1.6"`
	for text, want := range map[string]struct {
		err     error
		message string
	}{
		``:                           {sbom.ErrNotJSON, "the SBOM is not JSON: unexpected end of JSON input, at byte 0"},
		`<bom/>`:                     {sbom.ErrNotJSON, "at byte 1"},
		`[]`:                         {sbom.ErrNotCycloneDX, "it is not an object"},
		`{}`:                         {sbom.ErrNotCycloneDX, "bomFormat must be"},
		`{"spdxVersion":"SPDX-2.3"}`: {sbom.ErrNotCycloneDX, "bomFormat must be"},
		`{"bomFormat":1}`:            {sbom.ErrNotCycloneDX, "bomFormat must be a string"},
		`{"bomFormat":"CycloneDX"}`:  {sbom.ErrNotCycloneDX, "no specVersion"},
		`{"bomFormat":"CycloneDX","specVersion":1.6}`:     {sbom.ErrNotCycloneDX, "specVersion must be a string"},
		`{"bomFormat":"CycloneDX","specVersion":"9.9"}`:   {sbom.ErrVersion, `"9.9"`},
		head + `,"components":{}}`:                        {sbom.ErrNotCycloneDX, "components cannot be a JSON object"},
		head + `,"components":[{"name":"a"},{"name":1}]}`: {sbom.ErrNotCycloneDX, "components.name cannot be a JSON number"},
		head + `,"dependencies":[{"ref":[]}]}`:            {sbom.ErrNotCycloneDX, "cannot be a JSON array"},
		head + `,"metadata":"x"}`:                         {sbom.ErrNotCycloneDX, "metadata cannot be a JSON string"},
		head + `,"Metadata":"x"}`:                         {sbom.ErrNotCycloneDX, "metadata cannot be a JSON string"},
		head + `,"version":"1"}`:                          {sbom.ErrNotCycloneDX, "version cannot be a JSON string"},
	} {
		_, err := sbom.NewReader().Read([]byte(text))
		require.ErrorIs(t, err, want.err, text)
		require.ErrorContains(t, err, want.message, text)
	}
	_, err := sbom.NewReader().Read(bytes.Repeat([]byte(" "), sbom.MaxSize+1))
	require.ErrorIs(t, err, sbom.ErrTooLarge)
	_, err = sbom.NewReader().Read([]byte(head + `,"components":[{}` + strings.Repeat(",{}", sbom.MaxComponents) + `]}`))
	require.ErrorIs(t, err, sbom.ErrTooMany)
}

func TestAccepts(t *testing.T) {
	for _, version := range []string{"1.2", "1.3", "1.4", "1.5", "1.6", "1.7"} {
		text := fmt.Sprintf(`{"components":[],"specVersion":"%s","bomFormat":"CycloneDX","unknown":{"a":[1,{}]},"more":[1,"x"]}`, version)
		d, err := sbom.NewReader().Read([]byte("\ufeff" + text))
		require.NoError(t, err)
		require.Equal(t, version, d.SpecVersion)
	}
}

// Read, which decodes in batches, and cyclonedx-go, which decodes the whole,
// accept the same documents.
func TestReadAcceptsWhatCycloneDXDecodes(t *testing.T) {
	accepted := 0
	const rounds = 4000
	reader := sbom.NewReader()
	for seed := range uint64(rounds) {
		g := generator{rand.New(rand.NewPCG(seed, 3))}
		value := func(want string) string {
			if g.IntN(12) == 0 {
				return g.value(2)
			}
			return want
		}
		component := func() string {
			return `{"type":"library","name":` + value(g.string()) + `,"version":` + value(`"1"`) +
				`,"components":` + value(`[{"name":"inner"}]`) + `,"licenses":` + value(`[{"license":{"id":"MIT"}}]`) + `}`
		}
		text := `{"bomFormat":"CycloneDX","specVersion":"1.5","version":` + value("1") + `,"metadata":` + value(`{"tools":[{"name":"x"}]}`) +
			`,"components":` + value(g.list("[", "]", component)) +
			`,"dependencies":` + value(`[{"ref":"a","dependsOn":["b"]}]`) + `}`
		want := cyclonedx.NewBOMDecoder(strings.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&cyclonedx.BOM{})
		_, err := reader.Read([]byte(text))
		require.Equal(t, want == nil, err == nil, "%s\ncyclonedx-go: %v\nRead: %v", text, want, err)
		if err == nil {
			accepted++
		}
	}
	require.Greater(t, accepted, rounds/10)
	require.Less(t, accepted, rounds*9/10)
}

func TestComponentsAreFound(t *testing.T) {
	list, err := sbom.Components([]byte(`{"name":"a","version":"1","purl":"pkg:x/a@1","components":[{"name":"b","components":[{"name":"c"}]}]}`))
	require.NoError(t, err)
	require.Equal(t, []deployment.SBOMComponent{{Name: "a", Version: "1", PURL: "pkg:x/a@1"}, {Name: "b"}, {Name: "c"}}, list)
	keys := sbom.Keys(list)
	require.Len(t, keys, 4)
	for _, query := range []deployment.ComponentQuery{{PURL: "pkg:x/a@1"}, {Name: "a"}, {Name: "a", Version: "1"}, {Name: "b"}, {Name: "c"}} {
		require.Contains(t, keys, sbom.Key(query))
	}
	require.NotContains(t, keys, sbom.Key(deployment.ComponentQuery{Name: "pkg:x/a@1"}))
	require.True(t, sbom.Matches(deployment.ComponentQuery{Name: "a", Version: "1"}, list[0]))
	require.False(t, sbom.Matches(deployment.ComponentQuery{Name: "a", Version: "2"}, list[0]))
	require.False(t, sbom.Matches(deployment.ComponentQuery{PURL: "pkg:x/a@2"}, list[0]))
}

func TestList(t *testing.T) {
	entries, err := sbom.DecodeList([]byte(`{"nodes":[
		{"name":"web","changed":true,"sbom":"web.cdx.json","reason":null},
		{"name":"db","changed":false,"sbom":"db.json"},
		{"name":"a","changed":true,"sbom":null,"reason":" timed\nout "},
		{"name":"b","changed":true,"sbom":"../b"},
		{"name":"c","changed":true,"sbom":"/etc/passwd"},
		{"name":"d","changed":true,"sbom":".."},
		{"name":"e","changed":true},
		{"name":"f","changed":true,"sbom":""},
		{"name":"g","changed":true,"sbom":"g\u0000"}]}`))
	require.NoError(t, err)
	outside := sbom.ErrOutside.Error()
	require.Equal(t, []sbom.Entry{
		{Node: "web", Changed: true, File: "web.cdx.json"},
		{Node: "db"},
		{Node: "a", Changed: true, Problem: "timed out"},
		{Node: "b", Changed: true, Problem: outside},
		{Node: "c", Changed: true, Problem: outside},
		{Node: "d", Changed: true, Problem: outside},
		{Node: "e", Changed: true, Problem: sbom.ErrNotGiven.Error()},
		{Node: "f", Changed: true, Problem: outside},
		{Node: "g", Changed: true, Problem: outside},
	}, entries)
	none, err := sbom.DecodeList([]byte(`{"nodes":[]}`))
	require.NoError(t, err)
	require.Empty(t, none)

	for text, want := range map[string]string{
		``:                             "it must be",
		`{}`:                           "no array nodes",
		`{"nodes":{}}`:                 "it must be",
		`{"nodes":[{"changed":true}]}`: "has no name",
		`{"nodes":[{"name":"a"}]}`:     "whether it changed",
		`{"nodes":[{"name":"../a","changed":true}]}`:                           "letters",
		`{"nodes":[{"name":"a","changed":true},{"name":"a","changed":false}]}`: "twice",
	} {
		_, err := sbom.DecodeList([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

// The reason of a deployer is shown to people and stored as text.
func TestReasonOfADeployerIsMadePrintable(t *testing.T) {
	text, err := json.Marshal(map[string]any{"nodes": []any{map[string]any{"name": "a", "changed": true, "reason": "a\x00\x1b[31m" + strings.Repeat("é", 2000)}}})
	require.NoError(t, err)
	entries, err := sbom.DecodeList(text)
	require.NoError(t, err)
	require.LessOrEqual(t, len(entries[0].Problem), 1<<10)
	require.NotContains(t, entries[0].Problem, "\x00")
	require.NotContains(t, entries[0].Problem, "\x1b")
}
