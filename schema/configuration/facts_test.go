package configuration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/configuration"
)

// sources are the module sources whose schemas are in testdata; a test of
// activities/nix holds these against what Nix gives.
var sources = []string{"composed", "example", "pinned"}

func readSource(t testing.TB, name string) configuration.Source {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	var source struct {
		Schema  json.RawMessage
		Method  *string
		Methods []string
	}
	require.NoError(t, json.Unmarshal(text, &source))
	return configuration.Source{Schema: compile(t, string(source.Schema)), Method: source.Method, Methods: source.Methods}
}

// sourceOf has a schema that puts applications below the method "vm".
func sourceOf(t testing.TB, applications string) configuration.Source {
	t.Helper()
	return configuration.Source{Methods: []string{"vm"}, Schema: compile(t, `{"properties": {"vm": {"properties": {"applications": `+applications+`}}}}`)}
}

func vm(applications string) string {
	return `{"vm": {"domain": "example.org", "applications": ` + applications + `}}`
}

// serves writes instances as "name kind host [sections]".
func serves(f configuration.Facts) []string {
	out := []string{}
	for _, i := range f.Instances {
		host := strings.Join(i.Domains, ",")
		if host == "" {
			host = "-"
		}
		out = append(out, fmt.Sprintf("%s %s %s %v", i.Name, i.Kind, host, i.Sections))
	}
	return out
}

func TestFactsOfTheSources(t *testing.T) {
	for _, name := range sources {
		source := readSource(t, name)
		text, err := os.ReadFile(filepath.Join("testdata", name+".cases.json"))
		require.NoError(t, err)
		var cases []struct {
			Name           string
			Configuration  json.RawMessage
			Domain, Method string
			Serves         map[string]string
			Disabled       []string
		}
		require.NoError(t, json.Unmarshal(text, &cases))
		for _, c := range cases {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				value := decode(t, string(c.Configuration))
				require.Empty(t, source.Schema.Validate(value))
				facts := source.Facts(value)
				require.Equal(t, c.Domain, *facts.Domain)
				require.Equal(t, c.Method, *facts.Method)
				served := map[string]string{}
				for _, i := range facts.Instances {
					served[i.Name] = strings.Join(i.Domains, ",")
					require.Equal(t, served[i.Name] != "", i.URL != nil && *i.URL == "https://"+served[i.Name])
					require.NotEmpty(t, i.Title)
				}
				require.Equal(t, c.Serves, served)
				disabled := []string{}
				for _, a := range source.Applications(value) {
					if !a.Enabled {
						disabled = append(disabled, a.Name)
					}
				}
				require.Equal(t, c.Disabled, disabled)
			})
		}
	}
}

