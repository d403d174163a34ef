package configuration

import (
	"maps"
	"slices"

	"slipway.dev/slipway/schema/deployment"
)

// Source is a module source as far as configurations are read by it. Where a
// value sits in a configuration is its business: below the branch of the
// deployment method, or at the root when it pins the method (seed B, "What a
// configuration serves").
//
// What it reads need not be valid: a draft gives what there is so far.
type Source struct {
	Schema *Schema
	// Method is the deployment method that it pins, or nil.
	Method *string
	// Methods are the names of the method branches.
	Methods []string
}

// Facts are what a front-end shows of a configuration.
type Facts struct {
	// Domain and Method are as in deployment.Deployment.
	Domain *string
	Method *string
	// Instances are the applications that are enabled, by name, and behind them
	// the components, by name.
	Instances []deployment.Instance
}

// Application is where a configuration has an application.
type Application struct {
	Name string `json:"application"`
	// Path is a JSON Pointer into the configuration, which may have nothing
	// there yet.
	Path    string `json:"path"`
	Enabled bool   `json:"enabled"`
}

// Facts reads a configuration. The eval has no part in it: a configuration has
// them as well when the eval was skipped.
func (s Source) Facts(value any) Facts {
	facts := Facts{Instances: []deployment.Instance{}}
	base, method, ok := s.base(value)
	domain := ""
	if ok {
		facts.Method = &method
		domain, _ = base.member("domain").value.(string)
		if host, ok := Host(domain); ok {
			facts.Domain = &host
		}
	}
	for _, a := range s.applications(value) {
		if !enabled(a) {
			continue
		}
		name := a.path[len(a.path)-1]
		facts.Instances = append(facts.Instances, instance(name, title(a, name), deployment.InstanceApplication, address(a, domain), name))
	}
	listed, _ := s.Schema.root(value).annotation("x-components")
	components, _ := listed.(map[string]any)
	for _, name := range sortedKeys(components) {
		component, _ := components[name].(map[string]any)
		text, _ := component["title"].(string)
		if text == "" {
			text = name
		}
		host := ""
		if subdomain, ok := component["subdomain"].(string); ok {
			host = below(subdomain, domain)
		}
		facts.Instances = append(facts.Instances, instance(name, text, deployment.InstanceComponent, host))
	}
	return facts
}

// Applications lists the applications that the source has, and those that the
// configuration names beyond, by name. They are none while it is open which
// method branch the configuration has.
func (s Source) Applications(value any) []Application {
	out := []Application{}
	for _, a := range s.applications(value) {
		out = append(out, Application{a.path[len(a.path)-1], pointerOf(a.path), enabled(a)})
	}
	return out
}

// Sections lists what a form of the configuration edits one at a time, by
// identifier: at present, its applications.
func (s Source) Sections(value any) []deployment.Section {
	out := []deployment.Section{}
	for _, a := range s.applications(value) {
		name := a.path[len(a.path)-1]
		out = append(out, deployment.Section{ID: name, Title: title(a, name), Path: pointerOf(a.path), Kind: deployment.InstanceApplication})
	}
	return out
}

// base is where a configuration has its domain and applications.
func (s Source) base(value any) (base spot, method string, ok bool) {
	root := s.Schema.root(value)
	if s.Method != nil {
		return root, *s.Method, true
	}
	for key := range root.object() {
		if !slices.Contains(s.Methods, key) {
			continue
		}
		if ok { // a second one
			return spot{}, "", false
		}
		method, ok = key, true
	}
	if !ok {
		return spot{}, "", false
	}
	return root.member(method), method, true
}

func (s Source) applications(value any) []spot {
	base, _, ok := s.base(value)
	if !ok {
		return nil
	}
	all := base.member(applicationsKey)
	names := slices.Sorted(slices.Values(append(all.properties(), sortedKeys(all.object())...)))
	var found []spot
	for _, name := range slices.Compact(names) {
		a := all.member(name)
		a.given = a.given && all.given
		if !a.refused {
			found = append(found, a)
		}
	}
	return found
}

// enabled reports whether an application runs. One with a switch that is left
// out stands as the default of the switch says; one without a switch runs where
// the configuration has it.
func enabled(a spot) bool {
	if a.value != nil && a.object() == nil || a.value == nil && a.given {
		return false
	}
	const enable = "enable"
	if _, ok := a.object()[enable]; ok || slices.Contains(a.properties(), enable) {
		return a.member(enable).value == true
	}
	return a.object() != nil
}

// address is the host at which an application has its page, or empty.
func address(a spot, domain string) string {
	if web, _ := a.annotation("x-web"); web == false {
		return ""
	}
	if own, _ := a.member("domain").value.(string); own != "" {
		host, _ := Host(own)
		return host
	}
	subdomain, ok := a.annotation("x-subdomain")
	if text, isText := subdomain.(string); ok && isText {
		return below(text, domain)
	}
	return ""
}

// below is the host at a name below a domain, or empty. No name at all is the
// domain itself.
func below(subdomain, domain string) string {
	if domain == "" {
		return ""
	}
	if subdomain != "" {
		domain = subdomain + "." + domain
	}
	host, _ := Host(domain)
	return host
}

func title(a spot, name string) string {
	if title := a.text("title"); title != "" {
		return title
	}
	return name
}

func instance(name, title string, kind deployment.InstanceKind, host string, sections ...string) deployment.Instance {
	i := deployment.Instance{Name: name, Title: title, Kind: kind, Domains: []string{}, Sections: append([]string{}, sections...)}
	if host != "" {
		page := "https://" + host
		i.Domains, i.URL = []string{host}, &page
	}
	return i
}

func sortedKeys(object map[string]any) []string { return slices.Sorted(maps.Keys(object)) }
