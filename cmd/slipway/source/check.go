package source

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/schema/configuration"
)

const draft = "https://json-schema.org/draft/2020-12/schema"

// tried is how many values of a configuration get another type at most.
const tried = 12

type checker struct {
	source, entry  string
	configuration  map[string]any // nil: none was given
	systemsTimeout time.Duration

	evaluator *nix.Evaluator
	roots     string
	report    report

	schema  *configuration.Schema
	method  *string
	methods []string
	renames configuration.Renames
	// accepted is the configuration as the functions get it: canonical, without
	// secrets; empty where there is none that the schema accepts.
	accepted json.RawMessage
	nodes    []string
}

// run makes all checks. An error means that one could not be made.
func (c *checker) run(ctx context.Context) (report, error) {
	c.report = report{Source: c.source, OK: true, Findings: []Finding{}}
	for _, step := range []func(context.Context) error{
		c.snapshot, c.schemaAttribute, c.methodAttributes, c.renamesAttribute, c.accept, c.names, c.types, c.systems, c.deployer, c.outside,
	} {
		if err := step(ctx); err != nil {
			return report{}, err
		}
		if c.report.Snapshot == "" {
			break // nothing else can be checked
		}
	}
	return c.report, nil
}

func (c *checker) snapshot(ctx context.Context) error {
	path, err := c.evaluator.Snapshot(ctx, c.source, filepath.Join(c.roots, "snapshot"))
	if err != nil {
		status, message, other := found(err)
		if other == nil {
			c.report.add("source", status, message, "Give a folder, or git+https://…?rev= with a full commit ID.")
		}
		return other
	}
	// Any attribute will do: the entry is read before it is looked for.
	if _, err := c.evaluate(ctx, nix.Request{Attribute: "method"}); err != nil {
		if status, message, other := found(err); other != nil || status == Wrong && strings.Contains(message, c.entry) {
			if other == nil {
				c.report.add("source", Wrong, message, "The entry must be an attribute set; --source-entry names another file.")
			}
			return other
		}
	}
	c.report.Snapshot = path
	c.report.add("source", OK, "the snapshot is "+path, "")
	return nil
}

// evaluate evaluates something of the snapshot.
func (c *checker) evaluate(ctx context.Context, r nix.Request) (json.RawMessage, error) {
	target := filepath.Join(c.roots, "snapshot")
	snapshot, err := filepath.EvalSymlinks(target)
	if err != nil {
		return nil, err
	}
	r.Snapshot, r.Entry = snapshot, c.entry
	return c.evaluator.Evaluate(ctx, r)
}

// attribute evaluates a plain attribute and reads it; what is wrong becomes a
// finding, and ok is false.
func (c *checker) attribute(ctx context.Context, name string, into any, advice string) (ok bool, err error) {
	raw, err := c.evaluate(ctx, nix.Request{Attribute: name})
	if err != nil {
		status, message, other := found(err)
		if other == nil {
			c.report.add(name, status, message, advice)
		}
		return false, other
	}
	if err := json.Unmarshal(raw, into); err != nil {
		c.report.add(name, Wrong, "it has the wrong type: "+strings.TrimPrefix(err.Error(), "json: "), advice)
		return false, nil
	}
	return true, nil
}

func (c *checker) schemaAttribute(ctx context.Context) error {
	const advice = "Give the JSON Schema (2020-12) of a configuration, as a Nix value."
	var document json.RawMessage
	ok, err := c.attribute(ctx, "schema", &document, advice)
	if err != nil || !ok {
		return err
	}
	var root map[string]json.RawMessage
	if err := json.Unmarshal(document, &root); err != nil || root == nil {
		c.report.add("schema", Wrong, "it is not an attribute set", advice)
		return nil
	}
	var said string
	if raw, given := root["$schema"]; given && (json.Unmarshal(raw, &said) != nil || strings.TrimSuffix(said, "#") != draft) {
		c.report.add("schema", Wrong, fmt.Sprintf(`"$schema" is %s`, raw), "Write the schema in 2020-12, and say so: "+draft)
		return nil
	}
	schema, err := configuration.Compile(document)
	if err != nil {
		c.report.add("schema", Wrong, err.Error(), advice)
		return nil
	}
	c.schema = schema
	c.report.add("schema", OK, "JSON Schema 2020-12 that compiles", "")
	if said == "" {
		c.report.add("schema", Note, `it does not say which draft it is of`, `Add "$schema" = "`+draft+`": forms read it.`)
	}
	return nil
}

