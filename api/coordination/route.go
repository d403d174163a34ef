package coordination

import (
	"net/url"
	"strings"

	"slipway.dev/slipway/schema/lease"
)

// route is a row of the API.
type route struct {
	method, pattern string
	// handler is its name in log and metrics.
	handler string
	serve   func(*call) (answer, error)
}

// handlerNone is the name in log and metrics of what no route takes.
const handlerNone = "notfound"

// match is what a method and a path come to.
type match struct {
	route
	// group is a DNS subdomain, or empty where there is no route.
	group string
	// kind and operation are decoded, and may be any text.
	kind, operation string
	// refusal is not nil where there is no route.
	refusal *refusal
}

// matchPath finds the route of a path as it was sent: it is split before it is
// decoded, so that an operation may hold %2F, and nothing is cleaned. Where no
// route takes the method, those that the path has are allowed.
func matchPath(routes []route, method, escaped string) match {
	var allow []string
	for _, r := range routes {
		m, ok := r.match(escaped)
		switch {
		case !ok:
		case r.method == method:
			return m
		default:
			allow = append(allow, r.method)
		}
	}
	none := match{route: route{handler: handlerNone}, refusal: refuse(codeNotFound, "there is no such path")}
	if len(allow) > 0 {
		none.refusal = refuse(codeMethodNotAllowed, "the path has other methods")
		none.refusal.allow = strings.Join(allow, ", ")
	}
	return none
}

// match compares the segments of a path with those of the pattern. An empty
// segment is none, a name of a group has to be one.
func (r route) match(escaped string) (match, bool) {
	m := match{route: r}
	pattern, path := strings.Split(r.pattern, "/"), strings.Split(escaped, "/")
	if len(path) != len(pattern) {
		return m, false
	}
	for i, name := range pattern {
		var place *string
		switch name {
		case "{group}":
			place = &m.group
		case "{kind}":
			place = &m.kind
		case "{operation}":
			place = &m.operation
		default:
			if path[i] != name {
				return m, false
			}
			continue
		}
		text, err := url.PathUnescape(path[i])
		if err != nil || text == "" {
			return m, false
		}
		*place = text
	}
	return m, lease.ValidName(m.group)
}
