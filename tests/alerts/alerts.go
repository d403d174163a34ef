package alerts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Folder is deploy, which has them: the rules in chart, which renders them too,
// and the dashboard in observability.
func Folder() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "deploy")
}

// Rule is an alert rule.
type Rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

// Rules are those of alerts.yaml.
func Rules() ([]Rule, error) {
	raw, err := os.ReadFile(filepath.Join(Folder(), "chart", "alerts.yaml"))
	if err != nil {
		return nil, err
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []Rule
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		return nil, fmt.Errorf("alerts.yaml: %w", err)
	}
	var rules []Rule
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules, nil
}

// Queries are the expressions of dashboard.json.
func Queries() ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(Folder(), "observability", "dashboard.json"))
	if err != nil {
		return nil, err
	}
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &dashboard); err != nil {
		return nil, fmt.Errorf("dashboard.json: %w", err)
	}
	var queries []string
	for _, p := range dashboard.Panels {
		for _, t := range p.Targets {
			queries = append(queries, t.Expr)
		}
	}
	return queries, nil
}

// Selectors are the metrics that rules and dashboard ask for, by name, and the
// names of the labels that they are chosen by.
func Selectors() (map[string][]string, error) {
	rules, err := Rules()
	if err != nil {
		return nil, err
	}
	all, err := Queries()
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		all = append(all, r.Expr)
	}
	found := map[string][]string{}
	for _, expr := range all {
		for name, labels := range selectors(expr) {
			found[name] = append(found[name], labels...)
		}
	}
	return found, nil
}

var (
	// A metric with its labels; a function, a keyword with a list, or neither.
	selector = regexp.MustCompile(`\b([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\}|\()?`)
	label    = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)`)
	strs     = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	ranges   = regexp.MustCompile(`\[[^\]]*\]`)
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	keywords = []string{"and", "or", "unless", "bool", "offset"}
)

func selectors(expr string) map[string][]string {
	expr = ranges.ReplaceAllString(strs.ReplaceAllString(expr, `""`), "")
	expr = grouping.ReplaceAllString(expr, "")
	found := map[string][]string{}
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		if m[2] == "(" || slices.Contains(keywords, m[1]) {
			continue
		}
		found[m[1]] = append(found[m[1]], labelNames(m[2])...)
	}
	return found
}

func labelNames(braces string) (names []string) {
	for _, l := range label.FindAllStringSubmatch(braces, -1) {
		names = append(names, l[1])
	}
	return names
}

// Missing says what of the metrics with one of the prefixes is not in an
// exposition, as /metrics has it. It is an error that no metric has a prefix.
func Missing(exposition string, prefixes ...string) ([]string, error) {
	wanted, err := Selectors()
	if err != nil {
		return nil, err
	}
	has := map[string]map[string]bool{}
	for line := range strings.Lines(strs.ReplaceAllString(exposition, `""`)) {
		if m := selector.FindStringSubmatchIndex(line); m != nil && m[0] == 0 {
			name := line[m[2]:m[3]]
			if has[name] == nil {
				has[name] = map[string]bool{}
			}
			if m[4] >= 0 {
				for _, l := range labelNames(line[m[4]:m[5]]) {
					has[name][l] = true
				}
			}
		}
	}
	var missing []string
	for _, prefix := range prefixes {
		seen := false
		for name, labels := range wanted {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			seen = true
			if has[name] == nil {
				missing = append(missing, name)
				continue
			}
			for _, l := range labels {
				if !has[name][l] {
					missing = append(missing, name+"{"+l+"}")
				}
			}
		}
		if !seen {
			return nil, fmt.Errorf("nothing asks for a metric that begins with %s", prefix)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing), nil
}
