package configuration

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Path is a JSON Pointer into the configuration; the root is "".
	Path string `json:"path"`
	// Message says what is wrong and what is allowed. It never holds a value
	// of the configuration.
	Message string `json:"message"`
}

// Schema is the compiled schema of a module source, with what
// Split, Mask and Source need of its annotations.
type Schema struct {
	compiled *jsonschema.Schema
	document any

	secretNames []string
	anyName     bool
	choices     choices
	patterns    patterns
}

// Compile reads a JSON Schema (2020-12). It refuses one with references that
// Split cannot follow, of which a secret could be behind (docs/module-source.md);
// the error says what to write instead.
func Compile(document json.RawMessage) (*Schema, error) {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(document)))
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	if err := followable(value); err != nil {
		return nil, err
	}
	s := &Schema{document: value, patterns: patterns{}, choices: choices{}}
	s.patterns.compile(value)
	const name = "urn:slipway:configuration"
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{}) // a schema stands alone
	d := newDropper(value, s.patterns)
	// The choices are looked up where they are in the document.
	const inPlace = name + ":in-place"
	if err := errors.Join(c.AddResource(name, d.copy(value, false)), c.AddResource(inPlace, d.copy(value, true))); err != nil {
		return nil, fmt.Errorf("the schema is not a JSON Schema: %w", err)
	}
	if s.compiled, err = c.Compile(name); err != nil {
		return nil, fmt.Errorf("the schema is not a JSON Schema: %w", err)
	}
	s.secretNames, s.anyName = secretNames(value)
	s.choices.compile(c, inPlace+"#", value)
	return s, nil
}

// Validate lists everything that the schema refuses in a configuration that
// Decode read and Split took the secrets from. Nothing: it is accepted. Where
// the list would be longer than a person reads, its last problem says that there
// are more.
func (s *Schema) Validate(value any) []Problem {
	var invalid *jsonschema.ValidationError
	if err := s.compiled.Validate(value); err == nil || !errors.As(err, &invalid) {
		return nil
	}
	r := refusals{left: mostOfProblems}
	problems := r.leaves(nil, "", invalid)
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	problems = slices.Compact(problems)
	if r.left <= 0 {
		problems = append(problems, Problem{"", "has more problems than are listed here"})
	}
	return problems
}

// mostOfProblems is how many bytes the problems of a configuration may take,
// with aProblem for each beside its path. A body of values that are all wrong,
// at a long way down, would have an answer that is many times its size.
const (
	mostOfProblems = MaxBytes
	aProblem       = 50
)

// refusals reads what the validator says.
type refusals struct{ left int }

// take pays for a problem at a path; false where there were too many.
func (r *refusals) take(path string) bool {
	r.left -= len(path) + aProblem
	return r.left > 0
}

// leaves collects the errors that have no cause of their own: what a person
// can act on. within is the place of the error that e is a cause of.
func (r *refusals) leaves(problems []Problem, within string, e *jsonschema.ValidationError) []Problem {
	if r.left <= 0 {
		return problems
	}
	path := pointerOf(e.InstanceLocation)
	r.take(path)
	switch k := e.ErrorKind.(type) {
	case *kind.OneOf:
		if len(k.Subschemas) > 0 { // more than one matched
			return append(problems, Problem{path, "matches more than one of the allowed forms"})
		}
		return append(problems, r.alternatives(path, e)...)
	case *kind.AnyOf:
		return append(problems, r.alternatives(path, e)...)
	case *kind.PropertyNames:
		// The library shares the memory of this location with others, so it
		// may say anything by now (jsonschema v6.0.3).
		return append(problems, Problem{within, fmt.Sprintf("has a member whose name is not allowed: %.100q", k.Property)})
	case *kind.Contains, *kind.MinContains:
		// Their causes are about single items, any of which could be the one.
		return append(problems, Problem{path, "does not hold the items that it must hold"})
	}
	if len(e.Causes) == 0 {
		return append(problems, r.explain(path, e.ErrorKind)...)
	}
	for _, cause := range e.Causes {
		problems = r.leaves(problems, path, cause)
	}
	return problems
}

