package sbom

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.dev/slipway/schema/deployment"
)

// described is what a component says about itself and those within it.
type described struct {
	Name       string      `json:"name"`
	Version    string      `json:"version"`
	PURL       string      `json:"purl"`
	Components []described `json:"components"`
}

// Components reads what the text of a component is known by: itself, then the
// components within it at any depth.
func Components(text []byte) ([]deployment.SBOMComponent, error) {
	var d described
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("read a component: %w", err)
	}
	return d.all(nil), nil
}

func (d described) all(list []deployment.SBOMComponent) []deployment.SBOMComponent {
	list = append(list, deployment.SBOMComponent{Name: d.Name, Version: d.Version, PURL: d.PURL})
	for _, inner := range d.Components {
		list = inner.all(list)
	}
	return list
}

// Keys are what a component is found by: keys of the package URLs and of the
// names of list, sorted, each once. Different ones can have the same key.
func Keys(list []deployment.SBOMComponent) []int64 {
	var keys []int64
	for _, c := range list {
		if c.PURL != "" {
			keys = append(keys, Key(deployment.ComponentQuery{PURL: c.PURL}))
		}
		if c.Name != "" {
			keys = append(keys, Key(deployment.ComponentQuery{Name: c.Name}))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Key is what the components that a query is after have among their Keys. It
// has a fixed size, since names can have any.
func Key(query deployment.ComponentQuery) int64 {
	text := "name " + query.Name
	if query.PURL != "" {
		text = "purl " + query.PURL
	}
	sum := sha256.Sum256([]byte(text))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// Matches reports whether a query is after c.
func Matches(query deployment.ComponentQuery, c deployment.SBOMComponent) bool {
	if query.PURL != "" {
		return c.PURL == query.PURL
	}
	return c.Name == query.Name && (query.Version == "" || c.Version == query.Version)
}

// Diff says what it takes to come from some components to others: it pairs
// those of the same name, of several first those with the same package URL but
// for its version.
func Diff(added, removed []deployment.SBOMComponent) deployment.SBOMDiff {
	diff := deployment.SBOMDiff{Changed: []deployment.SBOMChange{}}
	for _, key := range []func(deployment.SBOMComponent) string{
		func(c deployment.SBOMComponent) string { return c.Name + "\x00" + withoutVersion(c.PURL) },
		func(c deployment.SBOMComponent) string { return c.Name },
	} {
		slices.SortFunc(added, Compare)
		slices.SortFunc(removed, Compare)
		before := map[string][]deployment.SBOMComponent{}
		for _, c := range removed {
			before[key(c)] = append(before[key(c)], c)
		}
		added = slices.DeleteFunc(added, func(c deployment.SBOMComponent) bool {
			same := before[key(c)]
			if len(same) > 0 {
				diff.Changed = append(diff.Changed, deployment.SBOMChange{SBOMComponent: c, Before: same[0]})
				before[key(c)] = same[1:]
			}
			return len(same) > 0
		})
		removed = slices.Concat(slices.Collect(maps.Values(before))...)
	}
	slices.SortFunc(removed, Compare)
	slices.SortFunc(diff.Changed, func(a, b deployment.SBOMChange) int { return Compare(a.SBOMComponent, b.SBOMComponent) })
	diff.Added, diff.Removed = append([]deployment.SBOMComponent{}, added...), append([]deployment.SBOMComponent{}, removed...)
	return diff
}

// withoutVersion is what a package URL has before its version and qualifiers.
func withoutVersion(purl string) string {
	purl, _, _ = strings.Cut(purl, "?")
	if i := strings.LastIndexByte(purl, '@'); i >= 0 {
		return purl[:i]
	}
	return purl
}

// Compare orders components by name, version and package URL.
func Compare(a, b deployment.SBOMComponent) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version), strings.Compare(a.PURL, b.PURL))
}
