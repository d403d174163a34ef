package configuration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/configuration"
)

// listsSchema has an application whose lists are those of its secrets.
const listsSchema = `{
	"type": "object", "properties": {"vm": {"type": "object", "properties": {"applications": {"items": {"properties": {"key": {"format": "password", "writeOnly": true}}}, "properties": {
		"forum": {"type": "object", "additionalProperties": false, "properties": {
			"title": {"type": "string"},
			"apiKey": {"type": "string", "format": "password", "writeOnly": true, "minLength": 3},
			"smtp": {"type": "object", "properties": {"host": {}, "login": {"type": "object", "properties": {
				"password": {"type": "string", "format": "password", "writeOnly": true}}}}},
			"accounts": {"type": "array", "items": {"properties": {"key": {"format": "password", "writeOnly": true}}}},
			"peers": {"type": "object", "additionalProperties": {"format": "password", "writeOnly": true}},
			"secretsSet": {"type": "array", "readOnly": true},
			"secretsClear": {"type": "array", "items": {"enum": ["apiKey", "smtp.login.password"]}}
		}},
		"wiki": {"type": "object", "properties": {"key": {"format": "password", "writeOnly": true}}},
		"plain": {"type": "object"}
	}}}}, "outside": {"format": "password", "writeOnly": true}}}`

func TestSecretsOfASubmit(t *testing.T) {
	s := compile(t, listsSchema)
	forum := func(text string) string { return `{"vm":{"applications":{"forum":` + text + `}}}` }
	always := []string{"apiKey", "smtp.login.password"}
	renames := configuration.Renames{"forum": {"apiKey": "translateKey", "translateKey": "key", "key": "apiKey", "smtp.login.password": "../x"}}
	former := map[string][]string{"apiKey": {"translateKey", "key", "apiKey"}}
	for name, test := range map[string]struct {
		in      string
		rest    string
		forum   configuration.ApplicationSecrets
		renames configuration.Renames
	}{
		"nothing": {in: forum(`{}`), rest: forum(`{}`), forum: configuration.ApplicationSecrets{Fields: always}},
		"empty and null keep": {in: forum(`{"apiKey":"","smtp":{"login":{"password":null}}}`), rest: forum(`{"smtp":{"login":{}}}`),
			forum: configuration.ApplicationSecrets{Fields: always}},
		"null on the way": {in: forum(`{"smtp":null}`), rest: forum(`{"smtp":null}`), forum: configuration.ApplicationSecrets{Fields: always}},
		"two levels down": {in: forum(`{"smtp":{"login":{"password":"p"}}}`), rest: forum(`{"smtp":{"login":{}}}`),
			forum: configuration.ApplicationSecrets{Fields: always, Given: []string{"smtp.login.password"}}},
		"a clear": {in: forum(`{"secretsClear":["apiKey"]}`), rest: forum(`{"secretsClear":["apiKey"]}`),
			forum: configuration.ApplicationSecrets{Fields: always, Clear: []string{"apiKey"}}},
		"a clear with an empty value": {in: forum(`{"apiKey":"","secretsClear":["apiKey"]}`), rest: forum(`{"secretsClear":["apiKey"]}`),
			forum: configuration.ApplicationSecrets{Fields: always, Clear: []string{"apiKey"}}},
		"a value wins over a clear": {in: forum(`{"apiKey":"abc","secretsClear":["smtp.login.password","apiKey"]}`),
			rest:  forum(`{"secretsClear":["smtp.login.password"]}`),
			forum: configuration.ApplicationSecrets{Fields: always, Given: []string{"apiKey"}, Clear: []string{"smtp.login.password"}}},
		"no secret leaves the list": {in: forum(`{"secretsClear":["title","gone","smtp","apiKey"]}`), rest: forum(`{"secretsClear":["apiKey"]}`),
			forum: configuration.ApplicationSecrets{Fields: always, Clear: []string{"apiKey"}}},
		"no list is left to the schema": {in: forum(`{"secretsClear":"apiKey"}`), rest: forum(`{"secretsClear":"apiKey"}`),
			forum: configuration.ApplicationSecrets{Fields: always}},
		"a client's secretsSet": {in: forum(`{"secretsSet":["apiKey"]}`), rest: forum(`{}`), forum: configuration.ApplicationSecrets{Fields: always}},
		"arrays and free names": {in: forum(`{"accounts":[{},{"key":"k"}],"peers":{"b":"","a":"x"}}`), rest: forum(`{"accounts":[{},{}],"peers":{}}`),
			forum: configuration.ApplicationSecrets{Fields: []string{"accounts.0.key", "accounts.1.key", "apiKey", "peers.a", "smtp.login.password"},
				Given: []string{"accounts.1.key", "peers.a"}}},
		"renames": {in: forum(`{}`), rest: forum(`{}`), renames: renames, forum: configuration.ApplicationSecrets{Fields: always, Former: map[string][]string{"apiKey": former["apiKey"][:2]}}},
	} {
		t.Run(name, func(t *testing.T) {
			rest, given := s.Split(decode(t, test.in))
			before, err := configuration.Canonical(rest)
			require.NoError(t, err)
			cleaned, applications, problems := s.Secrets(rest, given, test.renames)
			require.Empty(t, problems)
			after, err := configuration.Canonical(rest)
			require.NoError(t, err)
			require.Equal(t, string(before), string(after), "the argument is not changed")
			got, err := configuration.Canonical(cleaned)
			require.NoError(t, err)
			require.JSONEq(t, test.rest, string(got))
			want := test.forum
			want.Path, want.Application, want.Lists = "/vm/applications/forum", "forum", true
			require.Equal(t, []configuration.ApplicationSecrets{want}, applications)
		})
	}
}

