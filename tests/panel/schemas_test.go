package panel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/configuration"
)

// schemas: the panel takes out of a configuration what slipway takes out of it
// as secrets, whatever the schema, and refuses one that it does not understand.
func schemas(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.one)
	tab.open("#/")
	_, served, err := s.Do(t.Context(), http.MethodGet, "/schema", nil, nil)
	require.NoError(t, err)
	const (
		secret = `{"type": "string", "writeOnly": true, "format": "password"}`
		hidden = `{"properties": {"key": ` + secret + `}}`
		value  = `{"key": "canary", "mode": "a", "other": {"key": "kept"}}`
	)
	for _, test := range []struct{ schema, configuration string }{
		{hidden, value},
		{`{"patternProperties": {"^k": ` + secret + `}}`, value},
		{`{"patternProperties": {"^(?P<name>k)": ` + secret + `}}`, `{"key": "canary"}`},
		{`{"properties": {"mode": {}, "other": {}}, "additionalProperties": ` + secret + `}`, value},
		{`{"properties": {"mode": {}, "other": {}}, "unevaluatedProperties": ` + secret + `}`, value},
		{`{"allOf": [{}, ` + hidden + `]}`, value},
		{`{"anyOf": [{"properties": {"key": {"type": "integer"}}}, ` + hidden + `]}`, value},
		{`{"oneOf": [{"required": ["mode"]}, ` + hidden + `]}`, value},
		{`{"if": ` + hidden + `}`, value},
		{`{"if": {"required": ["mode"]}, "then": ` + hidden + `}`, value},
		{`{"if": {"required": ["none"]}, "else": ` + hidden + `}`, value},
		{`{"dependentSchemas": {"mode": ` + hidden + `}}`, value},
		{`{"$ref": "#/$defs/a~1b", "$defs": {"a/b": ` + hidden + `}}`, value},
		{`{"$ref": "#there", "$defs": {"a": {"$anchor": "there", "anyOf": [` + hidden + `]}}}`, value},
		{`{"properties": {"key": ` + secret + `}, "additionalProperties": {"$ref": "#"}}`, value},
		{`{"properties": {"list": {"items": ` + hidden + `}}}`, `{"list": [` + value + `]}`},
		{`{"properties": {"list": {"prefixItems": [{}, ` + hidden + `], "items": {}}}}`, `{"list": [{"key": "kept"}, ` + value + `]}`},
		{`{"properties": {"list": {"contains": ` + hidden + `}}}`, `{"list": [` + value + `]}`},
		{`{"properties": {"list": {"unevaluatedItems": ` + hidden + `}}}`, `{"list": [` + value + `]}`},
		{`{"anyOf": [{"properties": {"secretsSet": {"readOnly": true}}}]}`, `{"secretsSet": ["key"], "other": {"secretsSet": ["kept"]}}`},
		{string(served), `{"fleet": {"domain": "example.org", "applications": {"forum": {
			"enable": true, "translationApiKey": "canary", "smtp": {"password": "canary"}, "secretsSet": ["smtp.password"]}}}}`},
	} {
		compiled, err := configuration.Compile(json.RawMessage(test.schema))
		require.NoError(t, err, test.schema)
		given, err := configuration.Decode(json.RawMessage(test.configuration))
		require.NoError(t, err)
		rest, _ := compiled.Split(given)
		want, err := configuration.Canonical(rest)
		require.NoError(t, err)
		require.NotContains(t, string(want), "canary", test.schema)
		shown := eval[json.RawMessage](tab, fmt.Sprintf(`(async () => {
			const { Schema, withoutSecrets } = await import("/js/schema.js");
			return withoutSecrets(new Schema(%s), %s);
		})()`, test.schema, test.configuration))
		require.JSONEq(t, string(want), string(shown), test.schema)

		// No field shows them, also where the whole would be one field.
		within := strings.NewReplacer(`"#/`, `"#/properties/it/`, `"#"`, `"#/properties/it"`).Replace(test.schema)
		require.NotContains(t, eval[string](tab, fmt.Sprintf(`(async () => {
			const { Schema } = await import("/js/schema.js");
			const { Form } = await import("/js/form.js");
			const fields = (schema, configuration) => [...new Form({
				schema: new Schema(schema), configuration, secrets: new Map(), isSet: () => true, changed: () => {},
			}).render("").querySelectorAll("input, textarea, select")].map(({ value }) => value);
			return [...fields(%s, %[2]s), ...fields({ properties: { it: %[3]s } }, { it: %[2]s })].join("\n");
		})()`, test.schema, test.configuration, within)), "canary", test.schema)
	}

	for _, schema := range []string{
		`{"properties": {"a": {"$dynamicRef": "#a"}}, "$defs": {"a": {"$dynamicAnchor": "a", "properties": {"key": ` + secret + `}}}}`,
		`{"$ref": "urn:a", "$defs": {"a": {"$id": "urn:a", "properties": {"key": ` + secret + `}}}}`,
		`{"properties": {"a": {"$id": "urn:a", "$ref": "#/$defs/a", "$defs": {"a": ` + secret + `}}}, "$defs": {"a": {}}}`,
		`{"properties": {"a": {"$ref": "#/$defs/none"}}}`,
		`{"properties": {"a": {"$ref": "#/$defs/%zz"}}}`,
		`{"properties": {"a": {"items": [` + hidden + `]}}}`,
		`{"properties": {"a": {"items": ` + secret + `}}}`,
		`{"dependencies": {"mode": ` + hidden + `}}`,
	} {
		require.Contains(t, eval[string](tab, fmt.Sprintf(`(async () => {
			const { Schema } = await import("/js/schema.js");
			try { new Schema(%s); return "understood"; } catch ({ message }) { return message; }
		})()`, schema)), "cannot tell what is secret", schema)
	}

	// A person is told, and can store nothing.
	tab.signIn("jonas")
	eval[any](tab, `(() => {
		const ask = window.fetch;
		window.fetch = (url, ...more) => String(url).endsWith("/schema") ? Promise.resolve(Response.json({ $dynamicRef: "#a" })) : ask(url, ...more);
		return null;
	})()`)
	tab.draft("Not understood")
	tab.sees(`form [role="alert"]`, "The schema has $dynamicRef", "cannot tell what is secret")
	require.False(t, tab.is(".bar button:enabled"))
}
