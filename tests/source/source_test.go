package source

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/tests/stand"
)

// example is the folder of the example module source.
func example() string { return filepath.Join(stand.Root(), "deploy", "source") }

// single has one node, main.
const single = `{"single":{"domain":"example.org","applications":{"wiki":{"enable":true}}}}`

// deployer is what the deployer is run with, on profiles of its own.
type deployer struct {
	t      *testing.T
	source string
	folder string
	env    []string
}

func newDeployer(t *testing.T, source string, env ...string) *deployer {
	return &deployer{t, source, t.TempDir(), env}
}

// edited is a copy of the example in which files are changed.
func edited(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "source")
	require.NoError(t, os.CopyFS(folder, os.DirFS(example())))
	for name, text := range files {
		require.FileExists(t, filepath.Join(folder, name))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	return folder
}

// node is one of nodes.json.
type node struct {
	Name    string
	Changed bool
	SBOM    *string
	Reason  *string
}

// run runs the deployer and returns its output.
func (d *deployer) run(action, configuration string) (output string, err error) {
	d.t.Helper()
	require.NoError(d.t, os.RemoveAll(d.sboms()))
	require.NoError(d.t, os.Mkdir(d.sboms(), 0o755))
	file := filepath.Join(d.folder, "configuration.json")
	require.NoError(d.t, os.WriteFile(file, []byte(configuration), 0o600))
	cmd := exec.CommandContext(d.t.Context(), filepath.Join(d.source, "deployer"), action)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "SLIPWAY_DEPLOYMENT_ID=test", "SLIPWAY_SOURCE=" + d.source, "SLIPWAY_CONFIGURATION=" + file,
		"SBOM_OUT_DIR=" + d.sboms(), "DEPLOY_PROFILES=" + filepath.Join(d.folder, "profiles"), "TMPDIR=" + d.folder,
	}, d.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// deploy deploys and returns the nodes by name.
func (d *deployer) deploy(configuration string) (nodes map[string]node, output string) {
	d.t.Helper()
	output, err := d.run("deploy", configuration)
	require.NoError(d.t, err, output)
	text, err := os.ReadFile(filepath.Join(d.sboms(), "nodes.json"))
	require.NoError(d.t, err)
	var listed struct{ Nodes []node }
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	require.NoError(d.t, decoder.Decode(&listed), "%s", text)
	nodes = map[string]node{}
	for _, n := range listed.Nodes {
		nodes[n.Name] = n
	}
	require.Len(d.t, nodes, len(listed.Nodes))
	return nodes, output
}

func (d *deployer) sboms() string { return filepath.Join(d.folder, "sboms") }

// sbom is the document of a node.
func (d *deployer) sbom(n node) []byte {
	d.t.Helper()
	require.NotNil(d.t, n.SBOM, "%v", n)
	require.Nil(d.t, n.Reason)
	require.Equal(d.t, n.Name+".cdx.json", *n.SBOM)
	text, err := os.ReadFile(filepath.Join(d.sboms(), *n.SBOM))
	require.NoError(d.t, err)
	return text
}

// system is the store path that a node runs.
func (d *deployer) system(name string) string {
	d.t.Helper()
	path, err := filepath.EvalSymlinks(filepath.Join(d.folder, "profiles", "test", name))
	require.NoError(d.t, err)
	return path
}

// nix runs a program of Nix and returns the lines of its output.
func nix(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "NIX_CONFIG=substitute = false\nsandbox = false\nbuild-users-group =")
	out, err := cmd.Output()
	require.NoError(t, err, args)
	return strings.Fields(string(out))
}

// schema is the JSON Schema of CycloneDX 1.5, which comes with cyclonedx-go.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing from elsewhere
	const base = "http://cyclonedx.org/schema/"
	for url, name := range map[string]string{
		base + "bom-1.5.schema.json": "bom-1.5.schema.json", base + "spdx.schema.json": "spdx.schema.json",
		base + "jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		file, err := os.Open(filepath.Join(strings.TrimSpace(string(out)), "schema", name))
		require.NoError(t, err)
		document, err := jsonschema.UnmarshalJSON(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		require.NoError(t, c.AddResource(url, document))
	}
	compiled, err := c.Compile(base + "bom-1.5.schema.json")
	require.NoError(t, err)
	return compiled
}

func valid(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return s.Validate(value)
}