func TestSecretsOfSeveralApplications(t *testing.T) {
	s := compile(t, listsSchema)
	rest, given := s.Split(decode(t, `{"vm":{"applications":{"wiki":{"key":"k"},"plain":{},"forum":null}}}`))
	_, applications, problems := s.Secrets(rest, given, nil)
	require.Empty(t, problems)
	require.Equal(t, []configuration.ApplicationSecrets{{Path: "/vm/applications/wiki", Application: "wiki", Fields: []string{"key"}, Given: []string{"key"}}}, applications)
}

func TestSecretsThatCannotBeKept(t *testing.T) {
	s := compile(t, listsSchema)
	for in, path := range map[string]string{
		`{"outside":"CANARY"}`:                                                                      "/outside",
		`{"vm":{"applications":[{"key":"CANARY"}]}}`:                                                "/vm/applications/0/key",
		`{"none":"","outside":"CANARY"}`:                                                            "/outside",
		`{"vm":{"applications":{"forum":{"peers":{"../../other":"CANARY"}}}}}`:                      "/vm/applications/forum/peers/..~1..~1other",
		`{"vm":{"applications":{"forum":{"peers":{"a b":"CANARY"}}}}}`:                              "/vm/applications/forum/peers/a b",
		`{"vm":{"applications":{"forum":{"peers":{"..":"CANARY"}}}}}`:                               "/vm/applications/forum/peers/..",
		`{"vm":{"applications":{"forum":{"peers":{"` + strings.Repeat("a", 200) + `":"CANARY"}}}}}`: "/vm/applications/forum/peers/" + strings.Repeat("a", 200),
	} {
		rest, given := s.Split(decode(t, in))
		_, _, problems := s.Secrets(rest, given, nil)
		require.Len(t, problems, 1, in)
		require.Equal(t, path, problems[0].Path)
		require.NotContains(t, problems[0].Message, "CANARY")
	}

	twice := compile(t, `{"properties": {"a": {"$ref": "#/$defs/m"}, "b": {"$ref": "#/$defs/m"}}, "$defs": {"m": {"properties": {
		"applications": {"properties": {"forum": {"properties": {"k": {"writeOnly": true, "format": "password"}}}}}}}}}`)
	rest, given := twice.Split(decode(t, `{"a":{"applications":{"forum":{"k":"1"}}},"b":{"applications":{"forum":{"k":"2"}}}}`))
	_, _, problems := twice.Secrets(rest, given, nil)
	require.Equal(t, []configuration.Problem{{Path: "/b/applications/forum/k", Message: "is the same secret as that at /a/applications/forum/k"}}, problems)
}

