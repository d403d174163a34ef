package configuration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// secretsSet is the readOnly member of an application that names its secrets;
// what a client says there is ignored.
const secretsSet = "secretsSet"

// applicationsKey is the member, at any depth, that holds applications by name.
const applicationsKey = "applications"

// Secret is the value of an operator secret that a client gave: a property
// that the schema marks writeOnly with the format password (seed B, "Secrets
// of the operator"). Value is secret: it goes to OpenBao and nowhere else.
type Secret struct {
	// Path is the JSON Pointer of the property.
	Path string
	// Application is its key in applications; empty for a secret elsewhere.
	Application string
	// Field is the name of the secret in its application: the property names
	// below the application joined with dots.
	Field string
	// Value is what the client gave, neither null nor empty.
	Value any
}

// applicationPath is the JSON Pointer of the secret's application, if it has
// one.
func (s Secret) applicationPath() (string, bool) {
	tokens := strings.Split(s.Path, "/")
	i := slices.Index(tokens, applicationsKey)
	if s.Application == "" || i < 0 || i+2 > len(tokens) {
		return "", false
	}
	return strings.Join(tokens[:i+2], "/"), true
}

// Split takes the secrets out of a configuration that Decode read: it returns
// a copy without any secret property and without any secretsSet, and the
// secrets that were neither null nor empty, in the order of their paths. Of more
// than MaxSecrets it returns one more, for Secrets to refuse. The argument is not
// changed.
func (s *Schema) Split(value any) (rest any, secrets []Secret) {
	w := splitter{root: s.document, patterns: s.patterns, most: MaxSecrets + 1}
	rest = w.walk(value, []any{s.document}, nil)
	return rest, w.sorted()
}

// Mask takes the secrets out of a configuration that was stored before the
// schema marked them as such. Its secretsSet stays. It is the argument itself
// where it has none.
func (s *Schema) Mask(stored json.RawMessage) (json.RawMessage, error) {
	if !s.mayHold(stored) {
		return stored, nil
	}
	value, err := Decode(stored)
	if err != nil {
		return nil, fmt.Errorf("read a stored configuration: %w", err)
	}
	w := splitter{root: s.document, patterns: s.patterns, keepSet: true, most: 1}
	rest := w.walk(value, []any{s.document}, nil)
	if len(w.secrets) == 0 {
		return stored, nil
	}
	return Canonical(rest)
}

// mayHold reports whether a stored configuration may have a member that the
// schema marks as secret. It is quick, for lists of many.
func (s *Schema) mayHold(stored json.RawMessage) bool {
	return s.anyName || slices.ContainsFunc(s.secretNames, func(name string) bool {
		return bytes.Contains(stored, []byte(`"`+name+`"`))
	})
}

// secretNames are the names of all properties that a schema may mark as secret,
// wherever they are. anyName is that there may be others: a secret under a
// pattern, or a name that may be written in more than one way.
func secretNames(root any) (names []string, anyName bool) {
	// What makes the rest of a secret may be said elsewhere of the same place.
	secret := func(schema any) bool { return says(flatten(root, []any{schema}), "format", "password") }
	found := map[string]bool{}
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, item := range value {
				walk(item)
			}
		case map[string]any:
			properties, _ := value["properties"].(map[string]any)
			for name, schema := range properties {
				if !found[name] && secret(schema) {
					found[name] = true
					anyName = anyName || !IsSecretName(name)
				}
			}
			patterns, _ := value["patternProperties"].(map[string]any)
			for _, schema := range patterns {
				anyName = anyName || secret(schema)
			}
			anyName = anyName || secret(value["additionalProperties"]) || secret(value["unevaluatedProperties"])
			for _, member := range value {
				walk(member)
			}
		}
	}
	walk(root)
	return slices.Sorted(maps.Keys(found)), anyName
}

type splitter struct {
	root      any
	patterns  patterns
	keepSet   bool // secretsSet stays
	keepGiven bool // secrets that have a value stay, and are not listed
	most      int  // how many secrets are listed; all, where it is 0
	secrets   []Secret
}

func (w *splitter) sorted() []Secret {
	slices.SortFunc(w.secrets, func(a, b Secret) int { return strings.Compare(a.Path, b.Path) })
	return w.secrets
}

func (w *splitter) walk(value any, schemas []any, path []string) any {
	nodes := flatten(w.root, schemas)
	switch value := value.(type) {
	case map[string]any:
		rest := make(map[string]any, len(value))
		for _, key := range slices.Sorted(maps.Keys(value)) {
			member, here := value[key], append(slices.Clip(path), key)
			below := w.patterns.propertySchemas(nodes, key)
			flat := flatten(w.root, below)
			switch {
			case isSecret(flat):
				switch given := member != nil && member != ""; {
				case given && w.keepGiven:
					rest[key] = member
				case given && (w.most == 0 || len(w.secrets) < w.most):
					w.secrets = append(w.secrets, secretAt(here, member))
				}
			case !w.keepSet && key == secretsSet && slices.ContainsFunc(flat, isReadOnly):
			default:
				rest[key] = w.walk(member, below, here)
			}
		}
		return rest
	case []any:
		rest := make([]any, len(value))
		for i, item := range value {
			rest[i] = w.walk(item, itemSchemas(nodes, i), append(slices.Clip(path), strconv.Itoa(i)))
		}
		return rest
	default:
		return value
	}
}