// TestSBOMsAreThoseOfTheClosures holds each document against the schema, against
// cyclonedx-go and against Nix.
func TestSBOMsAreThoseOfTheClosures(t *testing.T) {
	t.Parallel()
	configuration, err := os.ReadFile(filepath.Join(example(), "example.json"))
	require.NoError(t, err)
	d := newDeployer(t, example())
	nodes, output := d.deploy(string(configuration))
	require.ElementsMatch(t, []string{"backup", "forum", "gateway", "wiki"}, slices.Collect(maps.Keys(nodes)))
	cyclonedx := schema(t)
	serials := map[string]bool{}
	for name, n := range nodes {
		require.True(t, n.Changed, name)
		text := d.sbom(n)
		require.NoError(t, valid(t, cyclonedx, text), name)
		require.Contains(t, output, name+": its SBOM names ")

		var bom cdx.BOM
		require.NoError(t, cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&bom))
		require.Equal(t, cdx.SpecVersion1_5, bom.SpecVersion)
		require.Regexp(t, `^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$`, bom.SerialNumber)
		serials[bom.SerialNumber] = true
		require.Empty(t, bom.Metadata.Timestamp, "it would change the bytes")

		system := d.system(name)
		require.Equal(t, system, bom.Metadata.Component.BOMRef)
		paths := []string{system}
		licenses := map[string]string{}
		for _, c := range *bom.Components {
			paths = append(paths, c.BOMRef)
			require.Equal(t, []cdx.Property{{Name: "nix:store_path", Value: c.BOMRef}}, *c.Properties)
			require.True(t, strings.HasSuffix(c.BOMRef, "-"+strings.TrimSuffix(c.Name+"-"+c.Version, "-")), "%s %s", c.Name, c.Version)
			require.Equal(t, strings.TrimSuffix("pkg:nix/"+c.Name+"@"+c.Version, "@"), c.PackageURL)
			licenses[c.Name+" "+c.Version] = ""
			if c.Licenses != nil {
				licenses[c.Name+" "+c.Version] = (*c.Licenses)[0].License.ID
			}
		}
		require.ElementsMatch(t, nix(t, "nix-store", "--query", "--requisites", system), paths)
		if name == "wiki" {
			require.Equal(t, map[string]string{
				"slipway-example-runtime 4.2.1": "MIT", "slipway-example-database 15.6": "PostgreSQL",
				"slipway-example-wiki 1.41.2": "GPL-2.0-or-later", "configuration.nix ": "",
			}, licenses)
		}
		var refs []string
		for _, dependency := range *bom.Dependencies {
			refs = append(refs, dependency.Ref)
			want := nix(t, "nix-store", "--query", "--references", dependency.Ref)
			require.ElementsMatch(t, want, *dependency.Dependencies, dependency.Ref)
		}
		require.ElementsMatch(t, paths, refs)

		// Built once more, it is the same, or Nix says that it is not.
		drv := nix(t, "nix-instantiate", "-I", "slipway="+example(), "-I", "configuration="+filepath.Join(d.folder, "configuration.json"),
			"--expr", "(import <slipway/deploy.nix> <configuration>).sboms."+name)
		built := nix(t, "nix-store", "--realise", "--check", drv[0])
		again, err := os.ReadFile(built[0])
		require.NoError(t, err)
		require.Equal(t, string(text), string(again))
	}
	require.Len(t, serials, len(nodes))

	// The check of the schema is one.
	require.Error(t, valid(t, cyclonedx, bytes.Replace(d.sbom(nodes["wiki"]), []byte(`"id": "MIT"`), []byte(`"id": "mine"`), 1)))
	require.Error(t, valid(t, cyclonedx, bytes.Replace(d.sbom(nodes["wiki"]), []byte(`"type": "library"`), []byte(`"type": "thing"`), 1)))
}

// TestChanged: a node is changed by the deploy that succeeds with something else
// on it, also where an earlier one stopped half-way.
func TestChanged(t *testing.T) {
	t.Parallel()
	d := newDeployer(t, example())
	fleet := func(wiki string, forum bool) string {
		enabled := map[bool]string{true: "true", false: "false"}[forum]
		return `{"fleet":{"domain":"example.org","applications":{"wiki":{"enable":true,"title":"` + wiki + `"},"forum":{"enable":` + enabled + `}}}}`
	}
	changed := func(configuration string) map[string]bool {
		t.Helper()
		nodes, _ := d.deploy(configuration)
		out := map[string]bool{}
		for name, n := range nodes {
			out[name] = n.Changed
		}
		return out
	}
	require.Equal(t, map[string]bool{"gateway": true, "wiki": true, "forum": true}, changed(fleet("A", true)))
	require.Equal(t, map[string]bool{"gateway": false, "wiki": false, "forum": false}, changed(fleet("A", true)))
	require.Equal(t, map[string]bool{"gateway": false, "wiki": true, "forum": false}, changed(fleet("B", true)))
	require.Equal(t, map[string]bool{"gateway": false, "wiki": false}, changed(fleet("B", false)), "a node that is gone")

	// Activates the forum, and then not the wiki.
	real, err := exec.LookPath("nix-env")
	require.NoError(t, err)
	broken := filepath.Join(d.folder, "bin")
	require.NoError(t, os.Mkdir(broken, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(broken, "nix-env"), []byte("#!/bin/sh\ncase $* in *wiki*--set*) exit 1 ;; esac\nexec "+real+" \"$@\"\n"), 0o755))
	d.env = []string{"PATH=" + broken + ":" + os.Getenv("PATH")}
	output, err := d.run("deploy", fleet("C", true))
	require.Error(t, err, output)
	require.Contains(t, output, "wiki: its system cannot be activated")
	require.NoFileExists(t, filepath.Join(d.sboms(), "nodes.json"))
	d.env = nil
	require.Equal(t, map[string]bool{"gateway": false, "wiki": true, "forum": true}, changed(fleet("C", true)),
		"the forum is up to date, but no deploy that succeeded said what is on it")

	output, err = d.run("destroy", "")
	require.NoError(t, err, output)
	require.NoDirExists(t, filepath.Join(d.folder, "profiles", "test"))
	require.Equal(t, map[string]bool{"gateway": true, "wiki": true, "forum": true}, changed(fleet("C", true)))
}

