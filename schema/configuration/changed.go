package configuration

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
)

// Changed names the applications, sorted, that differ between two
// configurations. Each configuration is read at its own path, so that another
// method branch changes none of them. What is left out equals its default, the
// order of members means nothing, and a number is the same in every spelling.
// An application that only one of them has differs. So does one that the new
// configuration gives a secret that the other one does not give.
func (s Source) Changed(configuration, previous any) []string {
	now, before := s.given(configuration), s.given(previous)
	out := []string{}
	for name, a := range now {
		if b, ok := before[name]; !ok || !equal(a, b) {
			out = append(out, name)
		}
	}
	for name := range before {
		if _, ok := now[name]; !ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// given are the applications that a configuration itself has, with the secrets
// that it gives, and without those that it keeps.
func (s Source) given(configuration any) map[string]spot {
	w := splitter{root: s.Schema.document, patterns: s.Schema.patterns, keepGiven: true}
	found := map[string]spot{}
	for _, a := range s.applications(w.walk(configuration, []any{s.Schema.document}, nil)) {
		if a.given {
			found[a.path[len(a.path)-1]] = a
		}
	}
	return found
}

// equal reports whether two places mean the same. At least one of them has a
// value that was given, or it ends: a default does not look for the defaults of
// its own members, which may be without end.
func equal(a, b spot) bool {
	if !a.given && !b.given {
		return reflect.DeepEqual(plain(a.value), plain(b.value))
	}
	x, isObject := a.value.(map[string]any)
	y, both := b.value.(map[string]any)
	if isObject && both {
		keys := maps.Clone(x)
		maps.Copy(keys, y)
		for key := range keys {
			if !equal(a.within(key), b.within(key)) {
				return false
			}
		}
		return true
	}
	if isObject || both {
		// Options that are all left out equal an object of them that has none.
		return a.options() && b.value == nil && !b.given && equal(a, b.empty()) ||
			b.options() && a.value == nil && !a.given && equal(a.empty(), b)
	}
	l, isArray := a.value.([]any)
	m, both := b.value.([]any)
	if isArray && both {
		if len(l) != len(m) {
			return false
		}
		for i := range l {
			p, q := a.item(i), b.item(i)
			p.given, q.given = a.given, b.given
			if !equal(p, q) {
				return false
			}
		}
		return true
	}
	// Null is a value, and nothing is not.
	return reflect.DeepEqual(plain(a.value), plain(b.value)) && (a.value != nil || a.given == b.given || a.defaultsToNull() || b.defaultsToNull())
}

// within is a member; that of a default is a default.
func (p spot) within(key string) spot {
	m := p.member(key)
	m.given = m.given && p.given
	return m
}

// options reports whether the schema names the members of the object here.
func (p spot) options() bool { return p.object() != nil && len(p.properties()) > 0 }

func (p spot) empty() spot {
	p.value = map[string]any{}
	return p
}

func (p spot) defaultsToNull() bool {
	value, ok := p.annotation("default")
	return ok && value == nil
}

// plain copies a value with one spelling for each number: an integer of 64 bits
// or a float, as Nix reads it, and a float that is whole is the integer.
func plain(value any) any {
	switch value := value.(type) {
	case json.Number:
		if n, err := value.Int64(); err == nil {
			return n
		}
		f, err := value.Float64()
		if err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<63 {
			return int64(f)
		}
		return f
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, member := range value {
			out[key] = plain(member)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			out[i] = plain(item)
		}
		return out
	default:
		return value
	}
}
