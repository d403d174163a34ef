package configuration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/configuration"
)

func compile(t testing.TB, schema string) *configuration.Schema {
	t.Helper()
	s, err := configuration.Compile(json.RawMessage(schema))
	require.NoError(t, err)
	return s
}

func decode(t testing.TB, text string) any {
	t.Helper()
	value, err := configuration.Decode([]byte(text))
	require.NoError(t, err)
	return value
}

func TestValidateReportsEveryProblemWithoutValues(t *testing.T) {
	s := compile(t, `{
		"type": "object", "additionalProperties": false, "required": ["domain", "size"],
		"properties": {
			"domain": {"type": "string", "pattern": "^[a-z.]+$", "minLength": 3, "maxLength": 5},
			"size": {"type": "integer", "minimum": 1, "maximum": 10, "multipleOf": 2},
			"below": {"exclusiveMaximum": 5}, "above": {"exclusiveMinimum": 5},
			"kind": {"enum": ["a", "b"]}, "one": {"const": 1},
			"tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true, "minItems": 1, "maxItems": 2},
			"never": false,
			"map": {"type": "object", "minProperties": 1, "maxProperties": 1, "propertyNames": {"maxLength": 2}, "dependentRequired": {"x": ["y"]}},
			"some": {"contains": {"const": 1}}, "not": {"not": {"type": "string"}},
			"either": {"oneOf": [{"type": "string"}, {"type": "object", "required": ["deep"], "properties": {"deep": {"type": "string"}}}]}
		}}`)
	problems := s.Validate(decode(t, `{
		"domain": "SECRET-VALUE", "size": 17, "below": 5, "above": 5, "kind": "SECRET-VALUE", "one": "SECRET-VALUE",
		"tags": ["SECRET-VALUE", "SECRET-VALUE", 3], "never": "SECRET-VALUE", "map": {"x": 1, "long": 2}, "some": [2],
		"not": "SECRET-VALUE", "either": {"deep": 1}, "extra/~": 1}`))
	got := map[string][]string{}
	for _, p := range problems {
		require.NotContains(t, p.Message, "SECRET-VALUE")
		got[p.Path] = append(got[p.Path], p.Message)
	}
	require.Equal(t, map[string][]string{
		"/domain":      {"does not match the pattern ^[a-z.]+$", "has 12 characters, at most 5 are allowed"},
		"/size":        {"is not a multiple of 2", "is too large, the most allowed is 10"},
		"/below":       {"is too large, it must be less than 5"},
		"/above":       {"is too small, it must be more than 5"},
		"/kind":        {`is not one of the allowed values: ["a","b"]`},
		"/one":         {"is not the only allowed value: 1"},
		"/tags":        {"has 3 items, at most 2 are allowed", "items 0 and 1 are equal, all must differ"},
		"/tags/2":      {"is number, allowed: string"},
		"/never":       {"is not allowed here"},
		"/map":         {"has 2 members, at most 1 are allowed", `has a member whose name is not allowed: "long"`, "needs y beside x"},
		"/some":        {"does not hold the items that it must hold"},
		"/not":         {"is of a form that is not allowed here"},
		"/either":      {"matches none of the 2 allowed forms"},
		"/either/deep": {"is number, allowed: string"},
		"/extra~1~0":   {"is not a known member here"},
	}, got)
	require.Equal(t, []configuration.Problem{{Path: "/size", Message: "is required"}}, s.Validate(decode(t, `{"domain":"abc"}`)))
	require.Empty(t, s.Validate(decode(t, `{"domain":"abc","size":4}`)))
}

// numbersSchema has everything that compares numbers.
const numbersSchema = `{"properties": {
	"least": {"items": {"minimum": 1}}, "most": {"items": {"maximum": 1, "exclusiveMaximum": 2}}, "steps": {"items": {"multipleOf": 0.1}},
	"different": {"uniqueItems": true}, "whole": {"items": {"type": "integer"}}, "one": {"items": {"enum": [1, 5e-324]}},
	"either": {"items": {"anyOf": [{"type": "number", "minimum": 1}, {"exclusiveMinimum": 0}]}}}}`

