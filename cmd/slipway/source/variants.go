package source

import (
	"encoding/json"
	"maps"
	"slices"

	"slipway.dev/slipway/schema/configuration"
)

// variant is a configuration with a value of another type at a place.
type variant struct {
	path          string // a JSON Pointer
	configuration json.RawMessage
}

// variants are the variants of a configuration, one for each value in it that has
// no others within, in the order of their places. What slipway itself fills in is
// left as it is.
func variants(canonical json.RawMessage) []variant {
	value, err := configuration.Decode(canonical)
	if err != nil {
		return nil // it is canonical
	}
	var out []variant
	// put builds the whole around a replaced value.
	var walk func(at any, path string, put func(any) any)
	walk = func(at any, path string, put func(any) any) {
		switch at := at.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(at)) {
				if name == "secretsSet" || name == "secretsClear" {
					continue
				}
				walk(at[name], configuration.Pointer(path, name), func(replaced any) any {
					changed := maps.Clone(at)
					changed[name] = replaced
					return put(changed)
				})
			}
		case []any:
		default:
			// No option is a set with this attribute.
			changed, err := configuration.Canonical(put(map[string]any{"slipway source check": true}))
			if err == nil {
				out = append(out, variant{path, changed})
			}
		}
	}
	walk(value, "", func(replaced any) any { return replaced })
	return out
}