// alternatives reports why none of several forms matched: the errors of the
// form that came nearest, behind a line that says there are others.
func (r *refusals) alternatives(path string, e *jsonschema.ValidationError) []Problem {
	if len(e.Causes) == 0 {
		return []Problem{{path, "matches none of the allowed forms"}}
	}
	best := r.leaves(nil, path, e.Causes[0])
	for _, cause := range e.Causes[1:] {
		if other := r.leaves(nil, path, cause); depth(other) > depth(best) || depth(other) == depth(best) && len(other) < len(best) {
			best = other
		}
	}
	return append([]Problem{{path, fmt.Sprintf("matches none of the %d allowed forms", len(e.Causes))}}, best...)
}

// depth is how far into the configuration the problems lie.
func depth(problems []Problem) int {
	deepest := 0
	for _, p := range problems {
		deepest = max(deepest, strings.Count(p.Path, "/"))
	}
	return deepest
}

// explain words one error without the value that caused it.
func (r *refusals) explain(path string, k jsonschema.ErrorKind) []Problem {
	one := func(format string, args ...any) []Problem {
		return []Problem{{path, fmt.Sprintf(format, args...)}}
	}
	switch k := k.(type) {
	case *kind.Type:
		return one("is %s, allowed: %s", k.Got, strings.Join(k.Want, " or "))
	case *kind.Required:
		return r.members(path, k.Missing, "is required")
	case *kind.AdditionalProperties:
		return r.members(path, k.Properties, "is not a known member here")
	case *kind.Enum:
		return one("is not one of the allowed values: %s", oneLine(k.Want))
	case *kind.Const:
		return one("is not the only allowed value: %s", oneLine(k.Want))
	case *kind.Pattern:
		return one("does not match the pattern %s", k.Want)
	case *kind.Format:
		return one("is not a valid %s", k.Want)
	case *kind.MinLength:
		return one("has %d characters, at least %d are needed", k.Got, k.Want)
	case *kind.MaxLength:
		return one("has %d characters, at most %d are allowed", k.Got, k.Want)
	case *kind.MinItems:
		return one("has %d items, at least %d are needed", k.Got, k.Want)
	case *kind.MaxItems:
		return one("has %d items, at most %d are allowed", k.Got, k.Want)
	case *kind.MinProperties:
		return one("has %d members, at least %d are needed", k.Got, k.Want)
	case *kind.MaxProperties:
		return one("has %d members, at most %d are allowed", k.Got, k.Want)
	case *kind.Minimum:
		number, _ := k.Want.Float64()
		return one("is too small, the least allowed is %v", number)
	case *kind.Maximum:
		number, _ := k.Want.Float64()
		return one("is too large, the most allowed is %v", number)
	case *kind.ExclusiveMinimum:
		number, _ := k.Want.Float64()
		return one("is too small, it must be more than %v", number)
	case *kind.ExclusiveMaximum:
		number, _ := k.Want.Float64()
		return one("is too large, it must be less than %v", number)
	case *kind.MultipleOf:
		number, _ := k.Want.Float64()
		return one("is not a multiple of %v", number)
	case *kind.UniqueItems:
		return one("items %d and %d are equal, all must differ", k.Duplicates[0], k.Duplicates[1])
	case *kind.FalseSchema:
		return one("is not allowed here")
	case *kind.DependentRequired:
		return one("needs %s beside %s", strings.Join(k.Missing, ", "), k.Prop)
	case *kind.Dependency:
		return one("needs %s beside %s", strings.Join(k.Missing, ", "), k.Prop)
	case *kind.Not:
		return one("is of a form that is not allowed here")
	case *kind.MaxContains:
		return one("holds more of the items than the %d that it may hold", k.Want)
	case *kind.AdditionalItems:
		return one("has %d items too many", k.Count)
	default:
		return one("does not match the schema (%s)", strings.Join(k.KeywordPath(), "/"))
	}
}

// members says the same of several members.
func (r *refusals) members(path string, names []string, message string) []Problem {
	var problems []Problem
	for _, name := range names {
		member := Pointer(path, name)
		if !r.take(member) {
			break
		}
		problems = append(problems, Problem{member, message})
	}
	return problems
}

func oneLine(value any) string {
	const longest = 500
	text, err := Canonical(value)
	if err != nil || len(text) > longest {
		return "see the schema"
	}
	return string(text)
}
