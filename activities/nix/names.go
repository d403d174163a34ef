package nix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"slipway.dev/slipway/schema/deployment"
)

var (
	// dnsName is lenient: what a name server takes is not for us to say.
	dnsName = regexp.MustCompile(`^[^\s\x00-\x1f\x7f/]{1,253}$`)
	// storeEntry is the path of an entry of a Nix store.
	storeEntry = regexp.MustCompile(`^/.*/[0-9a-df-np-sv-z]{32}-[^/]+$`)
)

// DecodeNames reads the result of the attribute names, with the nodes in order
// of their names. An error is a *Failure of KindWrongShape that says what is
// wrong where.
func DecodeNames(raw json.RawMessage) (deployment.Names, error) {
	names, err := decodeNames(raw)
	if err != nil {
		return deployment.Names{}, &Failure{Kind: KindWrongShape, Message: err.Error()}
	}
	return names, nil
}

func decodeNames(raw json.RawMessage) (deployment.Names, error) {
	var names deployment.Names
	parts, err := object("names", raw, "nodes", "disabledApplications")
	if err != nil {
		return names, err
	}
	if names.DisabledApplications, err = texts("names.disabledApplications", parts["disabledApplications"]); err != nil {
		return names, err
	}
	nodes, err := object("names.nodes", parts["nodes"])
	if err != nil {
		return names, err
	}
	names.Nodes = make([]deployment.Node, 0, len(nodes))
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if !deployment.IsNodeName(name) {
			return names, fmt.Errorf("names.nodes: %q is not a name of a node, which has letters, digits, dots, dashes and underscores", name)
		}
		at := "names.nodes." + name
		node, err := object(at, nodes[name], "names", "configuration")
		if err != nil {
			return names, err
		}
		published, err := texts(at+".names", node["names"])
		if err != nil {
			return names, err
		}
		for i, name := range published {
			if !dnsName.MatchString(name) {
				return names, fmt.Errorf("%s.names[%d] must be a DNS name", at, i)
			}
		}
		var configuration string
		if err := json.Unmarshal(node["configuration"], &configuration); err != nil || !storeEntry.MatchString(configuration) {
			return names, fmt.Errorf("%s.configuration must be a store path, it is %s", at, kindOf(node["configuration"]))
		}
		names.Nodes = append(names.Nodes, deployment.Node{Name: name, Names: published})
	}
	return names, nil
}

// object reads an attribute set. With members, it must have exactly those.
func object(at string, raw json.RawMessage, members ...string) (map[string]json.RawMessage, error) {
	var set map[string]json.RawMessage
	if err := json.Unmarshal(raw, &set); err != nil || set == nil {
		return nil, fmt.Errorf("%s must be an attribute set, it is %s", at, kindOf(raw))
	}
	for _, member := range members {
		if _, ok := set[member]; !ok {
			return nil, fmt.Errorf("%s has no attribute %s", at, member)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if len(members) > 0 && !slices.Contains(members, name) {
			return nil, fmt.Errorf("%s has an attribute %q, it must have only %s", at, name, strings.Join(members, " and "))
		}
	}
	return set, nil
}

// texts reads a list of strings that are not empty.
func texts(at string, raw json.RawMessage) ([]string, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil || items == nil {
		return nil, fmt.Errorf("%s must be a list of strings, it is %s", at, kindOf(raw))
	}
	out := make([]string, len(items))
	for i, item := range items {
		if err := json.Unmarshal(item, &out[i]); err != nil || out[i] == "" {
			return nil, fmt.Errorf("%s[%d] must be a string that is not empty, it is %s", at, i, kindOf(item))
		}
	}
	return out, nil
}

// kindOf names the type of a JSON value as Nix does, without the value.
func kindOf(raw json.RawMessage) string {
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0:
		return "missing"
	case raw[0] == '{':
		return "an attribute set"
	case raw[0] == '[':
		return "a list"
	case raw[0] == '"':
		return "a string"
	case raw[0] == 't' || raw[0] == 'f':
		return "a bool"
	case raw[0] == 'n':
		return "null"
	}
	return "a number"
}
