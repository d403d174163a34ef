package configuration

import (
	"maps"
	"slices"
)

// Members are the names of the members that the schema has properties for at a
// place of a configuration, sorted; path are the names of the members on the way
// there. Members by a pattern have no names, and are none of them.
func (s *Schema) Members(path ...string) []string {
	schemas := []any{s.document}
	for _, name := range path {
		schemas = s.patterns.propertySchemas(flatten(s.document, schemas), name)
	}
	names := map[string]bool{}
	for _, node := range flatten(s.document, schemas) {
		properties, _ := node["properties"].(map[string]any)
		for name := range properties {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
