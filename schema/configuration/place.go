package configuration

import (
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// choices are the subschemas of which not all apply: the parts of anyOf
// and oneOf, and conditions. They are keyed by the identity of their map in the
// document.
type choices map[uintptr]*jsonschema.Schema

func (c choices) compile(compiler *jsonschema.Compiler, location string, at any) {
	add := func(part any, location string) {
		if node, ok := part.(map[string]any); ok {
			// One that does not compile is no schema but data of that name.
			if compiled, err := compiler.Compile(location); err == nil {
				c[reflect.ValueOf(node).Pointer()] = compiled
			}
		}
	}
	switch at := at.(type) {
	case map[string]any:
		for key, member := range at {
			here := location + "/" + url.PathEscape(strings.TrimPrefix(Pointer("", key), "/"))
			parts, _ := member.([]any)
			switch key {
			case "anyOf", "oneOf":
				for i, part := range parts {
					add(part, here+"/"+strconv.Itoa(i))
				}
			case "if":
				add(member, here)
			}
			c.compile(compiler, here, member)
		}
	case []any:
		for i, item := range at {
			c.compile(compiler, location+"/"+strconv.Itoa(i), item)
		}
	}
}

// take reports whether a value fits a choice.
func (c choices) take(part, value any) bool {
	node, ok := part.(map[string]any)
	if !ok {
		return part != false
	}
	compiled := c[reflect.ValueOf(node).Pointer()]
	return compiled == nil || compiled.Validate(value) == nil
}

// parts are the subschemas of a node that say something about a value beside
// the node. Where the value fits no choice, as a draft may, all of them do.
func (c choices) parts(node map[string]any, value any) []any {
	parts, _ := node["allOf"].([]any)
	parts = slices.Clone(parts)
	for _, keyword := range []string{"anyOf", "oneOf"} {
		all, _ := node[keyword].([]any)
		fitting := slices.DeleteFunc(slices.Clone(all), func(part any) bool { return !c.take(part, value) })
		if len(fitting) == 0 {
			fitting = all
		}
		parts = append(parts, fitting...)
	}
	if condition, ok := node["if"]; ok {
		if c.take(condition, value) {
			parts = append(parts, condition, node["then"])
		} else {
			parts = append(parts, node["else"])
		}
	}
	object, _ := value.(map[string]any)
	for _, keyword := range dependentKeywords {
		dependent, _ := node[keyword].(map[string]any)
		for _, key := range sortedKeys(dependent) {
			if _, ok := object[key]; ok {
				parts = append(parts, dependent[key])
			}
		}
	}
	return parts
}

// spot is a place of a configuration, with the schema objects that describe
// what is there.
type spot struct {
	schema *Schema
	path   []string
	// given: the configuration itself has a value here.
	given bool
	// value is what is here: given, or the default of the schema, or nil.
	value any
	nodes []map[string]any
	// refused: the schema allows nothing here.
	refused bool
}

func (s *Schema) root(value any) spot {
	return s.spot(nil, []any{s.document}, value, true)
}

func (s *Schema) spot(path []string, schemas []any, value any, given bool) spot {
	p := spot{schema: s, path: path, given: given, value: value}
	p.refused = len(schemas) > 0 && !slices.ContainsFunc(schemas, func(schema any) bool { return schema != false })
	if !given {
		p.nodes = flatten(s.document, schemas)
		value, ok := p.annotation("default")
		if !ok {
			return p
		}
		p.value = value
	}
	p.nodes = expand(s.document, schemas, func(node map[string]any) []any { return s.choices.parts(node, p.value) })
	return p
}

func (p spot) member(key string) spot {
	value, given := p.object()[key]
	return p.schema.spot(append(slices.Clip(p.path), key), p.schema.patterns.propertySchemas(p.nodes, key), value, given)
}

func (p spot) item(i int) spot {
	items, _ := p.value.([]any)
	return p.schema.spot(append(slices.Clip(p.path), strconv.Itoa(i)), itemSchemas(p.nodes, i), items[i], true)
}

// object is the value as an object; nil where it is none.
func (p spot) object() map[string]any {
	object, _ := p.value.(map[string]any)
	return object
}

// properties are the names that the schema gives members, sorted.
func (p spot) properties() []string {
	var names []string
	for _, node := range p.nodes {
		properties, _ := node["properties"].(map[string]any)
		names = append(names, sortedKeys(properties)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// annotation is the first value that the schema has for a keyword.
func (p spot) annotation(keyword string) (value any, ok bool) {
	for _, node := range p.nodes {
		if value, ok := node[keyword]; ok {
			return value, true
		}
	}
	return nil, false
}

// text is an annotation that is a text; empty where there is none.
func (p spot) text(keyword string) string {
	value, _ := p.annotation(keyword)
	text, _ := value.(string)
	return text
}
