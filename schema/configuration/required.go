package configuration

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// mostPlaces bounds the walk through schemas that describe themselves.
const mostPlaces = 20_000

// dropper finds which requirements are about secrets. OpenBao may have a secret
// already, so a configuration is complete without. Which member is a secret may
// be said by another object than the one that requires it, in any combination
// that applies to the same object of a configuration, so it goes by places.
//
// A condition ("if") keeps its requirements: it asks what this submit gives, and
// would otherwise hold for everybody. So does "not".
type dropper struct {
	root     any
	patterns patterns
	// drop are the members not to require, by the identity of the schema object.
	// Where it is used for several places, a secret in one of them counts.
	drop map[uintptr]map[string]bool
	seen map[string]bool // places, by the identities of their schema objects
}

func newDropper(root any, p patterns) *dropper {
	d := &dropper{root, p, map[uintptr]map[string]bool{}, map[string]bool{}}
	d.place([]any{root})
	d.all(root)
	return d
}

func identity(node map[string]any) uintptr { return reflect.ValueOf(node).Pointer() }

// all looks at each object by itself, for those that no place was found for.
func (d *dropper) all(at any) {
	switch at := at.(type) {
	case map[string]any:
		d.requirements(flatten(d.root, []any{at}))
		for keyword, member := range at {
			if keyword != "if" && keyword != "not" {
				d.all(member)
			}
		}
	case []any:
		for _, item := range at {
			d.all(item)
		}
	}
}

// place looks at the objects that apply to one place, and at the places below.
func (d *dropper) place(schemas []any) {
	nodes := flatten(d.root, schemas)
	var key strings.Builder
	for _, node := range nodes {
		fmt.Fprintf(&key, "%x ", identity(node))
	}
	if len(nodes) == 0 || d.seen[key.String()] || len(d.seen) == mostPlaces {
		return
	}
	d.seen[key.String()] = true
	d.requirements(nodes)
	names, items := map[string]bool{}, 0
	for _, node := range nodes {
		properties, _ := node["properties"].(map[string]any)
		for name := range properties {
			names[name] = true
		}
		prefix, _ := node["prefixItems"].([]any)
		items = max(items, len(prefix))
	}
	for name := range names {
		d.place(d.patterns.propertySchemas(nodes, name))
	}
	other := d.patterns.propertySchemas(nodes, "")
	d.place(other)
	for _, node := range nodes {
		members, _ := node["patternProperties"].(map[string]any)
		for _, schema := range members {
			d.place(append([]any{schema}, other...))
		}
	}
	for i := range items + 1 {
		d.place(itemSchemas(nodes, i))
	}
}

// requirements notes the secrets that the objects of a place require.
func (d *dropper) requirements(nodes []map[string]any) {
	conditions := map[uintptr]bool{}
	for _, node := range nodes {
		for _, condition := range flatten(d.root, []any{node["if"]}) {
			conditions[identity(condition)] = true
		}
	}
	for _, node := range nodes {
		if conditions[identity(node)] {
			continue
		}
		for _, name := range required(node) {
			if isSecret(flatten(d.root, d.patterns.propertySchemas(nodes, name))) {
				if d.drop[identity(node)] == nil {
					d.drop[identity(node)] = map[string]bool{}
				}
				d.drop[identity(node)][name] = true
			}
		}
	}
}

// required are the members that an object requires, whatever there is beside
// them.
func required(node map[string]any) []string {
	lists := []any{node["required"]}
	for _, keyword := range requiredBeside {
		beside, _ := node[keyword].(map[string]any)
		for _, list := range beside {
			lists = append(lists, list)
		}
	}
	var names []string
	for _, list := range lists {
		list, _ := list.([]any)
		for _, name := range list {
			if name, ok := name.(string); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

// requiredBeside have lists of members by the one that they are required with.
var requiredBeside = []string{"dependentRequired", "dependencies"}

// copy is a schema without the requirements. Where they tell the forms of oneOf
// apart, the copy takes more than one of them, unless the forms are to stay at
// their places.
func (d *dropper) copy(at any, stay bool) any {
	switch at := at.(type) {
	case []any:
		out := make([]any, len(at))
		for i, item := range at {
			out[i] = d.copy(item, stay)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(at))
		for key, member := range at {
			out[key] = d.copy(member, stay)
		}
		if drop := d.drop[identity(at)]; len(drop) > 0 {
			out["required"] = without(out["required"], drop)
			for _, keyword := range requiredBeside {
				beside, _ := out[keyword].(map[string]any)
				for name, list := range beside {
					beside[name] = without(list, drop)
				}
			}
		}
		forms, _ := at["oneOf"].([]any)
		told := slices.ContainsFunc(flatten(d.root, forms), func(node map[string]any) bool { return len(d.drop[identity(node)]) > 0 })
		if told && !stay {
			all, _ := out["allOf"].([]any)
			out["allOf"] = append(all, map[string]any{"anyOf": out["oneOf"]})
			delete(out, "oneOf")
		}
		return out
	default:
		return at
	}
}

// without takes names out of a list; what is no list stays, and nothing is an
// empty one.
func without(list any, names map[string]bool) any {
	if list == nil {
		return []any{}
	}
	items, ok := list.([]any)
	if !ok {
		return list
	}
	return slices.DeleteFunc(items, func(item any) bool { name, ok := item.(string); return ok && names[name] })
}