func (c *checker) methodAttributes(ctx context.Context) error {
	const advice = "Give null, or the name of the one method that this source pins."
	pinned, err := c.attribute(ctx, "method", &c.method, advice)
	if err != nil {
		return err
	}
	const list = "Give the names of the deployment methods, as a list of strings."
	listed, err := c.attribute(ctx, "methods", &c.methods, list)
	if err != nil || !pinned || !listed {
		return err
	}
	sorted := slices.Sorted(slices.Values(c.methods))
	switch {
	case len(c.methods) == 0 || slices.Contains(c.methods, ""):
		c.report.add("methods", Wrong, "it names no method, or one with an empty name", list)
		return nil
	case len(slices.Compact(sorted)) < len(c.methods):
		c.report.add("methods", Wrong, "it names a method twice", list)
		return nil
	case c.method != nil && !slices.Contains(c.methods, *c.method):
		c.report.add("method", Wrong, fmt.Sprintf("%q is none of methods", *c.method), advice)
		return nil
	}
	c.report.add("methods", OK, strings.Join(c.methods, ", "), "")
	if c.schema == nil {
		c.report.add("method", Skipped, "there is no schema to hold it against", "")
		return nil
	}
	c.methodFits()
	return nil
}

// methodFits holds the methods against the schema.
func (c *checker) methodFits() {
	at := [][]string{nil}
	shape := "a pinned method: domain and applications are at the root of a configuration"
	if c.method == nil {
		shape = "not pinned: a configuration has one of methods as its only root key"
		at = nil
		for _, method := range c.methods {
			at = append(at, []string{method})
		}
		root := c.schema.Members()
		if sorted := slices.Sorted(slices.Values(c.methods)); !slices.Equal(root, sorted) {
			c.report.add("method", Wrong, fmt.Sprintf("no method is pinned, and the schema has the root keys %s instead of %s",
				strings.Join(root, ", "), strings.Join(sorted, ", ")), "Put each method, and nothing else, at the root of the schema; or pin one with method.")
			return
		}
		if len(c.schema.Validate(map[string]any{})) == 0 {
			c.report.add("method", Wrong, "the schema accepts a configuration without a method",
				"Add minProperties = 1 and maxProperties = 1 to the root of the schema.")
			return
		}
	}
	for _, path := range at {
		for _, member := range []string{"domain", "applications"} {
			if !slices.Contains(c.schema.Members(path...), member) {
				c.report.add("method", Wrong, fmt.Sprintf("the schema has no %s", strings.Join(append(slices.Clone(path), member), ".")),
					"Give every method a domain and applications: what slipway shows of a deployment is read there.")
				return
			}
		}
	}
	c.report.add("method", OK, shape, "")
}

// applications are where the schema has applications.
func (c *checker) applications() [][]string {
	if c.method != nil {
		return [][]string{{"applications"}}
	}
	var paths [][]string
	for _, method := range c.methods {
		paths = append(paths, []string{method, "applications"})
	}
	return paths
}

func (c *checker) renamesAttribute(ctx context.Context) error {
	const advice = `Give { <application> = { <new field> = "<old field>"; }; }, or { }.`
	ok, err := c.attribute(ctx, "renames", &c.renames, advice)
	if err != nil || !ok {
		return err
	}
	if c.renames == nil {
		c.report.add("renames", Wrong, "it is null", advice)
		return nil
	}
	if c.schema == nil {
		c.report.add("renames", Skipped, "there is no schema to hold it against", "")
		return nil
	}
	fields := 0
	for _, application := range slices.Sorted(maps.Keys(c.renames)) {
		for _, field := range slices.Sorted(maps.Keys(c.renames[application])) {
			fields++
			old := c.renames[application][field]
			// A field may be on the way to another name.
			_, renamedAgain := invert(c.renames[application])[field]
			switch {
			case old == "" || old == field:
				c.report.add("renames", Wrong, fmt.Sprintf("%s.%s has no other name", application, field), advice)
				return nil
			case !renamedAgain && !c.declares(application, field):
				c.report.add("renames", Wrong, fmt.Sprintf("the schema has no field %s in the application %s", field, application),
					"The left side is the name that the field has now, the right side the one that it had.")
				return nil
			}
		}
	}
	c.report.add("renames", OK, fmt.Sprintf("%d renamed fields", fields), "")
	return nil
}

