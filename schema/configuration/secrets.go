package configuration

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// secretsClear is the member of an application that lists the secrets to
// delete.
const secretsClear = "secretsClear"

// MaxSecrets is how many values of secrets one submit may bring. OpenBao gets
// them one after the other while the client waits.
const MaxSecrets = 256

// SecretEntry is a secret that OpenBao has, or had. It holds no value.
type SecretEntry struct {
	Field string `json:"field"`
	// Version is the current one, deleted or not.
	Version int `json:"version"`
	// Created is when the entry was made, as OpenBao writes it. It differs for an
	// entry that was deleted with all versions and made anew.
	Created string `json:"created"`
	// Live is that the current version is neither deleted nor destroyed.
	Live bool `json:"live"`
}

// ClearedSecret is a secret that is to be deleted once the deployment runs
// without it, as it was when that was asked.
type ClearedSecret struct {
	Application string      `json:"application"`
	Entry       SecretEntry `json:"entry"`
}

// ApplicationSecrets is what a submit says about the operator secrets of one
// application (seed B, "Secrets of the operator"). It holds names, never a
// value, so it may be stored and may cross Temporal. All lists are sorted.
type ApplicationSecrets struct {
	// Path is the JSON Pointer of the application in its configuration.
	Path string `json:"path"`
	// Application is its key in applications.
	Application string `json:"application"`
	// Fields are the names of all its secrets, given or not.
	Fields []string `json:"fields"`
	// Given are those that the body gives a value.
	Given []string `json:"given,omitempty"`
	// Clear are those that secretsClear names and the body gives no value.
	Clear []string `json:"clear,omitempty"`
	// Former are the names that a field had before, the latest first, by the
	// rename table of the source.
	Former map[string][]string `json:"former,omitempty"`
	// Stored are those that the stored configuration of the deployment still
	// holds as a value, because it is older than the secret (Schema.Stored).
	Stored []string `json:"stored,omitempty"`
	// Lists is whether the schema gives the application a secretsSet.
	Lists bool `json:"lists"`
}

// Renames is the rename table of a source: application, new name of a field,
// the name that it had before.
type Renames map[string]map[string]string

// Secrets says what a submit means for the secrets of each application in it,
// sorted by path. rest and given are what Split returned. The configuration that
// it returns is rest without the names in secretsClear that are no secret of
// their application or have a value now; it is what the schema is to be asked
// about. rest is not changed.
//
// The problems are secrets that cannot be kept: outside of an application, under
// a name that cannot be part of a path, or given twice, or more than MaxSecrets.
func (s *Schema) Secrets(rest any, given []Secret, renames Renames) (any, []ApplicationSecrets, []Problem) {
	w := fieldWalker{root: s.document, patterns: s.patterns, applications: map[string]ApplicationSecrets{}}
	w.walk(rest, []any{s.document}, nil)
	var problems []Problem
	if len(given) > MaxSecrets {
		problems = append(problems, Problem{given[MaxSecrets].Path, fmt.Sprintf(
			"is one secret too many: a submit gives at most %d; give the others with the next one, which keeps those that are set", MaxSecrets)})
		given = given[:MaxSecrets]
	}
	names := map[string][]string{}   // path of an application → fields given
	keptAs := map[[2]string]string{} // application and field → pointer
	for _, secret := range given {
		at, inApplication := secret.applicationPath()
		if inApplication {
			_, inApplication = w.applications[at]
		}
		switch key := [2]string{secret.Application, secret.Field}; {
		case !inApplication:
			problems = append(problems, Problem{secret.Path, "is a secret outside of an application, which cannot be kept"})
		case !IsSecretName(secret.Application) || !IsSecretName(secret.Field):
			problems = append(problems, Problem{secret.Path, "is a secret whose name has characters that cannot be kept; allowed are letters, digits, _, - and single dots"})
		case keptAs[key] != "":
			problems = append(problems, Problem{secret.Path, fmt.Sprintf("is the same secret as that at %s", keptAs[key])})
		default:
			keptAs[key] = secret.Path
			names[at] = append(names[at], secret.Field)
		}
	}
	var found []ApplicationSecrets
	cleaned, e := rest, newEditor()
	for _, path := range slices.Sorted(maps.Keys(w.applications)) {
		a := w.applications[path]
		a.Fields = slices.DeleteFunc(a.Fields, func(field string) bool { return !IsSecretName(field) })
		a.Fields = slices.Compact(slices.Sorted(slices.Values(append(a.Fields, names[path]...))))
		if !IsSecretName(a.Application) {
			continue
		}
		a.Given = slices.Sorted(slices.Values(names[path]))
		cleaned = e.edit(cleaned, path, func(application map[string]any) { a.Clear = clean(application, a.Fields, a.Given) })
		a.Former = former(renames[a.Application], a.Fields)
		// An application without secrets has something to be cleaned at most.
		if len(a.Fields) > 0 {
			found = append(found, a)
		}
	}
	return cleaned, found, problems
}