func TestFieldsOfARecursiveSchema(t *testing.T) {
	s := compile(t, `{"properties": {"applications": {"properties": {"x": {"$ref": "#/$defs/n"}}}},
		"$defs": {"n": {"properties": {"s": {"writeOnly": true, "format": "password"}, "n": {"$ref": "#/$defs/n"}, "m": {"$ref": "#/$defs/n"}}}}}`)
	_, applications, problems := s.Secrets(decode(t, `{"applications":{"x":{"n":{"n":{}}}}}`), nil, nil)
	require.Empty(t, problems)
	fields := applications[0].Fields
	require.Subset(t, fields, []string{"s", "n.s", "n.n.s", "n.n.n.s", "m.s", "n.m.s"})
	require.Less(t, len(fields), 20)
}

func TestDecide(t *testing.T) {
	chain := map[string][]string{"key": {"old", "oldest"}}
	for name, test := range map[string]struct {
		secrets configuration.ApplicationSecrets
		live    []string
		want    configuration.SecretDecision
		names   []string
	}{
		"nothing anywhere": {
			secrets: configuration.ApplicationSecrets{Fields: []string{"key"}}, names: []string{"key"}},
		"given": {
			secrets: configuration.ApplicationSecrets{Fields: []string{"key", "other"}, Given: []string{"key"}}, live: []string{"key"},
			want: configuration.SecretDecision{Set: []string{"key"}, Write: []string{"key"}}, names: []string{"other"}},
		"kept": {
			secrets: configuration.ApplicationSecrets{Fields: []string{"key", "other"}}, live: []string{"key", "stranger"},
			want: configuration.SecretDecision{Set: []string{"key"}}, names: []string{"key", "other"}},
		"cleared, with an entry and one of an old name": {
			secrets: configuration.ApplicationSecrets{Fields: []string{"key"}, Clear: []string{"key"}, Former: chain}, live: []string{"key", "old"}},
		"renamed": {
			secrets: configuration.ApplicationSecrets{Fields: []string{"key"}, Former: chain}, live: []string{"old", "oldest"},
			want: configuration.SecretDecision{Set: []string{"key"}, Copy: map[string]string{"key": "old"}}, names: []string{"key", "old", "oldest"}},
		"renamed twice": {
			secrets: configuration.ApplicationSecrets{Fields: []string{"key"}, Former: chain}, live: []string{"oldest"},
			want: configuration.SecretDecision{Set: []string{"key"}, Copy: map[string]string{"key": "oldest"}}, names: []string{"key", "old", "oldest"}},
		"renamed and there": {
			secrets: configuration.ApplicationSecrets{Fields: []string{"key"}, Former: chain}, live: []string{"key", "old"},
			want: configuration.SecretDecision{Set: []string{"key"}}, names: []string{"key", "old", "oldest"}},
		"renamed and given": {
			secrets: configuration.ApplicationSecrets{Fields: []string{"key"}, Given: []string{"key"}, Former: chain}, live: []string{"old"},
			want: configuration.SecretDecision{Set: []string{"key"}, Write: []string{"key"}}},
		"held by the stored configuration": {
			secrets: configuration.ApplicationSecrets{Fields: []string{"key"}, Stored: []string{"key"}},
			want:    configuration.SecretDecision{Set: []string{"key"}, Write: []string{"key"}}, names: []string{"key"}},
		"held by it and by OpenBao": {
			secrets: configuration.ApplicationSecrets{Fields: []string{"key"}, Stored: []string{"key"}, Former: chain}, live: []string{"old"},
			want: configuration.SecretDecision{Set: []string{"key"}, Copy: map[string]string{"key": "old"}}, names: []string{"key", "old", "oldest"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, test.secrets.Decide(test.live))
			require.Equal(t, test.names, test.secrets.Names())
		})
	}
}

func TestStoredValuesOfASecretThatCameLater(t *testing.T) {
	s := compile(t, listsSchema)
	stored := decode(t, `{"vm":{"applications":{"forum":{"apiKey":"old1","smtp":{"login":{"password":"old2"}},"peers":{"a":"old3"}},"wiki":{"key":"old4"}}}}`)
	for in, want := range map[string][]string{
		`{}`:                          {"apiKey", "smtp.login.password"},
		`{"apiKey":"new"}`:            {"smtp.login.password"},
		`{"apiKey":null,"peers":{}}`:  {"apiKey", "smtp.login.password"},
		`{"secretsClear":["apiKey"]}`: {"smtp.login.password"},
	} {
		rest, given := s.Split(decode(t, `{"vm":{"applications":{"forum":`+in+`}}}`))
		_, applications, _ := s.Secrets(rest, given, nil)
		secrets := s.Stored(stored, applications)
		require.Equal(t, want, applications[0].Stored, in)
		require.Len(t, secrets, len(want))
		for i, field := range want {
			require.Equal(t, field, secrets[i].Field)
			require.Contains(t, secrets[i].Value, "old")
		}
	}
}

