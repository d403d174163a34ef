package configuration

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

const draft2020 = "https://json-schema.org/draft/2020-12/schema"

// followable refuses a schema in which the validator finds more than expand
// does: a secret behind what is not followed would be stored like anything else.
func followable(document any) error {
	root, ok := document.(map[string]any)
	if !ok {
		return nil // nothing can be behind it
	}
	if said, given := root["$schema"]; given {
		if text, _ := said.(string); strings.TrimSuffix(text, "#") != draft2020 {
			return fmt.Errorf(`the schema says "$schema": %s, where other keywords lead to other schemas; write it in 2020-12: %q`, oneLine(said), draft2020)
		}
	}
	f := follower{root: root, seen: map[uintptr]bool{}}
	return f.schema(root, nil)
}

type follower struct {
	root map[string]any
	seen map[uintptr]bool
}

// schema looks at a schema, at all schemas below it, and at what they refer to.
// Any other member is a value, or nothing to the validator.
func (f *follower) schema(at any, path []string) error {
	switch at := at.(type) {
	case []any:
		for i, item := range at {
			if err := f.schema(item, append(path, strconv.Itoa(i))); err != nil {
				return err
			}
		}
	case map[string]any:
		if id := reflect.ValueOf(at).Pointer(); f.seen[id] {
			return nil
		} else {
			f.seen[id] = true
		}
		if err := f.references(at, path); err != nil {
			return err
		}
		for _, keyword := range sortedKeys(at) {
			below, here := at[keyword], append(slices.Clip(path), keyword)
			if slices.Contains(itemKeywords, keyword) && f.secret(below) {
				return fmt.Errorf("the schema has a list of secrets %s, whose items have no names to be kept by; "+
					"write an object with a property for each secret instead", place(pointerOf(here)))
			}
			switch keyword {
			case "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties":
				named, _ := below.(map[string]any)
				for _, name := range sortedKeys(named) {
					if err := f.schema(named[name], append(slices.Clip(here), name)); err != nil {
						return err
					}
				}
			case "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if", "items", "not", "oneOf",
				"prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties":
				if err := f.schema(below, here); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// itemKeywords have the schemas of the items of a list.
var itemKeywords = []string{"contains", "items", "prefixItems", "unevaluatedItems"}

// secret reports whether a schema, or one of a list of schemas, is of a secret.
func (f *follower) secret(schema any) bool {
	if list, ok := schema.([]any); ok {
		return slices.ContainsFunc(list, f.secret)
	}
	return isSecret(flatten(f.root, []any{schema}))
}

func (f *follower) references(node map[string]any, path []string) error {
	const instead = `write "$ref": "#/$defs/<name>" instead, with the definition in the "$defs" of the schema`
	here := place(pointerOf(path))
	for _, keyword := range []string{"$dynamicRef", "$recursiveRef"} {
		if _, ok := node[keyword].(string); ok {
			return fmt.Errorf("the schema has a %q %s, behind which secrets would not be found; %s", keyword, here, instead)
		}
	}
	if _, ok := node["$id"].(string); ok && len(path) > 0 {
		return fmt.Errorf(`the schema has an "$id" %s, where references begin anew; leave it out, and %s`, here, instead)
	}
	ref, ok := node["$ref"].(string)
	if !ok {
		return nil
	}
	if !strings.HasPrefix(ref, "#") {
		return fmt.Errorf("the schema refers to %s %s, which is outside of it; %s", oneLine(ref), here, instead)
	}
	target := resolve(f.root, ref)
	if target == nil {
		return fmt.Errorf("the schema refers to %s %s, which is not in it, or more than once; %s", oneLine(ref), here, instead)
	}
	return f.schema(target, path)
}

// resolve follows a reference within the schema; nil where it leads nowhere, or
// to more than one place.
func resolve(root any, ref string) any {
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	pointer, err := url.PathUnescape(fragment)
	switch {
	case err != nil:
		return nil
	case pointer == "":
		return root
	case pointer[0] != '/':
		if found := anchors(nil, root, pointer); len(found) == 1 {
			return found[0]
		}
		return nil
	}
	at := root
	for token := range strings.SplitSeq(pointer[1:], "/") {
		switch node := at.(type) {
		case map[string]any:
			at = node[unescape(token)]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(node) {
				return nil
			}
			at = node[i]
		default:
			return nil
		}
	}
	return at
}

// unescape reads a reference token of a JSON Pointer.
func unescape(token string) string { return unescaper.Replace(token) }

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")

// anchors are the objects that have an anchor. Values that look like one are
// among them: then there is more than one.
func anchors(found []any, at any, name string) []any {
	switch node := at.(type) {
	case map[string]any:
		if node["$anchor"] == name || node["$dynamicAnchor"] == name {
			found = append(found, node)
		}
		for _, part := range node {
			found = anchors(found, part, name)
		}
	case []any:
		for _, part := range node {
			found = anchors(found, part, name)
		}
	}
	return found
}