// secretName is what a name looks like: it becomes part of a path in OpenBao,
// and a client may choose it where a schema allows any property.
var secretName = regexp.MustCompile(`^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$`)

// IsSecretName reports whether an application or a field of that name can have
// a secret: letters, digits, _ and -, and single dots between them.
func IsSecretName(name string) bool {
	return len(name) <= 200 && secretName.MatchString(name)
}

// has reports whether a sorted list has a name.
func has(sorted []string, name string) bool {
	_, found := slices.BinarySearch(sorted, name)
	return found
}

// clean removes from secretsClear what cannot be cleared, and returns what can.
// What is not a list of names is left for the schema to refuse.
func clean(application map[string]any, fields, given []string) []string {
	list, ok := application[secretsClear].([]any)
	if !ok {
		return nil
	}
	var clear []string
	kept := make([]any, 0, len(list))
	for _, item := range list {
		name, isName := item.(string)
		if isName && (!has(fields, name) || has(given, name)) {
			continue
		}
		kept = append(kept, item)
		if isName {
			clear = append(clear, name)
		}
	}
	application[secretsClear] = kept
	slices.Sort(clear)
	return slices.Compact(clear)
}

// former follows a rename table from each field to its oldest name.
func former(renames map[string]string, fields []string) map[string][]string {
	var out map[string][]string
	for _, field := range fields {
		var names []string
		for name, ok := renames[field]; ok && name != field && IsSecretName(name) && !slices.Contains(names, name); name, ok = renames[name] {
			names = append(names, name)
		}
		if names != nil {
			if out == nil {
				out = map[string][]string{}
			}
			out[field] = names
		}
	}
	return out
}

// Stored finds the secrets that a stored configuration holds as values, because
// an application has had the secret only since: stored is a configuration of the
// same deployment as it was recorded. It fills in Stored of the applications and
// returns the values that go with them, as Split does. What the submit gives or
// clears is not among them.
func (s *Schema) Stored(stored any, applications []ApplicationSecrets) []Secret {
	w := splitter{root: s.document, patterns: s.patterns}
	w.walk(stored, []any{s.document}, nil)
	of := map[string][]Secret{}
	for _, secret := range w.sorted() {
		of[secret.Application] = append(of[secret.Application], secret)
	}
	var found []Secret
	for i := range applications {
		a := &applications[i]
		a.Stored = nil
		seen := map[string]bool{}
		for _, secret := range of[a.Application] {
			if seen[secret.Field] || !has(a.Fields, secret.Field) || has(a.Given, secret.Field) || has(a.Clear, secret.Field) {
				continue
			}
			seen[secret.Field] = true
			a.Stored = append(a.Stored, secret.Field)
			found = append(found, secret)
		}
		slices.Sort(a.Stored)
	}
	return found
}

// SecretDecision is what becomes of the secrets of one application. All lists
// are sorted.
type SecretDecision struct {
	// Set are the fields that have a value once the submit is recorded.
	Set []string `json:"set,omitempty"`
	// Write are those that are written with a value that came with the submit,
	// or that the stored configuration held.
	Write []string `json:"write,omitempty"`
	// Copy are those that get the value of an entry with a former name, which
	// stays: field → former name.
	Copy map[string]string `json:"copy,omitempty"`
}

