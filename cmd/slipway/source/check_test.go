package source

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway/exit"
)

// run runs the command with a Nix store of its own and gives its exit code.
func run(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	folder := t.TempDir()
	t.Cleanup(func() { // a store is read-only, which only root can ignore
		_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				_ = os.Chmod(path, 0o755)
			}
			return nil
		})
	})
	env := []string{"NIX_CONFIG=substitute = false"}
	for name, variable := range map[string]string{"store": "NIX_STORE_DIR", "var": "NIX_STATE_DIR", "log": "NIX_LOG_DIR"} {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(path, 0o755))
		env = append(env, variable+"="+path)
	}
	var stdout bytes.Buffer
	command := exit.Strict(Command(func() []string { return nil }, func() []string { return env }))
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(append([]string{"check"}, args...))
	command.SetOut(&stdout)
	command.SetErr(&stdout)
	err := command.ExecuteContext(t.Context())
	if err == nil {
		return stdout.String(), 0
	}
	var known *exit.Error
	require.ErrorAs(t, err, &known)
	return stdout.String() + known.Error(), known.Code
}

// findings are those of a report in JSON, by what they are about.
func findings(t *testing.T, args ...string) (map[string][]Finding, int) {
	t.Helper()
	out, code := run(t, append(args, "--json")...)
	var r report
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	require.Equal(t, r.OK, code == 0)
	found := map[string][]Finding{}
	for _, f := range r.Findings {
		found[f.What] = append(found[f.What], f)
		require.True(t, f.Status == OK || f.Status == Skipped || f.Advice != "", "%+v does not say what to do", f)
	}
	return found, code
}

const root = "../../.."

func TestExampleSourceKeepsTheContract(t *testing.T) {
	t.Parallel()
	out, code := run(t, root+"/deploy/source", "--configuration", root+"/deploy/source/example.json")
	require.Zero(t, code, out)
	require.NotContains(t, out, "wrong")
	require.NotContains(t, out, "note")
	for _, line := range []string{"names          ok        4 nodes", "systems        ok", "deployer       ok", "types          ok", "The source keeps the contract.\n"} {
		require.Contains(t, out, line)
	}
}

func TestSourceOfModulesKeepsTheContract(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "configuration.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"domain":"a.example","applications":{"forum":{"enable":true}}}`), 0o644))
	found, code := findings(t, root+"/tests/sources/modules", "--configuration", file)
	require.Zero(t, code, "%+v", found)
	require.Equal(t, OK, found["types"][0].Status)
}

// good is a source that keeps the contract, with each attribute on its own.
var good = map[string]string{
	"schema": `{
		"$schema" = "https://json-schema.org/draft/2020-12/schema"; type = "object";
		properties = { domain.type = "string"; applications.properties.wiki.properties.key.type = "string"; };
	}`,
	"method":   `"vm"`,
	"methods":  `[ "vm" ]`,
	"renames":  `{ wiki.key = "old"; }`,
	"names":    `configuration: { nodes.web = { names = [ configuration.domain ]; configuration = "${./deployer}"; }; disabledApplications = [ ]; }`,
	"systems":  `configuration: { web = (derivation { name = "web"; system = "any"; builder = "/bin/sh"; }).drvPath; }`,
	"deployer": `./deployer`,
}

// write writes the source with changed attributes; an empty one is left out.
func write(t *testing.T, changes map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	attributes := maps.Clone(good)
	maps.Copy(attributes, changes)
	var text strings.Builder
	text.WriteString("{\n")
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if attributes[name] != "" {
			fmt.Fprintf(&text, "  %s = %s;\n", name, attributes[name])
		}
	}
	text.WriteString("}\n")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "slipway.nix"), []byte(text.String()), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "deployer"), []byte("#!/bin/sh\n"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "systems.nix"), []byte(
		`configuration: builtins.seq (builtins.getEnv "USER") ((`+good["systems"]+`) configuration)`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "configuration.json"), []byte(`{"domain":"a.example"}`), 0o644))
	return folder
}

// expected is a part of what a check should say.
type expected struct {
	what    string
	status  Status
	message string
}

