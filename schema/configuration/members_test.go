package configuration

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMembers(t *testing.T) {
	s, err := Compile(json.RawMessage(`{
		"$defs": {"app": {"properties": {"key": true}}, "loop": {"allOf": [{"$ref": "#/$defs/loop"}], "properties": {"l": true}}},
		"properties": {"b": {"$ref": "#/$defs/app"}, "a": {"oneOf": [{"properties": {"x": true}}, {"properties": {"y": {"properties": {"z": true}}}}]},
			"loop": {"$ref": "#/$defs/loop"}},
		"patternProperties": {"^p": {"properties": {"q": true}}}
	}`))
	require.NoError(t, err)
	for _, test := range []struct {
		path, want []string
	}{
		{nil, []string{"a", "b", "loop"}},
		{[]string{"b"}, []string{"key"}},
		{[]string{"a"}, []string{"x", "y"}},
		{[]string{"a", "y"}, []string{"z"}},
		{[]string{"pattern"}, []string{"q"}},
		{[]string{"loop"}, []string{"l"}},
		{[]string{"none"}, nil},
		{[]string{"b", "key", "deeper"}, nil},
	} {
		require.Equal(t, test.want, s.Members(test.path...), test.path)
	}
}