// Decide applies the rules to what OpenBao has: live are the names of the
// entries of the application's instance that have a value, of former names too.
// A value that is given wins over everything, then a clear, then the entry that
// is there, then that of the latest former name, then the value that the stored
// configuration held. A preview, which looks at no OpenBao, has none live.
func (a ApplicationSecrets) Decide(live []string) SecretDecision {
	var d SecretDecision
	live = slices.Sorted(slices.Values(live))
	for _, field := range a.Fields {
		old := slices.IndexFunc(a.Former[field], func(name string) bool { return has(live, name) })
		switch {
		case has(a.Given, field):
			d.Write = append(d.Write, field)
		case has(a.Clear, field):
			continue
		case has(live, field):
		case old >= 0:
			if d.Copy == nil {
				d.Copy = map[string]string{}
			}
			d.Copy[field] = a.Former[field][old]
		case has(a.Stored, field):
			d.Write = append(d.Write, field)
		default:
			continue
		}
		d.Set = append(d.Set, field)
	}
	return d
}

// Names are the entries that Decide wants to know about: all but those of the
// fields that are given or cleared, whose entries it does not look at. Sorted.
func (a ApplicationSecrets) Names() []string {
	var names []string
	for _, field := range a.Fields {
		if !has(a.Given, field) && !has(a.Clear, field) {
			names = append(append(names, field), a.Former[field]...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// WithSecretsSet copies a configuration with the secretsSet of applications
// filled in: set is by the path of the application. An application whose schema
// has no such list, or that has no secret set, gets none.
func WithSecretsSet(configuration any, applications []ApplicationSecrets, set map[string][]string) any {
	e := newEditor()
	for _, a := range applications {
		if !a.Lists || len(set[a.Path]) == 0 {
			continue
		}
		configuration = e.edit(configuration, a.Path, func(application map[string]any) {
			names := make([]any, 0, len(set[a.Path]))
			for _, name := range set[a.Path] {
				names = append(names, name)
			}
			application[secretsSet] = names
		})
	}
	return configuration
}

// SecretsSet are the secrets that a stored configuration names as set, as
// application and field.
func SecretsSet(stored []byte) (map[[2]string]bool, error) {
	value, err := Decode(stored)
	if err != nil {
		return nil, fmt.Errorf("read a stored configuration: %w", err)
	}
	set := map[[2]string]bool{}
	var walk func(value any)
	walk = func(value any) {
		object, _ := value.(map[string]any)
		for key, member := range object {
			if key != applicationsKey {
				walk(member)
				continue
			}
			applications, _ := member.(map[string]any)
			for name, application := range applications {
				members, _ := application.(map[string]any)
				fields, _ := members[secretsSet].([]any)
				for _, field := range fields {
					if field, ok := field.(string); ok {
						set[[2]string{name, field}] = true
					}
				}
			}
		}
	}
	walk(value)
	return set, nil
}

// ValidateWith is Validate of a configuration with the secrets that were given
// in their places, so that each is checked by its own subschema. Like those of
// Validate, the messages hold no value.
func (s *Schema) ValidateWith(rest any, given []Secret) []Problem {
	e := newEditor()
	for _, secret := range given {
		parent, name := splitPointer(secret.Path)
		rest = e.edit(rest, parent, func(object map[string]any) { object[name] = secret.Value })
	}
	return s.Validate(rest)
}

// editor changes a copy of a value in many places, and copies each object and
// array on the way to them once.
type editor struct{ copied map[uintptr]bool }

func newEditor() editor { return editor{map[uintptr]bool{}} }

// edit copies a value down to the object at a path, which f may change; the
// value itself where no object is there. It takes what it returned before.
func (e editor) edit(value any, path string, f func(object map[string]any)) any {
	if path == "" {
		object, ok := value.(map[string]any)
		if !ok {
			return value
		}
		object = e.object(object)
		f(object)
		return object
	}
	token, below, _ := strings.Cut(path[1:], "/")
	if below != "" {
		below = "/" + below
	}
	switch value := value.(type) {
	case map[string]any:
		key := unescape(token)
		member, ok := value[key]
		if !ok {
			return value
		}
		value = e.object(value)
		value[key] = e.edit(member, below, f)
		return value
	case []any:
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i >= len(value) {
			return value
		}
		if !e.copied[reflect.ValueOf(value).Pointer()] {
			value = slices.Clone(value)
			e.copied[reflect.ValueOf(value).Pointer()] = true
		}
		value[i] = e.edit(value[i], below, f)
		return value
	default:
		return value
	}
}

func (e editor) object(object map[string]any) map[string]any {
	if !e.copied[identity(object)] {
		object = maps.Clone(object)
		e.copied[identity(object)] = true
	}
	return object
}

func splitPointer(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:i], unescape(path[i+1:])
}

// fieldWalker finds the applications of a configuration and the secrets that
// their schemas have, whether the configuration has them or not.
type fieldWalker struct {
	root         any
	patterns     patterns
	applications map[string]ApplicationSecrets // by path
}

func (w *fieldWalker) walk(value any, schemas []any, path []string) {
	nodes := flatten(w.root, schemas)
	if items, ok := value.([]any); ok {
		for i, item := range items {
			w.walk(item, itemSchemas(nodes, i), append(slices.Clip(path), strconv.Itoa(i)))
		}
		return
	}
	object, _ := value.(map[string]any)
	for key, member := range object {
		below := w.patterns.propertySchemas(nodes, key)
		if key != applicationsKey || slices.Contains(path, applicationsKey) {
			w.walk(member, below, append(slices.Clip(path), key))
			continue
		}
		applications, _ := member.(map[string]any)
		all := flatten(w.root, below)
		for name, application := range applications {
			if _, ok := application.(map[string]any); !ok {
				continue
			}
			w.add(append(slices.Clip(path), key, name), application, w.patterns.propertySchemas(all, name))
		}
	}
}

func (w *fieldWalker) add(path []string, application any, schemas []any) {
	a := ApplicationSecrets{Path: pointerOf(path), Application: path[len(path)-1]}
	w.fields(application, schemas, nil, nil, func(field string) { a.Fields = append(a.Fields, field) })
	lists := w.patterns.propertySchemas(flatten(w.root, schemas), secretsSet)
	a.Lists = slices.ContainsFunc(flatten(w.root, lists), isReadOnly)
	w.applications[a.Path] = a
}

// fields calls found for each secret below a value. Where the value has no
// member for a property, it goes on with the schema alone; followed are then the
// references on the way, which may form a cycle.
func (w *fieldWalker) fields(value any, schemas []any, path, followed []string, found func(field string)) {
	nodes := flatten(w.root, schemas)
	if items, ok := value.([]any); ok {
		for i, item := range items {
			w.fields(item, itemSchemas(nodes, i), append(slices.Clip(path), strconv.Itoa(i)), followed, found)
		}
		return
	}
	object, _ := value.(map[string]any)
	keys := map[string]bool{}
	for key := range object {
		keys[key] = true
	}
	for _, node := range nodes {
		properties, _ := node["properties"].(map[string]any)
		for key := range properties {
			keys[key] = true
		}
	}
	for key := range keys {
		below := w.patterns.propertySchemas(nodes, key)
		flat := flatten(w.root, below)
		here := append(slices.Clip(path), key)
		if isSecret(flat) {
			found(strings.Join(here, "."))
			continue
		}
		member, there := object[key]
		switch member.(type) {
		case map[string]any, []any:
			w.fields(member, below, here, followed, found)
		default:
			refs := references(flat)
			if there && member != nil || len(here) > MaxDepth || slices.ContainsFunc(refs, func(ref string) bool { return slices.Contains(followed, ref) }) {
				continue
			}
			w.fields(nil, below, here, append(slices.Clip(followed), refs...), found)
		}
	}
}

func references(nodes []map[string]any) []string {
	var refs []string
	for _, node := range nodes {
		if ref, ok := node["$ref"].(string); ok {
			refs = append(refs, ref)
		}
	}
	return refs
}