func invert(renames map[string]string) map[string]string {
	out := map[string]string{}
	for field, old := range renames {
		out[old] = field
	}
	return out
}

// declares reports whether some method has a field of an application; a dot goes
// one level down.
func (c *checker) declares(application, field string) bool {
	path := strings.Split(field, ".")
	for _, applications := range c.applications() {
		at := append(append(slices.Clone(applications), application), path[:len(path)-1]...)
		if slices.Contains(c.schema.Members(at...), path[len(path)-1]) {
			return true
		}
	}
	return false
}

// accept holds the configuration against the schema, as a submit does.
func (c *checker) accept(context.Context) error {
	switch {
	case c.configuration == nil:
		return nil
	case c.schema == nil:
		c.report.add("configuration", Skipped, "there is no schema to hold it against", "")
		return nil
	}
	rest, given := c.schema.Split(c.configuration)
	value, applications, problems := c.schema.Secrets(rest, given, c.renames)
	if problems = append(problems, c.schema.ValidateWith(value, given)...); len(problems) > 0 {
		var lines []string
		for _, problem := range problems {
			lines = append(lines, fmt.Sprintf("%s: %s", problem.Path, problem.Message))
		}
		c.report.add("configuration", Wrong, strings.Join(lines, "\n"), "The schema refuses the configuration; correct the one or the other.")
		return nil
	}
	set := map[string][]string{}
	for _, application := range applications {
		set[application.Path] = application.Decide(nil).Set
	}
	accepted, err := configuration.Canonical(configuration.WithSecretsSet(value, applications, set))
	if err != nil {
		return err
	}
	c.accepted = accepted
	c.report.add("configuration", OK, "the schema accepts it", "")
	return nil
}

// function checks a function of a configuration as far as it can be without one,
// and reports whether it is to be called.
func (c *checker) function(ctx context.Context, name, advice string) (call bool, err error) {
	if c.accepted != nil {
		return true, nil
	}
	// A function is no data, which is what Nix says after it looked it up.
	_, err = c.evaluate(ctx, nix.Request{Attribute: name})
	if err == nil {
		c.report.add(name, Wrong, "it is not a function", advice)
		return false, nil
	}
	status, message, other := found(err)
	switch {
	case other != nil:
		return false, other
	case status == Wrong && strings.Contains(message, "function"):
		c.report.add(name, Skipped, "it is a function, and was not called", "Give a configuration that the schema accepts, with --configuration.")
	default:
		c.report.add(name, status, message, advice)
	}
	return false, nil
}

func (c *checker) names(ctx context.Context) error {
	const advice = "Give a function: configuration → { nodes.<node> = { names = [ … ]; configuration = <store path>; }; disabledApplications = [ … ]; }"
	if call, err := c.function(ctx, "names", advice); err != nil || !call {
		return err
	}
	begun := time.Now()
	raw, err := c.evaluate(ctx, nix.Request{Attribute: "names", Configuration: c.accepted})
	if err == nil {
		names, wrong := nix.DecodeNames(raw)
		if err = wrong; err == nil {
			c.nodes = []string{}
			for _, node := range names.Nodes {
				c.nodes = append(c.nodes, node.Name)
			}
			c.report.add("names", OK, fmt.Sprintf("%d nodes in %.1f s: %s", len(names.Nodes), time.Since(begun).Seconds(), strings.Join(c.nodes, ", ")), "")
			for _, disabled := range names.DisabledApplications {
				if !slices.ContainsFunc(c.applications(), func(path []string) bool { return slices.Contains(c.schema.Members(path...), disabled) }) {
					c.report.add("names", Wrong, fmt.Sprintf("disabledApplications names %s, which the schema does not have", disabled), "Give the keys of applications.")
				}
			}
			return nil
		}
	}
	status, message, other := found(err)
	if other == nil {
		c.report.add("names", status, message, advice)
	}
	return other
}