// Whatever number is read can be compared, at about the cost of any other.
func TestValidateComparesNumbers(t *testing.T) {
	s := compile(t, numbersSchema)
	for _, number := range []string{
		"1", "9223372036854775807", "-9223372036854775808", "5e-324", "-5e-324", "1.7976931348623157e308", "0e-400", "0e400", "0." + strings.Repeat("0", 320) + "1",
		"1." + strings.Repeat("3", 398), "1" + strings.Repeat("0", 300) + ".5", strings.Repeat("7", 60) + "e-380",
	} {
		items := number + `,"` + strings.Join(strings.Split("abcdefghijklmnopqrst", ""), `","`) + `"`
		for _, member := range []string{"least", "most", "steps", "whole", "one", "either"} {
			s.Validate(decode(t, `{"`+member+`":[`+items+`]}`))
		}
		require.Empty(t, s.Validate(decode(t, `{"different":[`+items+`]}`)), number)
		require.Len(t, s.Validate(decode(t, `{"different":[`+items+`,`+number+`]}`)), 1, number)
	}
	for in, want := range map[string]string{
		`{"least":[0.99999999999999999999]}`: "/least/0: is too small, the least allowed is 1",
		`{"most":[1.00000000000000000001]}`:  "/most/0: is too large, the most allowed is 1",
		`{"steps":[0.30000000000000000001]}`: "/steps/0: is not a multiple of 0.1",
		`{"whole":[1.00000000000000000001]}`: "/whole/0: is number, allowed: integer",
		`{"different":[1,1.0]}`:              "/different: items 0 and 1 are equal, all must differ",
	} {
		problems := s.Validate(decode(t, in))
		require.Len(t, problems, 1, in)
		require.Equal(t, want, problems[0].Path+": "+problems[0].Message)
	}
}

// A body that is wrong everywhere has an answer of a size that can be sent.
func TestProblemsAreBounded(t *testing.T) {
	far := strings.Repeat("k", 4000)
	s := compile(t, `{"additionalProperties": {"type": "array", "items": {"type": "string", "additionalProperties": false}}, "properties": {"free": {"additionalProperties": false}, "some": {"minProperties": 2}}}`)
	for _, in := range []string{
		`{"` + far + `":[` + strings.Repeat("0,", 100_000) + `0]}`,
		`{"` + far + `":[` + strings.Repeat("0,", 200) + `0],"some":{}}`,
	} {
		problems := s.Validate(decode(t, in))
		size := 0
		for _, p := range problems[:len(problems)-1] {
			size += len(p.Path) + len(p.Message)
			require.True(t, p.Message == "is number, allowed: string" || p.Path == "/some", p.Message)
		}
		require.Less(t, size, configuration.MaxBytes)
		if len(in) < 10_000 {
			require.Len(t, problems, 202)
			continue
		}
		require.Greater(t, len(problems), 200)
		require.Equal(t, configuration.Problem{Message: "has more problems than are listed here"}, problems[len(problems)-1])
	}
	unknown := s.Validate(decode(t, `{"free":{`+keys(30_000)+`}}`))
	require.Greater(t, len(unknown), 10_000)
	require.Less(t, len(unknown), 20_000)
	require.Equal(t, configuration.Problem{Message: "has more problems than are listed here"}, unknown[len(unknown)-1])
}

// keys are members with short names.
func keys(n int) string {
	var members strings.Builder
	for i := range n {
		fmt.Fprintf(&members, `,"k%d":0`, i)
	}
	return members.String()[1:]
}