func secretAt(path []string, value any) Secret {
	s := Secret{Value: value, Field: path[len(path)-1], Path: pointerOf(path)}
	if i := slices.Index(path, applicationsKey); i >= 0 && i+2 < len(path) {
		s.Application = path[i+1]
		s.Field = strings.Join(path[i+2:], ".")
	}
	return s
}

// isSecret reports whether the schema objects of a place mark it as a secret,
// be it that each of them says a part.
func isSecret(nodes []map[string]any) bool {
	return says(nodes, "writeOnly", true) && says(nodes, "format", "password")
}

func says(nodes []map[string]any, keyword string, value any) bool {
	return slices.ContainsFunc(nodes, func(node map[string]any) bool { return node[keyword] == value })
}

func isReadOnly(node map[string]any) bool { return node["readOnly"] == true }

// flatten lists the schema objects that may apply to one place: the given
// ones, what they refer to, and the parts of their combinations.
func flatten(root any, schemas []any) []map[string]any { return expand(root, schemas, allParts) }

// expand lists the given schema objects, each before what it refers to and
// before its parts.
func expand(root any, schemas []any, parts func(node map[string]any) []any) []map[string]any {
	var nodes []map[string]any
	seen := map[string]bool{} // references, which may form a cycle
	var add func(schema any)
	add = func(schema any) {
		node, ok := schema.(map[string]any)
		if !ok {
			return
		}
		nodes = append(nodes, node)
		if ref, ok := node["$ref"].(string); ok && !seen[ref] {
			seen[ref] = true
			add(resolve(root, ref))
		}
		for _, part := range parts(node) {
			add(part)
		}
	}
	for _, schema := range schemas {
		add(schema)
	}
	return nodes
}

// dependentKeywords have schemas for an object that has a member; the second is
// of earlier drafts, and the validator still knows it.
var dependentKeywords = []string{"dependentSchemas", "dependencies"}

// allParts are the subschemas of a node that may apply to the same place.
func allParts(node map[string]any) []any {
	var parts []any
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := node[keyword].([]any)
		parts = append(parts, list...)
	}
	for _, keyword := range []string{"if", "then", "else"} {
		parts = append(parts, node[keyword])
	}
	for _, keyword := range dependentKeywords {
		dependent, _ := node[keyword].(map[string]any)
		for _, key := range sortedKeys(dependent) {
			parts = append(parts, dependent[key])
		}
	}
	return parts
}

// patterns are those of patternProperties, compiled once; nil for one that Go
// cannot read.
type patterns map[string]*regexp.Regexp

func (p patterns) compile(at any) {
	switch at := at.(type) {
	case map[string]any:
		members, _ := at["patternProperties"].(map[string]any)
		for pattern := range members {
			p[pattern], _ = regexp.Compile(pattern)
		}
		for _, member := range at {
			p.compile(member)
		}
	case []any:
		for _, item := range at {
			p.compile(item)
		}
	}
}

func (p patterns) propertySchemas(nodes []map[string]any, key string) []any {
	var schemas []any
	for _, node := range nodes {
		properties, _ := node["properties"].(map[string]any)
		if schema, ok := properties[key]; ok {
			schemas = append(schemas, schema)
		}
		members, _ := node["patternProperties"].(map[string]any)
		for _, pattern := range sortedKeys(members) {
			// A pattern that Go cannot read counts: better a value too many
			// leaves the configuration than that a secret stays in it.
			if compiled := p[pattern]; compiled == nil || compiled.MatchString(key) {
				schemas = append(schemas, members[pattern])
			}
		}
		for _, keyword := range []string{"additionalProperties", "unevaluatedProperties"} {
			if _, named := properties[key]; named {
				continue
			}
			if schema, ok := node[keyword]; ok {
				schemas = append(schemas, schema)
			}
		}
	}
	return schemas
}

func itemSchemas(nodes []map[string]any, i int) []any {
	var schemas []any
	for _, node := range nodes {
		keywords := []string{"items", "unevaluatedItems", "contains"}
		if prefix, _ := node["prefixItems"].([]any); i < len(prefix) {
			schemas = append(schemas, prefix[i])
			keywords = []string{"contains"}
		}
		for _, keyword := range keywords {
			if schema, ok := node[keyword]; ok {
				schemas = append(schemas, schema)
			}
		}
	}
	return schemas
}