func TestWithSecretsSet(t *testing.T) {
	in := decode(t, `{"a":{"applications":{"x/y":{"n":1.0},"b":{}}}}`)
	applications := []configuration.ApplicationSecrets{{Path: "/a/applications/x~1y", Lists: true}, {Path: "/a/applications/b", Lists: false}, {Path: "/a/gone/x", Lists: true}}
	out := configuration.WithSecretsSet(in, applications, map[string][]string{
		"/a/applications/x~1y": {"k", "l"}, "/a/applications/b": {"k"}, "/a/gone/x": {"k"}})
	got, err := configuration.Canonical(out)
	require.NoError(t, err)
	require.Equal(t, `{"a":{"applications":{"b":{},"x/y":{"n":1.0,"secretsSet":["k","l"]}}}}`, string(got))
	require.Equal(t, decode(t, `{"a":{"applications":{"x/y":{"n":1.0},"b":{}}}}`), in)
	require.Equal(t, in, configuration.WithSecretsSet(in, applications, nil))
}

func TestValidateWithChecksSecretsByTheirOwnSchema(t *testing.T) {
	s := compile(t, listsSchema)
	rest, given := s.Split(decode(t, `{"vm":{"applications":{"forum":{"apiKey":"CA","title":1,"smtp":{"login":{"password":17}}}}}}`))
	problems := s.ValidateWith(rest, given)
	require.Equal(t, []configuration.Problem{
		{Path: "/vm/applications/forum/apiKey", Message: "has 2 characters, at least 3 are needed"},
		{Path: "/vm/applications/forum/smtp/login/password", Message: "is number, allowed: string"},
		{Path: "/vm/applications/forum/title", Message: "is number, allowed: string"},
	}, problems)
	require.NotContains(t, s.Validate(rest), problems[0], "the rest still has no secret")
}