func TestCompileRefuses(t *testing.T) {
	for _, schema := range []string{"", "[]", `"x"`, `{"type": "no such"}`, `{"pattern": "("}`, `{"$schema": 5}`} {
		_, err := configuration.Compile(json.RawMessage(schema))
		require.Error(t, err, schema)
	}
	const instead = `write "$ref": "#/$defs/<name>" instead`
	for schema, says := range map[string]string{
		`{"$ref": "#/missing"}`:                           instead,
		`{"$ref": "https://example.org/other"}`:           instead,
		`{"properties": {"a": {"$ref": "other"}}}`:        `refers to "other" at /properties/a`,
		`{"$ref": "#/$defs/a%2"}`:                         "not in it",
		`{"$ref": "#/$defs/a%2Fb", "$defs": {"a/b": {}}}`: "not in it",
		`{"items": {"$ref": "#s"}}`:                       "not in it",
		`{"items": {"$ref": "#s"}, "$defs": {"s": {"$anchor": "s"}}, "default": {"$anchor": "s"}}`:                           "or more than once",
		`{"properties": {"a": {"$dynamicRef": "#s"}}, "$defs": {"s": {"$dynamicAnchor": "s"}}}`:                              `a "$dynamicRef" at /properties/a`,
		`{"allOf": [{"$ref": "#/x-defs/a"}], "x-defs": {"a": {"items": {"$recursiveRef": "#"}}}}`:                            `a "$recursiveRef" at /allOf/0/items`,
		`{"properties": {"a": {"$ref": "urn:s"}}, "$defs": {"s": {"$id": "urn:s"}}}`:                                         "/$defs/s",
		`{"properties": {"a": {"$ref": "#/$defs/s"}}, "$defs": {"s": {"$id": "urn:s", "type": {}}}}`:                         `an "$id" at /$defs/s`,
		`{"$id": "https://example.org/s", "items": {"$ref": "s#/$defs/a"}, "$defs": {"a": {}}}`:                              "outside of it",
		`{"properties": {"a": {"items": {"$ref": "#/$defs/s"}}}, "$defs": {"s": {"writeOnly": true, "format": "password"}}}`: "a list of secrets at /properties/a/items",
		`{"prefixItems": [{}, {"allOf": [{"writeOnly": true}, {"format": "password"}]}]}`:                                    "a list of secrets at /prefixItems",
		`{"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}]}`:                                              "2020-12",
		`{"$schema": "https://json-schema.org/draft/2019-09/schema"}`:                                                        "2020-12",
	} {
		_, err := configuration.Compile(json.RawMessage(schema))
		require.ErrorContains(t, err, says, schema)
	}
	for _, schema := range []string{
		`{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/s", "$ref": "#"}`,
		`{"properties": {"$ref": {"type": "string"}, "$id": {}, "default": {"$ref": "#/x-a/0"}}, "x-a": [{}, {"$ref": "elsewhere", "$id": "x"}]}`,
		`{"default": {"$ref": "none", "$id": "none"}, "enum": [{"$dynamicRef": "none"}], "const": {"$ref": "none"}, "examples": [{"$ref": "none"}]}`,
	} {
		_, err := configuration.Compile(json.RawMessage(schema))
		require.NoError(t, err, schema)
	}
}