// types tries whether names refuses values of another type.
func (c *checker) types(ctx context.Context) error {
	if c.nodes == nil {
		return nil
	}
	var passed []string
	count := 0
	for _, broken := range variants(c.accepted) {
		if count++; count > tried {
			break
		}
		_, err := c.evaluate(ctx, nix.Request{Attribute: "names", Configuration: broken.configuration})
		if err == nil {
			passed = append(passed, broken.path)
			continue
		}
		if _, _, other := found(err); other != nil {
			return other
		}
	}
	if len(passed) > 0 {
		c.report.add("types", Note, "names accepts a value of another type at "+strings.Join(passed, ", "),
			"Nix is lazy: force the options there in names (builtins.deepSeq), or a mistake that only a system sees fails in the deploy.")
		return nil
	}
	c.report.add("types", OK, fmt.Sprintf("names refuses a value of another type at each of %d places", min(count, tried)), "")
	return nil
}

func (c *checker) systems(ctx context.Context) error {
	const advice = "Give a function: configuration → { <node> = <drvPath of the system of the node>; }, with the nodes of names."
	if call, err := c.function(ctx, "systems", advice); err != nil || !call {
		return err
	}
	if c.nodes == nil {
		c.report.add("systems", Skipped, "the nodes are not known, since names gives none", "")
		return nil
	}
	deadline, good := time.Now().Add(c.systemsTimeout), true
	for _, node := range c.nodes {
		snapshot := c.report.Snapshot
		_, err := c.evaluator.System(ctx, nix.Request{
			Snapshot: snapshot, Entry: c.entry, Configuration: c.accepted, Timeout: max(time.Second, time.Until(deadline)),
		}, node)
		if err == nil {
			continue
		}
		status, message, other := found(err)
		if other != nil {
			return other
		}
		good = false
		c.report.add("systems", status, node+": "+message, advice)
	}
	if good {
		c.report.add("systems", OK, fmt.Sprintf("the system of each of %d nodes evaluates, each alone", len(c.nodes)), "")
	}
	return nil
}

func (c *checker) deployer(ctx context.Context) error {
	path, err := c.evaluator.Realise(ctx, c.report.Snapshot, c.entry, filepath.Join(c.roots, "deployer"), func() {})
	if err != nil {
		status, message, other := found(err)
		if other == nil {
			c.report.add("deployer", status, message, "Give the path of an executable in the source, or a derivation that builds one.")
		}
		return other
	}
	c.report.add("deployer", OK, "it is "+path, "")
	return nil
}

// outside evaluates once more, with all that a source must not look at made an
// error.
func (c *checker) outside(ctx context.Context) error {
	requests := []nix.Request{{Attribute: "schema"}, {Attribute: "method"}, {Attribute: "methods"}, {Attribute: "renames"}}
	if c.nodes != nil {
		requests = append(requests, nix.Request{Attribute: "names", Configuration: c.accepted})
		for _, node := range c.nodes {
			requests = append(requests, nix.Request{Attribute: "systems", Configuration: c.accepted, Select: node})
		}
	}
	good := true
	for _, request := range requests {
		request.Closed = true
		_, err := c.evaluate(ctx, request)
		if err == nil {
			continue
		}
		_, message, other := found(err)
		switch {
		case other != nil:
			return other
		case strings.Contains(message, "takes nothing from the outside"):
			good = false
			c.report.add("outside", Wrong, request.Attribute+": "+message,
				"What a source gives must follow from its files and the configuration alone: pin it in the source.")
		}
		// Any other error is the one that was reported before, or comes from
		// this being slower.
	}
	if good {
		c.report.add("outside", OK, "no NIX_PATH, no environment, no clock", "")
	}
	return nil
}