// What a stored configuration holds at the place of a secret is not shown; all
// else is, as it is.
func TestMask(t *testing.T) {
	const application = `{"type": "object", "properties": {
		"title": {"type": "string"},
		"secretsSet": {"type": "array", "readOnly": true},
		"key": {"type": "string", "writeOnly": true, "format": "password"},
		"smtp": {"type": "object", "properties": {"password": {"$ref": "#/$defs/secret"}}}
	}}`
	const defs = `"$defs": {"secret": {"type": "string", "writeOnly": true, "format": "password"}}`
	named := `{"properties": {"vm": {"properties": {"applications": {"properties": {"forum": ` + application + `}}}}}, ` + defs + `}`
	pattern := `{"properties": {"vm": {"properties": {"applications": {"additionalProperties": {"patternProperties": {"^k": {"$ref": "#/$defs/secret"}}}}}}}, ` + defs + `}`
	for _, test := range []struct{ name, schema, stored, want string }{
		{"nothing to mask", named, `{"vm":{"applications":{"forum":{"secretsSet":["key"],"title":"a"}}}}`, ""},
		{"another member of that name", named, `{"vm":{"key":"not secret"}}`, ""},
		{"no schema for it", `{}`, `{"vm":{"applications":{"forum":{"key":"v"}}}}`, ""},
		{"a value, and secretsSet", named, `{"vm":{"applications":{"forum":{"key":"v","secretsSet":["smtp.password"],"title":"a"}}}}`,
			`{"vm":{"applications":{"forum":{"secretsSet":["smtp.password"],"title":"a"}}}}`},
		{"nested, by a reference", named, `{"vm":{"applications":{"forum":{"smtp":{"password":"v"}}}}}`,
			`{"vm":{"applications":{"forum":{"smtp":{}}}}}`},
		{"a value that is no text", named, `{"vm":{"applications":{"forum":{"key":{"a":1}}}}}`, `{"vm":{"applications":{"forum":{}}}}`},
		{"by a pattern", pattern, `{"vm":{"applications":{"forum":{"kéy":"v"}}}}`, `{"vm":{"applications":{"forum":{}}}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			schema, err := configuration.Compile([]byte(test.schema))
			require.NoError(t, err)
			masked, err := schema.Mask([]byte(test.stored))
			require.NoError(t, err)
			if test.want == "" {
				test.want = test.stored
			}
			require.Equal(t, test.want, string(masked))
		})
	}
}

// Many secrets and many applications cost what their number says: a tenth of
// them takes more than a fortieth of the time.
func TestManySecrets(t *testing.T) {
	const most = 20_000
	s := compile(t, `{"properties": {"applications": {"additionalProperties": {"properties": {
		"key": {"type": "string", "writeOnly": true, "format": "password"}, "secretsSet": {"readOnly": true}, "free": {"additionalProperties": {"writeOnly": true, "format": "password"}}}}}}}`)
	of := func(n int, application func(i int) string) any {
		var applications strings.Builder
		for i := range n {
			fmt.Fprintf(&applications, `,"a%d":%s`, i, application(i))
		}
		return decode(t, `{"applications":{`+applications.String()[1:]+`}}`)
	}
	for name, do := range map[string]func(n int) func(){
		"given in their places": func(n int) func() {
			rest := of(n, func(int) string { return "{}" })
			var given []configuration.Secret
			for i := range n {
				given = append(given, configuration.Secret{Path: fmt.Sprintf("/applications/a%d/key", i), Value: "v"})
			}
			return func() { require.Empty(t, s.ValidateWith(rest, given)) }
		},
		"cleared and set": func(n int) func() {
			rest := of(n, func(int) string { return `{"secretsClear":["key","none"]}` })
			return func() {
				cleaned, applications, problems := s.Secrets(rest, nil, nil)
				require.Empty(t, problems)
				require.Len(t, applications, n)
				set := map[string][]string{}
				for _, a := range applications {
					require.Equal(t, []string{"key"}, a.Clear)
					set[a.Path] = []string{"key"}
				}
				require.NotEqual(t, cleaned, configuration.WithSecretsSet(cleaned, applications, set))
			}
		},
		"held by the stored configuration": func(n int) func() {
			stored := of(n, func(int) string { return `{"key":"v"}` })
			_, applications, _ := s.Secrets(of(n, func(int) string { return "{}" }), nil, nil)
			return func() { require.Len(t, s.Stored(stored, applications), n) }
		},
		"cleared in one application": func(n int) func() {
			var keys, names []string
			for i := range n {
				keys, names = append(keys, fmt.Sprintf(`"k%d":""`, i)), append(names, fmt.Sprintf(`"free.k%d"`, i))
			}
			rest := decode(t, `{"applications":{"a":{"free":{`+strings.Join(keys, ",")+`},"secretsClear":[`+strings.Join(names, ",")+`]}}}`)
			return func() {
				_, applications, _ := s.Secrets(rest, nil, nil)
				require.Len(t, applications[0].Clear, n)
				require.Empty(t, applications[0].Decide(applications[0].Fields).Write)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			few, many := do(most/10), do(most)
			took := func(do func()) time.Duration {
				begun := time.Now()
				do()
				return time.Since(begun)
			}
			fast := false
			for range 3 {
				fast = fast || took(many) <= 40*took(few)
			}
			require.True(t, fast)
		})
	}
}

func TestASubmitGivesABoundedNumberOfSecrets(t *testing.T) {
	s := compile(t, listsSchema)
	of := func(n int) (any, []configuration.Secret) {
		var peers strings.Builder
		for i := range n {
			fmt.Fprintf(&peers, `,"p%04d":"CANARY"`, i)
		}
		return s.Split(decode(t, `{"vm":{"applications":{"forum":{"peers":{`+peers.String()[1:]+`}}}}}`))
	}
	rest, given := of(configuration.MaxSecrets)
	_, applications, problems := s.Secrets(rest, given, nil)
	require.Empty(t, problems)
	require.Len(t, applications[0].Given, 256)
	rest, given = of(5000)
	require.Equal(t, decode(t, `{"vm":{"applications":{"forum":{"peers":{}}}}}`), rest, "all of them are taken out")
	_, _, problems = s.Secrets(rest, given, nil)
	require.Len(t, problems, 1)
	require.Equal(t, "/vm/applications/forum/peers/p0256", problems[0].Path)
	require.Contains(t, problems[0].Message, "at most 256")
}