// Wherever the validator finds the schema of a secret, its value is taken out.
func TestSecretsBehindReferencesAreFound(t *testing.T) {
	for name, schema := range map[string]string{
		"a name with an escape":    `{"properties": {"key": {"$ref": "#/$defs/a%20b"}}, "$defs": {"a b": SECRET}}`,
		"an escaped slash":         `{"properties": {"key": {"$ref": "#/$defs/a~1b%25"}}, "$defs": {"a/b%": SECRET}}`,
		"escapes throughout":       `{"properties": {"key": {"$ref": "#%2F%24defs%2Fa"}}, "$defs": {"a": SECRET}}`,
		"an anchor":                `{"properties": {"key": {"$ref": "#s"}}, "x-defs": {"a": {"$anchor": "t"}}, "$defs": {"a": {"$anchor": "s", "allOf": [SECRET]}}}`,
		"an anchor of another way": `{"properties": {"key": {"$ref": "#%73"}}, "$defs": {"a": {"$dynamicAnchor": "s", "allOf": [SECRET]}}}`,
		"a part in either":         `{"properties": {"key": {"$ref": "#/$defs/password", "writeOnly": true}}, "$defs": {"password": {"type": "string", "format": "password"}}}`,
		"two objects":              `{"properties": {"key": {"writeOnly": true}}, "allOf": [{"properties": {"key": {"format": "password"}}}]}`,
		"dependencies":             `{"dependencies": {"mode": {"properties": {"key": SECRET}}}}`,
		"dependent schemas":        `{"dependentSchemas": {"mode": {"properties": {"key": SECRET}}}}`,
		"contained in a list":      `{"properties": {"list": {"prefixItems": [{}], "contains": {"properties": {"key": SECRET}}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := compile(t, strings.ReplaceAll(schema, "SECRET", `{"type": "string", "writeOnly": true, "format": "password"}`))
			rest, secrets := s.Split(decode(t, `{"mode":"x","key":"CANARY","list":[{"key":"CANARY"}]}`))
			require.Len(t, secrets, 1)
			require.Equal(t, "CANARY", secrets[0].Value)
			require.Empty(t, s.Validate(rest))
			masked, err := s.Mask(json.RawMessage(`{"mode":"x","key":"CANARY","list":[{"key":"CANARY"}]}`))
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(masked), "CANARY"), "of a place that is no secret")
		})
	}
}

const secretSchema = `{
	"type": "object",
	"properties": {"vm": {"$ref": "#/$defs/branch"}},
	"$defs": {
		"branch": {"type": "object", "properties": {"applications": {"type": "object", "properties": {
			"forum": {"allOf": [{"$ref": "#/$defs/forum"}], "unevaluatedProperties": false},
			"wiki": {"type": "object", "additionalProperties": false, "properties": {"title": {"type": "string"}, "secretsSet": {"type": "array"}}}
		}}}},
		"forum": {"type": "object", "required": ["title", "apiKey"], "properties": {
			"title": {"type": "string"},
			"apiKey": {"type": "string", "format": "password", "writeOnly": true},
			"smtp": {"type": "object", "required": ["password"], "properties": {
				"host": {"type": "string"}, "password": {"type": "string", "format": "password", "writeOnly": true}}},
			"accounts": {"type": "array", "items": {"properties": {"key": {"format": "password", "writeOnly": true}}}},
			"peers": {"type": "object", "patternProperties": {"^secret-": {"format": "password", "writeOnly": true}, "^plain-": {"type": "string"}}},
			"secretsSet": {"type": "array", "items": {"type": "string"}, "readOnly": true},
			"secretsClear": {"type": "array", "items": {"type": "string"}}
		}}
	}}`

func TestSplitTakesSecretsOut(t *testing.T) {
	s := compile(t, secretSchema)
	in := decode(t, `{"vm":{"applications":{
		"forum":{"title":"t","apiKey":"k1","smtp":{"host":"h","password":"k2"},"accounts":[{"key":"k3","name":"n"},{"key":""}],
			"peers":{"secret-a":"k4","plain-b":"b"},"secretsSet":["lie"],"secretsClear":["smtp.password"]},
		"wiki":{"title":"w","secretsSet":["kept: not readOnly here"]}}}}`)
	before, err := configuration.Canonical(in)
	require.NoError(t, err)
	rest, secrets := s.Split(in)
	after, err := configuration.Canonical(in)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after), "the argument is not changed")

	got, err := configuration.Canonical(rest)
	require.NoError(t, err)
	require.JSONEq(t, `{"vm":{"applications":{
		"forum":{"title":"t","smtp":{"host":"h"},"accounts":[{"name":"n"},{}],"peers":{"plain-b":"b"},"secretsClear":["smtp.password"]},
		"wiki":{"title":"w","secretsSet":["kept: not readOnly here"]}}}}`, string(got))
	require.Equal(t, []configuration.Secret{
		{Path: "/vm/applications/forum/accounts/0/key", Application: "forum", Field: "accounts.0.key", Value: "k3"},
		{Path: "/vm/applications/forum/apiKey", Application: "forum", Field: "apiKey", Value: "k1"},
		{Path: "/vm/applications/forum/peers/secret-a", Application: "forum", Field: "peers.secret-a", Value: "k4"},
		{Path: "/vm/applications/forum/smtp/password", Application: "forum", Field: "smtp.password", Value: "k2"},
	}, secrets)
	require.Empty(t, s.Validate(rest), "a secret is not required")
}

// No schema can require a secret, wherever it does so: OpenBao may have it.
func TestASecretIsNotRequired(t *testing.T) {
	const members = `"properties": {"mode": {}, "file": {}, "key": {"writeOnly": true, "format": "password"}}`
	for name, test := range map[string]struct {
		schema   string
		accepted []string
		refused  []string
	}{
		"beside":              {`{` + members + `, "required": ["mode", "key"]}`, []string{`{"mode":1}`}, []string{`{}`}},
		"allOf":               {`{` + members + `, "allOf": [{"required": ["mode", "key"]}]}`, []string{`{"mode":1}`}, []string{`{}`}},
		"then":                {`{` + members + `, "if": {"properties": {"mode": {"const": 1}}}, "then": {"required": ["key"]}, "else": {"required": ["file"]}}`, []string{`{"mode":1}`, `{"mode":2,"file":1}`}, []string{`{"mode":2}`}},
		"else":                {`{` + members + `, "if": {"required": ["mode"]}, "else": {"required": ["key"]}}`, []string{`{"mode":1}`, `{}`}, nil},
		"anyOf":               {`{` + members + `, "anyOf": [{"required": ["key"]}, {"required": ["file"]}]}`, []string{`{}`, `{"file":1}`}, nil},
		"oneOf":               {`{` + members + `, "oneOf": [{"required": ["key"]}, {"required": ["file"]}]}`, []string{`{}`, `{"file":1}`, `{"key":"v"}`}, nil},
		"oneOf, by others":    {`{` + members + `, "oneOf": [{"required": ["mode"]}, {"required": ["file"]}]}`, []string{`{"file":1}`}, []string{`{}`, `{"mode":1,"file":1}`}},
		"a condition":         {`{` + members + `, "if": {"required": ["key"]}, "then": {"required": ["mode"]}}`, []string{`{}`, `{"key":"v","mode":1}`}, []string{`{"key":"v"}`}},
		"dependentRequired":   {`{` + members + `, "dependentRequired": {"mode": ["key", "file"]}}`, []string{`{"mode":1,"file":1}`}, []string{`{"mode":1}`}},
		"dependencies":        {`{` + members + `, "dependencies": {"mode": ["key", "file"]}}`, []string{`{"mode":1,"file":1}`}, []string{`{"mode":1}`}},
		"dependentSchemas":    {`{` + members + `, "dependentSchemas": {"mode": {"required": ["key"]}}}`, []string{`{"mode":1}`}, nil},
		"a reference":         {`{"allOf": [{"$ref": "#/$defs/m"}, {"$ref": "#/$defs/r"}], "$defs": {"m": {` + members + `}, "r": {"anyOf": [{"required": ["key"]}]}}}`, []string{`{}`}, nil},
		"other objects above": {`{"properties": {"a": {` + members + `}}, "allOf": [{"properties": {"a": {"required": ["key", "mode"]}}}]}`, []string{`{"a":{"mode":1}}`}, []string{`{"a":{}}`}},
		"a pattern above":     {`{"additionalProperties": {` + members + `}, "allOf": [{"patternProperties": {"^a": {"required": ["key"]}}}]}`, []string{`{"a":{}}`}, nil},
		"items":               {`{"properties": {"a": {"items": {` + members + `}, "allOf": [{"items": {"required": ["key"]}}]}}}`, []string{`{"a":[{}]}`}, nil},
		"itself":              {`{` + members + `, "additionalProperties": {"$ref": "#"}, "allOf": [{"required": ["key"]}]}`, []string{`{"x":{"y":{}}}`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := compile(t, test.schema)
			for _, in := range test.accepted {
				rest, given := s.Split(decode(t, in))
				require.Empty(t, s.ValidateWith(rest, given), in)
			}
			for _, in := range test.refused {
				rest, given := s.Split(decode(t, in))
				require.NotEmpty(t, s.ValidateWith(rest, given), in)
			}
		})
	}
}

func TestSplitSurvivesCyclesAndBadReferences(t *testing.T) {
	s := compile(t, `{"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "object"}]}, "b": {"properties": {"x": {"$ref": "#/$defs/a"}, "s": {"writeOnly": true, "format": "password"}}}}}`)
	deep := strings.Repeat(`{"x":`, 50) + `{"s":"v"}` + strings.Repeat("}", 50)
	_, secrets := s.Split(decode(t, deep))
	require.Len(t, secrets, 1)
}

func FuzzSplitAndValidate(f *testing.F) {
	s, err := configuration.Compile(json.RawMessage(secretSchema))
	require.NoError(f, err)
	numbers, err := configuration.Compile(json.RawMessage(numbersSchema))
	require.NoError(f, err)
	f.Add([]byte(`{"vm":{"applications":{"forum":{"apiKey":"canary"}}}}`))
	f.Add([]byte(`{"vm":[{"applications":null}]}`))
	for _, number := range []string{"1", "1e-1000001", "5e-324", "0e-400", "-1e308", "1e400", "0.1"} {
		f.Add([]byte(`{"least":[` + number + `],"most":[` + number + `],"steps":[` + number + `],"different":[` + number + strings.Repeat(`,"a"`, 20) + `]}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value, err := configuration.Decode(data)
		if err != nil {
			return
		}
		numbers.Validate(value)
		rest, given := s.Split(value)
		s.Validate(rest)
		cleaned, applications, problems := s.Secrets(rest, given, nil)
		s.ValidateWith(cleaned, given)
		kept := 0
		for _, a := range applications {
			kept += len(a.Given)
			a.Decide(nil)
		}
		require.Equal(t, len(given), kept+len(problems), "every secret is kept or refused")
		_, again := s.Split(rest)
		require.Empty(t, again, "nothing secret is left")
	})
}