// TestNoSBOM: what is wrong with an SBOM is the reason of its node, and nothing
// else.
func TestNoSBOM(t *testing.T) {
	t.Parallel()
	sbom, err := os.ReadFile(filepath.Join(example(), "sbom.nix"))
	require.NoError(t, err)
	const fleet = `{"fleet":{"domain":"example.org","applications":{"wiki":{"enable":true}}}}`
	badNode := func(expression string) map[string]string {
		return map[string]string{"sbom.nix": regexp.MustCompile(`(?m)^node: system:$`).
			ReplaceAllString(string(sbom), `node: system: if node.name == "wiki" then `+expression+" else")}
	}
	for _, c := range []struct {
		name          string
		files         map[string]string
		env           string
		configuration string
		reasons       map[string]string // of the nodes, a regular expression; empty for an SBOM
	}{
		{"does not build", map[string]string{"builders/sbom.sh": "echo 'no \"paper\" left' >&2\nexit 3\n"}, "", single,
			map[string]string{"main": `^the SBOM does not build: .*slipway-sbom-main\.drv.* no "paper" left$`}},
		{"builds nothing", map[string]string{"builders/sbom.sh": ":\n"}, "", single,
			map[string]string{"main": `^the SBOM does not build: .*slipway-sbom-main\.drv`}},
		{"late", map[string]string{"builders/sbom.sh": "sleep 600\n"}, "DEPLOY_SBOM_TIMEOUT=2", single,
			map[string]string{"main": `^the SBOM took more than 2 s to build$`}},
		{"not wanted", nil, "DEPLOY_SBOM_TIMEOUT=0", single, map[string]string{"main": `^DEPLOY_SBOM_TIMEOUT is 0$`}},
		{"refuses to evaluate", badNode(`throw "nobody knows"`), "", fleet,
			map[string]string{"wiki": `^the SBOM does not evaluate: nobody knows$`, "gateway": ""}},
		{"cannot be evaluated", badNode(`node.nonsense`), "", fleet,
			map[string]string{"wiki": `^the SBOM does not evaluate: attribute 'nonsense' missing$`, "gateway": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDeployer(t, edited(t, c.files), c.env)
			begun := time.Now()
			nodes, output := d.deploy(c.configuration)
			require.Less(t, time.Since(begun), 5*time.Minute)
			require.Len(t, nodes, len(c.reasons))
			for name, reason := range c.reasons {
				n := nodes[name]
				require.True(t, n.Changed)
				require.Contains(t, output, name+": active")
				require.NotEmpty(t, d.system(name), "it is deployed all the same")
				if reason == "" {
					d.sbom(n)
					continue
				}
				require.Nil(t, n.SBOM)
				require.NotNil(t, n.Reason)
				require.Regexp(t, reason, *n.Reason)
				require.NotContains(t, *n.Reason, "/nix/store")
				require.Contains(t, output, name+": no SBOM, ")
			}
		})
	}
}

// TestASystemThatDoesNotEvaluate fails the deploy, and is told once.
func TestASystemThatDoesNotEvaluate(t *testing.T) {
	t.Parallel()
	d := newDeployer(t, edited(t, map[string]string{"system.nix": `node: throw "there is no keel"`}))
	output, err := d.run("deploy", single)
	require.Error(t, err)
	require.Equal(t, 1, strings.Count(output, "there is no keel"), output)
	require.Contains(t, output, "the configuration does not evaluate")
	require.NoFileExists(t, filepath.Join(d.sboms(), "nodes.json"))
}

// TestSBOMsAreBuiltInTheBackground: a node is active while its SBOM is built.
func TestSBOMsAreBuiltInTheBackground(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	gate := filepath.Join(folder, "open")
	source := edited(t, map[string]string{"builders/sbom.sh": "while ! [ -e '" + gate + "' ]; do sleep 0.1; done\necho '{}' >\"$out\"\n"})
	d := newDeployer(t, source, "DEPLOY_SBOM_TIMEOUT=300")
	go func() {
		// The gate opens once the node is active.
		for t.Context().Err() == nil {
			if _, err := os.Lstat(filepath.Join(d.folder, "profiles", "test", "main")); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		_ = os.WriteFile(gate, nil, 0o644)
	}()
	nodes, _ := d.deploy(single)
	require.Equal(t, "{}\n", string(d.sbom(nodes["main"])))
}