func TestFactsInFull(t *testing.T) {
	source := readSource(t, "example")
	value := decode(t, `{"fleet": {"domain": "Example.ORG.", "applications": {"forum": {"enable": true}, "backup": {"enable": true}}}}`)
	text, err := json.Marshal(source.Facts(value).Instances)
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"name": "backup", "title": "Backup", "kind": "application", "domains": [], "url": null, "sections": ["backup"]},
		{"name": "forum", "title": "Forum", "kind": "application", "domains": ["forum.example.org"], "url": "https://forum.example.org", "sections": ["forum"]},
		{"name": "status", "title": "Status page", "kind": "component", "domains": ["status.example.org"], "url": "https://status.example.org", "sections": []}
	]`, string(text))
	text, err = json.Marshal(source.Applications(value))
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"application": "backup", "path": "/fleet/applications/backup", "enabled": true},
		{"application": "forum", "path": "/fleet/applications/forum", "enabled": true},
		{"application": "wiki", "path": "/fleet/applications/wiki", "enabled": false}
	]`, string(text))
	text, err = json.Marshal(source.Sections(value))
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"id": "backup", "title": "Backup", "path": "/fleet/applications/backup", "kind": "application"},
		{"id": "forum", "title": "Forum", "path": "/fleet/applications/forum", "kind": "application"},
		{"id": "wiki", "title": "Wiki", "path": "/fleet/applications/wiki", "kind": "application"}
	]`, string(text))
}

// The same settings give the same fields, pinned or not.
func TestFactsDoNotChangeWithTheShape(t *testing.T) {
	const applications = `{"properties": {"site": {"x-subdomain": "www", "properties": {"enable": {"default": true}}}, "wiki": {"x-subdomain": "wiki"}}}`
	branch := sourceOf(t, applications)
	method := "vm"
	pinned := configuration.Source{Method: &method, Schema: compile(t, `{"properties": {"applications": `+applications+`}}`)}
	const settings = `{"domain": "example.org", "applications": {"wiki": {}}}`
	facts := branch.Facts(decode(t, `{"vm": `+settings+`}`))
	require.Equal(t, facts, pinned.Facts(decode(t, settings)))
	require.Equal(t, []string{"site application www.example.org [site]", "wiki application wiki.example.org [wiki]"}, serves(facts))
	require.Equal(t, "/applications/site", pinned.Applications(decode(t, settings))[0].Path)
	require.Equal(t, "/vm/applications/site", branch.Applications(decode(t, `{"vm": `+settings+`}`))[0].Path)
}

func TestSchemaFeatures(t *testing.T) {
	for name, test := range map[string]struct {
		schema, applications string
		want                 []string
	}{
		"a reference with a title of its own": {
			schema:       `{"properties": {"a": {"$ref": "#/x-defs/web", "x-subdomain": "near"}, "b": {"$ref": "#/x-defs/web"}}}`,
			applications: `{"a": {}, "b": {}}`, want: []string{"a application near.example.org [a]", "b application far.example.org [b]"}},
		"a reference to itself": {
			schema: `{"properties": {"a": {"$ref": "#/properties/vm/properties/applications/properties/a"}}}`, applications: `{"a": {}}`,
			want: []string{"a application - [a]"}},
		"a condition": {
			schema:       `{"additionalProperties": {"if": {"properties": {"size": {"const": 1}}, "required": ["size"]}, "then": {"x-subdomain": "small"}, "else": {"x-subdomain": "large"}}}`,
			applications: `{"a": {"size": 1}, "b": {"size": 2}, "c": {}}`,
			want:         []string{"a application small.example.org [a]", "b application large.example.org [b]", "c application large.example.org [c]"}},
		"dependent schemas": {
			schema:       `{"properties": {"a": {"dependentSchemas": {"page": {"x-subdomain": "page"}}}, "b": {"dependentSchemas": {"page": {"x-subdomain": "page"}}}}}`,
			applications: `{"a": {"page": 1}, "b": {}}`, want: []string{"a application page.example.org [a]", "b application - [b]"}},
		"a draft that fits no alternative": {
			schema:       `{"properties": {"a": {"oneOf": [{"required": ["x"], "x-subdomain": "one"}, {"required": ["y"], "x-subdomain": "two"}]}}}`,
			applications: `{"a": {}}`, want: []string{"a application one.example.org [a]"}},
		"alternatives with names that need escapes": {
			schema:       `{"properties": {"a/b~c%20 d": {"anyOf": [{"required": ["x"], "x-subdomain": "one"}, {"required": ["y"], "x-subdomain": "two"}]}}}`,
			applications: `{"a/b~c%20 d": {"y": 1}}`, want: []string{"a/b~c%20 d application two.example.org [a/b~c%20 d]"}},
		"a default of the application": {
			schema:       `{"properties": {"a": {"properties": {"enable": {"default": false}}, "default": {"enable": true, "domain": "own.example"}}}}`,
			applications: `{}`, want: []string{"a application own.example [a]"}},
		"a default of all applications": {
			schema: `{"default": {"a": {}}, "properties": {"b": {}}}`, applications: `{"b": {}}`, want: []string{"b application - [b]"}},
		"what the schema refuses is no application": {
			schema: `{"properties": {"a": false, "b": true}, "additionalProperties": false}`, applications: `{"a": {}, "b": {}, "c": {}}`,
			want: []string{"b application - [b]"}},
		"a switch that is none": {
			schema: `{"properties": {"a": {"properties": {"enable": {"default": true}}}}}`, applications: `{"a": {"enable": "yes"}}`, want: []string{}},
		"null is not the default": {
			schema: `{"properties": {"a": {"properties": {"enable": {"default": true}}}}}`, applications: `{"a": null}`, want: []string{}},
		"no object": {schema: `{"properties": {"a": {}}}`, applications: `{"a": [1]}`, want: []string{}},
		"no page": {
			schema: `{"properties": {"a": {"x-web": false, "x-subdomain": "a"}}}`, applications: `{"a": {"domain": "own.example"}}`,
			want: []string{"a application - [a]"}},
		"the domain itself": {schema: `{"properties": {"a": {"x-subdomain": ""}}}`, applications: `{"a": {}}`, want: []string{"a application example.org [a]"}},
		"annotations of other types": {
			schema: `{"properties": {"a": {"x-subdomain": 3, "x-web": "no"}}}`, applications: `{"a": {"domain": 7}}`, want: []string{"a application - [a]"}},
	} {
		t.Run(name, func(t *testing.T) {
			source := configuration.Source{Methods: []string{"vm"}, Schema: compile(t, `{
				"x-defs": {"web": {"title": "Web", "x-subdomain": "far"}},
				"properties": {"vm": {"properties": {"applications": `+test.schema+`}}}}`)}
			require.Equal(t, test.want, serves(source.Facts(decode(t, vm(test.applications)))))
		})
	}
}

func TestADefaultOfAllApplications(t *testing.T) {
	source := sourceOf(t, `{"default": {"a": {}}, "properties": {"a": {"x-subdomain": "a"}}}`)
	require.Equal(t, []string{"a application a.example.org [a]"}, serves(source.Facts(decode(t, `{"vm": {"domain": "example.org"}}`))))
}

// A draft may lack anything.
func TestFactsOfDrafts(t *testing.T) {
	example, pinned := readSource(t, "example"), readSource(t, "pinned")
	for _, draft := range []string{`{}`, `{"other": {"domain": "example.org"}}`, `{"fleet": {}, "single": {}}`, `[]`, `null`, `"fleet"`} {
		facts := example.Facts(decode(t, draft))
		require.Nil(t, facts.Domain, draft)
		require.Nil(t, facts.Method, draft)
		require.Equal(t, []string{"status component - []"}, serves(facts), draft)
		require.Empty(t, example.Applications(decode(t, draft)), draft)
		require.Empty(t, example.Sections(decode(t, draft)), draft)
	}
	for _, draft := range []string{`{"fleet": null}`, `{"fleet": {}}`, `{"fleet": []}`, `{"fleet": {"domain": 1, "applications": 2}}`} {
		require.Equal(t, "fleet", *example.Facts(decode(t, draft)).Method, draft)
		require.Len(t, example.Applications(decode(t, draft)), 3, draft)
	}
	require.Equal(t, []string{"site application - [site]", "console component - []"}, serves(pinned.Facts(decode(t, `{}`))))
}

// manyLetters is a name of so many letters, of which each is another one as long
// as there are any; written for DNS it takes the square of its length.
func manyLetters(n int) string {
	var name strings.Builder
	for i := range n {
		name.WriteRune('一' + rune(i%20_000))
	}
	return name.String() + ".example"
}

func TestHost(t *testing.T) {
	for name, want := range map[string]string{
		"example.org": "example.org", "Example.ORG": "example.org", "example.org.": "example.org", "localhost": "localhost",
		"bücher.example": "xn--bcher-kva.example", "BÜCHER.Example.": "xn--bcher-kva.example", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"b\u0075\u0308cher.example": "xn--bcher-kva.example", "faß.example": "xn--fa-hia.example", "例え。テスト": "xn--r8jz45g.xn--zckzah",
		"r3---a.example": "r3---a.example", "１.example": "1.example", "192.0.2.1": "192.0.2.1",
		strings.Repeat("a", 63) + ".example": strings.Repeat("a", 63) + ".example",
		"":                                   "", ".": "", "a..b": "", ".example.org": "", "example.org..": "", "exa mple.org": "", "example.org:80": "",
		"example.org/x": "", "a_b.example": "", "*.example.org": "", "xn--a.example": "", "user@example.org": "", "[::1]": "",
		"example.org\n": "", "\u202eexample.org": "", strings.Repeat("a", 64) + ".example": "", strings.Repeat("abcdefg.", 32) + "org": "",
		manyLetters(200_000): "", manyLetters(60): "",
	} {
		host, ok := configuration.Host(name)
		require.Equal(t, want, host, "%q", name)
		require.Equal(t, want != "", ok, "%q", name)
	}
}

// Domains are one whether they are written in upper case, with a dot at the
// end or in another script; what is no host has no page.
func TestDomainsAsDNSHasThem(t *testing.T) {
	source := configuration.Source{Methods: []string{"vm"}, Schema: compile(t, `{
		"x-components": {"status": {"subdomain": "Status"}, "odd": "none", "wide": {"title": "Wide"}},
		"properties": {"vm": {"properties": {"applications": {"properties": {"a": {"x-subdomain": "münze"}}}}}}}`)}
	for domain, want := range map[string]string{
		"Bücher.Example.": "xn--bcher-kva.example", "xn--bcher-kva.example": "xn--bcher-kva.example", "EXAMPLE.org": "example.org",
	} {
		facts := source.Facts(decode(t, `{"vm": {"domain": "`+domain+`", "applications": {"a": {}, "b": {"domain": "OWN.example."}}}}`))
		require.Equal(t, want, *facts.Domain)
		require.Equal(t, []string{
			"a application xn--mnze-0ra." + want + " [a]", "b application own.example [b]",
			"odd component - []", "status component status." + want + " []", "wide component - []",
		}, serves(facts))
	}
	facts := source.Facts(decode(t, `{"vm": {"domain": "no host", "applications": {"a": {"domain": "evil.example/?"}}}}`))
	require.Nil(t, facts.Domain)
	require.Equal(t, []string{"a application - [a]", "odd component - []", "status component - []", "wide component - []"}, serves(facts))
}

func TestChanged(t *testing.T) {
	const schema = `{"properties": {
		"a": {"type": "object", "properties": {
			"enable": {"default": false}, "port": {"type": "integer", "default": 465}, "ratio": {"default": 1.5}, "name": {},
			"mail": {"type": "object", "properties": {"host": {}, "port": {"default": 25}}},
			"limits": {"default": {"cpu": 1}, "properties": {"cpu": {"default": 2}, "memory": {"default": 1}}},
			"off": {"default": null}, "list": {"default": []}, "items": {"items": {"properties": {"n": {"default": 1}}}},
			"free": {"type": "object"},
			"key": {"writeOnly": true, "format": "password"}, "secretsSet": {"readOnly": true}, "secretsClear": {"default": []}
		}},
		"b": {"type": "object"}
	}}`
	source := configuration.Source{Methods: []string{"vm", "metal"}, Schema: compile(t,
		`{"properties": {"vm": {"$ref": "#/x-branch"}, "metal": {"$ref": "#/x-branch"}}, "x-branch": {"properties": {"applications": `+schema+`}}}`)}
	metal := func(applications string) string {
		return `{"metal": {"domain": "other.example", "applications": ` + applications + `}}`
	}
	for name, test := range map[string]struct {
		before, now string
		want        []string
	}{
		"nothing":                     {before: `{}`, now: `{}`},
		"the order of keys":           {before: `{"a": {"enable": true, "name": {"x": 1, "y": 2}}}`, now: `{"a": {"name": {"y": 2, "x": 1}, "enable": true}}`},
		"the spelling of numbers":     {before: `{"a": {"name": [1, 100, 0, 0.5]}}`, now: `{"a": {"name": [1.0, 1e2, -0.0, 5E-1]}}`},
		"one and a tenth":             {before: `{"a": {"name": 1}}`, now: `{"a": {"name": 1.1}}`, want: []string{"a"}},
		"a number and its text":       {before: `{"a": {"name": 1}}`, now: `{"a": {"name": "1"}}`, want: []string{"a"}},
		"large integers":              {before: `{"a": {"name": 9223372036854775806}}`, now: `{"a": {"name": 9223372036854775807}}`, want: []string{"a"}},
		"a tiny number":               {before: `{"a": {"name": 1e-320}}`, now: `{"a": {"name": 0.10e-319}}`},
		"a default written out":       {before: `{"a": {}}`, now: `{"a": {"enable": false, "port": 465.0, "ratio": 15e-1, "off": null, "list": []}}`},
		"a default taken out":         {before: `{"a": {"port": 465}}`, now: `{"a": {}}`},
		"defaults two levels down":    {before: `{"a": {}}`, now: `{"a": {"mail": {"port": 25}}}`},
		"options without any":         {before: `{"a": {"mail": {}}}`, now: `{"a": {}}`},
		"options with one":            {before: `{"a": {}}`, now: `{"a": {"mail": {"host": "h"}}}`, want: []string{"a"}},
		"an object without options":   {before: `{"a": {}}`, now: `{"a": {"free": {}}}`, want: []string{"a"}},
		"the default of an object":    {before: `{"a": {}}`, now: `{"a": {"limits": {"cpu": 1, "memory": 1.0}}}`},
		"not the default of one":      {before: `{"a": {}}`, now: `{"a": {"limits": {}}}`, want: []string{"a"}},
		"no default":                  {before: `{"a": {}}`, now: `{"a": {"port": 25}}`, want: []string{"a"}},
		"null for a value":            {before: `{"a": {}}`, now: `{"a": {"name": null}}`, want: []string{"a"}},
		"null for an object":          {before: `{"a": {}}`, now: `{"a": {"mail": null}}`, want: []string{"a"}},
		"a default in an array":       {before: `{"a": {"items": [{}]}}`, now: `{"a": {"items": [{"n": 1}]}}`},
		"the order of an array":       {before: `{"a": {"items": [1, 2]}}`, now: `{"a": {"items": [2, 1]}}`, want: []string{"a"}},
		"a longer array":              {before: `{"a": {"items": [1]}}`, now: `{"a": {"items": [1, 1]}}`, want: []string{"a"}},
		"added":                       {before: `{}`, now: `{"a": {"enable": true}}`, want: []string{"a"}},
		"added as it would be anyway": {before: `{}`, now: `{"a": {}}`, want: []string{"a"}},
		"removed":                     {before: `{"a": {}, "b": {}}`, now: `{"a": {}}`, want: []string{"b"}},
		"both":                        {before: `{"a": {"name": 1}, "b": {"x": 1}}`, now: `{"a": {"name": 2}, "b": {"x": 2}}`, want: []string{"a", "b"}},
		"one of two":                  {before: `{"a": {"name": 1}, "b": {"x": 1}}`, now: `{"a": {"name": 1}, "b": {"x": 2}}`, want: []string{"b"}},
		"no applications before":      {before: `null`, now: `{"b": {}}`, want: []string{"b"}},
		"a secret":                    {before: `{"a": {"secretsSet": ["key"]}}`, now: `{"a": {"key": "value"}}`, want: []string{"a"}},
		"a secret that is kept":       {before: `{"a": {"secretsSet": ["key"]}}`, now: `{"a": {"key": ""}}`},
		"the same secret":             {before: `{"a": {"key": "value"}}`, now: `{"a": {"key": "value"}}`},
		"another secret":              {before: `{"a": {"key": "value"}}`, now: `{"a": {"key": "other"}}`, want: []string{"a"}},
		"a secret to clear":           {before: `{"a": {}}`, now: `{"a": {"secretsClear": ["key"]}}`, want: []string{"a"}},
	} {
		want := append([]string{}, test.want...)
		for kind, write := range map[string]func(string) string{"the same branch": vm, "another branch": metal} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				now, before := decode(t, write(test.now)), decode(t, vm(test.before))
				require.Equal(t, want, source.Changed(now, before))
				require.Equal(t, want, source.Changed(before, now), "the other way around")
			})
		}
	}
}

// What changed in many applications, each of which is given a secret, is found
// in about the time that it takes to read them.
func TestChangedOfManyApplications(t *testing.T) {
	source := sourceOf(t, `{"additionalProperties": {"properties": {"key": {"writeOnly": true, "format": "password"}}}}`)
	of := func(member string) any {
		var applications strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&applications, `,"a%d":{%q:"value"}`, i, member)
		}
		return decode(t, vm("{"+applications.String()[1:]+"}"))
	}
	took := func(value any) time.Duration {
		begun := time.Now()
		require.Empty(t, source.Changed(value, value))
		return time.Since(begun)
	}
	secret, plain := of("key"), of("title")
	fast := false
	for range 3 {
		fast = fast || took(secret) <= 5*took(plain)
	}
	require.True(t, fast)
}

// Schemas that refer to themselves, and defaults that do, come to an end.
func TestChangedOfEndlessSchemas(t *testing.T) {
	source := readSource(t, "composed")
	of := func(tree string) any {
		return decode(t, `{"solo": {"applications": {"chat": {"tree": `+tree+`}}}}`)
	}
	require.Empty(t, source.Changed(of(`{}`), of(`{"label": "leaf", "right": {"left": {}}}`)))
	require.Empty(t, source.Changed(of(`{"left": {}}`), of(`{"left": {"left": {"label": "leaf"}}}`)))
	require.Equal(t, []string{"chat"}, source.Changed(of(`{}`), of(`{"left": {"label": "l"}}`)))
	cyclic := sourceOf(t, `{"properties": {"a": {"$ref": "#/properties/vm/properties/applications/properties/a", "properties": {
		"a": {"$ref": "#/properties/vm/properties/applications/properties/a", "default": {"a": {}, "b": {}}},
		"b": {"$ref": "#/properties/vm/properties/applications/properties/a", "default": {"a": {}, "b": {}}}}}}}`)
	require.Empty(t, cyclic.Changed(decode(t, vm(`{"a": {}}`)), decode(t, vm(`{"a": {"a": {"a": {}, "b": {}}}}`))))
	deep := strings.Repeat(`{"a":`, 90) + "{}" + strings.Repeat("}", 90)
	require.Equal(t, []string{"a"}, cyclic.Changed(decode(t, vm(deep)), decode(t, vm(`{"a": {}}`))))
}

func FuzzFacts(f *testing.F) {
	deep := strings.Repeat(`{"left":`, 90) + "1" + strings.Repeat("}", 90)
	for _, seed := range []string{
		`{"fleet": {"domain": "example.org", "applications": {"forum": {"enable": true}}}}`, `{"domain": "例え。テスト.", "applications": {"site": null}}`,
		`{"solo": {"applications": {"shop": {"plan": "large"}, "site-a": {"domain": "a.example", "pages": 1e308}, "site-b": 1e-320}}}`,
		`{"cluster": {"applications": {"chat": {"tree": ` + deep + `}}}}`, `{"cluster": {}, "solo": {"applications": [[[]]]}}`, `[{"a": -0}]`,
		`{"fleet": {"domain": "` + strings.Repeat("ü.", 300) + `", "applications": {"": {}, "~1/": {"domain": "\u202e"}}}}`,
	} {
		f.Add(seed, `{"solo": {"applications": {"chat": {"rooms": 5.0}}}}`)
		f.Add(`{"single": {"domain": "x", "applications": {"wiki": {"public": true}}}}`, seed)
	}
	var all []configuration.Source
	for _, name := range sources {
		all = append(all, readSource(f, name))
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		a, err := configuration.Decode([]byte(first))
		if err != nil {
			return
		}
		b, err := configuration.Decode([]byte(second))
		if err != nil {
			return
		}
		for _, source := range all {
			facts := source.Facts(a)
			for _, i := range facts.Instances {
				for _, domain := range i.Domains {
					host, ok := configuration.Host(domain)
					require.True(t, ok)
					require.Equal(t, domain, host, "a host is written in one way")
				}
			}
			require.Len(t, source.Sections(a), len(source.Applications(a)))
			require.Empty(t, source.Changed(a, a))
			require.Equal(t, source.Changed(a, b), source.Changed(b, a))
		}
	})
}