func TestWhatIsMissingOrWrong(t *testing.T) {
	t.Parallel()
	unforced := `_: { nodes.web = { names = [ ]; configuration = "${./deployer}"; }; disabledApplications = [ "forum" ]; }`
	for name, test := range map[string]struct {
		changes map[string]string
		want    []expected
	}{
		"missing": {map[string]string{"schema": "", "method": "", "names": "", "systems": "", "deployer": ""}, []expected{
			{"schema", Missing, `no attribute "schema"`}, {"method", Missing, `no attribute "method"`}, {"names", Missing, `no attribute "names"`},
			{"systems", Missing, `no attribute "systems"`}, {"deployer", Missing, "deployer"},
		}},
		"of another type": {map[string]string{
			"schema": `{ type = "thing"; }`, "method": `1`, "renames": `[ ]`, "names": `{ }`, "systems": `[ ]`, "deployer": `./gone`,
		}, []expected{
			{"schema", Wrong, "not a JSON Schema"}, {"method", Wrong, "wrong type"}, {"renames", Wrong, "wrong type"},
			{"names", Wrong, "it is not a function"}, {"systems", Wrong, "it is not a function"}, {"deployer", Wrong, "no file"},
		}},
		"throws": {map[string]string{
			"schema": `throw "not done yet"`, "methods": `[ "vm" "vm" ]`, "deployer": `./slipway.nix`,
		}, []expected{{"schema", Wrong, "not done yet"}, {"methods", Wrong, "twice"}, {"deployer", Wrong, "not an executable file"}}},
		"draft": {map[string]string{"schema": `{ "$schema" = "http://json-schema.org/draft-07/schema#"; }`, "method": `"other"`}, []expected{
			{"schema", Wrong, "draft-07"}, {"method", Wrong, `"other" is none of methods`},
		}},
		"references": {map[string]string{"schema": `{ "$ref" = "urn:other"; "$defs".other = { "$id" = "urn:other"; }; }`}, []expected{
			{"schema", Wrong, `write "$ref": "#/$defs/<name>" instead`},
		}},
		"not pinned": {map[string]string{"method": "null", "renames": `{ wiki.gone = "key"; }`}, []expected{
			{"method", Wrong, "root keys applications, domain instead of vm"}, {"renames", Wrong, "no field gone in the application wiki"},
		}},
		"refuses": {map[string]string{"schema": `{ properties = { domain.type = "integer"; applications = { }; }; }`}, []expected{
			{"configuration", Wrong, "/domain"}, {"schema", Note, "which draft"}, {"renames", Wrong, "no field key"},
		}},
		"names refuse": {map[string]string{"names": `_: throw "no disk"`}, []expected{{"names", Wrong, "no disk"}, {"systems", Skipped, "not known"}}},
		"types": {map[string]string{"names": unforced, "systems": `_: { }`}, []expected{
			{"types", Note, "/domain"}, {"names", Wrong, "names forum"}, {"systems", Missing, "web: the source has no attribute"},
		}},
		"outside": {map[string]string{
			"schema":  `builtins.seq builtins.currentTime (` + good["schema"] + `)`,
			"renames": `if builtins.getEnv "HOME" == "" then { } else { }`,
			"methods": `if builtins.nixPath == [ ] then [ "vm" ] else [ "vm" ]`,
			"names":   `configuration: builtins.seq (toString <slipway>) ((` + good["names"] + `) configuration)`,
			"systems": `import ./systems.nix`,
		}, []expected{
			{"outside", Wrong, "schema: it depends on the time"}, {"outside", Wrong, "renames: it depends on the environment variable HOME"},
			{"outside", Wrong, "methods: it depends on NIX_PATH"}, {"outside", Wrong, "names: it depends on NIX_PATH, by <slipway>"},
			{"outside", Wrong, "systems: it depends on the environment variable USER"}, {"systems", OK, "1 nodes"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := write(t, test.changes)
			found, code := findings(t, folder, "--configuration", filepath.Join(folder, "configuration.json"))
			require.Equal(t, exitBroken, code, "%+v", found)
			for _, want := range test.want {
				require.True(t, slices.ContainsFunc(found[want.what], func(f Finding) bool {
					return f.Status == want.status && strings.Contains(f.Message, want.message)
				}), "%+v: %+v", want, found)
			}
		})
	}
}

func TestWhatCannotBeChecked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		code int
		text string
	}{
		{nil, exit.Usage, "takes one folder"},
		{[]string{"a", "b"}, exit.Usage, "takes one folder"},
		{[]string{".", "--nix-timeout", "never"}, exit.Usage, "SLIPWAY_NIX_TIMEOUT"},
		{[]string{".", "--nonsense"}, exit.Usage, "nonsense"},
		{[]string{".", "--configuration", "/nowhere.json"}, exit.Usage, "/nowhere.json"},
		{[]string{".", "--configuration", "check_test.go"}, exit.Usage, "configuration:"},
		{[]string{filepath.Join(t.TempDir(), "gone")}, exitBroken, "no such folder"},
		{[]string{t.TempDir()}, exitBroken, "it has no file slipway.nix"},
		{[]string{"git+https://example.org/x"}, exitBroken, "pinned"},
		{[]string{"git+file:///nowhere?rev=" + strings.Repeat("0", 40)}, exitNotDone, "git cannot fetch it"},
	} {
		out, code := run(t, test.args...)
		require.Equal(t, test.code, code, "%v: %s", test.args, out)
		require.Contains(t, out, test.text)
	}
}
