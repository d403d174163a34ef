package main

import (
	"os"
	"slices"
	"strings"
)

// nixVariables tell Nix where its store is, where that is not the usual place.
var nixVariables = []string{"NIX_REMOTE", "NIX_STORE_DIR", "NIX_STATE_DIR", "NIX_LOG_DIR"}

// picked are the variables of environ that have one of the names.
func picked(environ []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return !slices.Contains(names, name)
	})
}

// deployerEnvironment is what deployers get of our own environment: the way to
// the programs, to the Nix store, and what the operator lists.
func deployerEnvironment(listed []string) map[string]string {
	environment := map[string]string{}
	for _, name := range slices.Concat([]string{"PATH"}, nixVariables, listed) {
		if value, ok := os.LookupEnv(name); ok {
			environment[name] = value
		}
	}
	return environment
}
