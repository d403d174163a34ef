package api

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/schema/deployment"
)

const (
	// largeBytes is how many bytes of SBOMs are served at once. A document has
	// at most 64 MiB.
	largeBytes = 128 << 20
	// sbomPiece is how much of a document is written at once, in bytes.
	sbomPiece = 256 << 10

	sbomType = "application/vnd.cyclonedx+json"
)

func (a *api) sbomList(w http.ResponseWriter, r *http.Request, c caller) error {
	nodes, err := a.Reader.SBOMs(r.Context(), c.deployment)
	if err != nil {
		return fromStore(err)
	}
	if nodes == nil {
		nodes = []deployment.NodeSBOM{}
	}
	return respondJSON(w, http.StatusOK, map[string][]deployment.NodeSBOM{"nodes": nodes})
}

// nodeOf is the node that the query names, or the only one of the deployment.
func (a *api) nodeOf(r *http.Request, c caller) (string, error) {
	asked, given, err := parameter(r, "node")
	if err != nil {
		return "", err
	}
	nodes, err := a.Reader.SBOMs(r.Context(), c.deployment)
	switch {
	case err != nil:
		return "", fromStore(err)
	case given && slices.ContainsFunc(nodes, func(n deployment.NodeSBOM) bool { return n.Node == asked }):
		return asked, nil
	case len(nodes) == 0:
		return "", refuse(codeSBOMUnavailable, "the deployment has no nodes: nothing was deployed yet, or it was destroyed")
	case given:
		return "", refuse(codeNotFound, "the deployment has no node %s; its nodes are %s", quoted(asked), named(nodes))
	case len(nodes) > 1:
		return "", refuse(codeInvalidRequest, "the deployment has %d nodes, so the parameter node must name one of %s", len(nodes), named(nodes))
	default:
		return nodes[0].Node, nil
	}
}

// named lists nodes for a message.
func named(nodes []deployment.NodeSBOM) string {
	const most = 50
	names := make([]string, 0, most)
	for _, n := range nodes[:min(most, len(nodes))] {
		names = append(names, n.Node)
	}
	text := strings.Join(names, ", ")
	if len(nodes) > most {
		text += fmt.Sprintf(" and %d more, see /sbom-list", len(nodes)-most)
	}
	return text
}

// reserve waits until a document of so many bytes may be in memory; release
// gives its place back.
func (a *api) reserve(r *http.Request, size int64) (release func(), err error) {
	// Half of the time is left for the store.
	ctx, cancel := context.WithTimeout(r.Context(), a.Timeout/2)
	defer cancel()
	size = min(max(size, sbomPiece), largeBytes)
	if err := a.large.Acquire(ctx, size); err != nil {
		return nil, &failure{code: codeServiceUnavailable, message: "as many SBOMs are read as may be at once; try again later",
			retryAfter: soon, cause: err}
	}
	return func() { a.large.Release(size) }, nil
}

func (a *api) sbom(w http.ResponseWriter, r *http.Request, c caller) error {
	node, err := a.nodeOf(r, c)
	if err != nil {
		return err
	}
	document, err := a.Reader.SBOM(r.Context(), c.deployment, node)
	if err != nil {
		return fromStore(err)
	}
	tag := sbomTag(document)
	switch {
	case matches(r.Header.Values("If-None-Match"), tag):
		w.Header().Set("ETag", tag)
		w.Header().Set("Cache-Control", "private, no-cache")
		w.WriteHeader(http.StatusNotModified)
		return nil
	case r.Method == http.MethodHead:
		sbomHeader(w.Header(), c.deployment, document)
		w.WriteHeader(http.StatusOK)
		return nil
	}

	release, err := a.reserve(r, document.Size)
	if err != nil {
		return err
	}
	defer release()
	// A deploy may have replaced the document meanwhile.
	document, text, err := a.Reader.SBOMText(r.Context(), c.deployment, node)
	if err != nil {
		return fromStore(err)
	}
	document.Size = int64(len(text))
	sbomHeader(w.Header(), c.deployment, document)
	w.WriteHeader(http.StatusOK)
	// Each piece has a limit of time, and all of them one too: who takes them
	// slowly holds the place of others.
	out := &limited{w, http.NewResponseController(w), a.WriteTimeout}
	until := time.Now().Add(a.EvaluateTimeout)
	for piece := range slices.Chunk(text, sbomPiece) {
		if time.Now().After(until) {
			panic(http.ErrAbortHandler)
		}
		if _, err := out.Write(piece); err != nil {
			panic(http.ErrAbortHandler) // the client has gone, or is too slow
		}
	}
	return nil
}

func sbomHeader(header http.Header, id string, document deployment.SBOMDocument) {
	header.Set("Content-Type", mime.FormatMediaType(sbomType, map[string]string{"version": document.SpecVersion}))
	header.Set("Content-Length", strconv.FormatInt(document.Size, 10))
	// A node has a name that can be part of one of a file.
	header.Set("Content-Disposition", `attachment; filename="`+id+"-"+document.Node+`.cdx.json"`)
	header.Set("ETag", sbomTag(document))
	header.Set("Cache-Control", "private, no-cache")
}

// sbomTag is a strong entity tag: the same text has the same one.
func sbomTag(document deployment.SBOMDocument) string {
	return `"` + hex.EncodeToString(document.SHA256[:]) + `"`
}

// matches reports whether an If-None-Match has a tag (RFC 9110, 13.1.2), in
// which there is no comma.
func matches(headers []string, tag string) bool {
	for _, header := range headers {
		for each := range strings.SplitSeq(header, ",") {
			each = strings.TrimPrefix(strings.TrimSpace(each), "W/")
			if each == tag || each == "*" {
				return true
			}
		}
	}
	return false
}

func (a *api) sbomDiff(w http.ResponseWriter, r *http.Request, c caller) error {
	node, err := a.nodeOf(r, c)
	if err != nil {
		return err
	}
	document, err := a.Reader.SBOM(r.Context(), c.deployment, node)
	if err != nil {
		return fromStore(err)
	}
	release, err := a.reserve(r, document.Size)
	if err != nil {
		return err
	}
	defer release()
	diff, err := a.Reader.SBOMDiff(r.Context(), c.deployment, node)
	if err != nil {
		return fromStore(err)
	}
	if diff.Added == nil {
		diff.Added = []deployment.SBOMComponent{}
	}
	if diff.Removed == nil {
		diff.Removed = []deployment.SBOMComponent{}
	}
	if diff.Changed == nil {
		diff.Changed = []deployment.SBOMChange{}
	}
	return respondJSON(w, http.StatusOK, diff)
}

type componentsAnswer struct {
	Nodes []deployment.ComponentUse `json:"nodes"`
	More  bool                      `json:"more"`
}

func (a *api) components(w http.ResponseWriter, r *http.Request, c caller) error {
	const defaultUses, maxUses = 1000, 10_000
	query, err := componentQuery(r)
	if err != nil {
		return err
	}
	limit, err := wholeNumber(r, "limit", defaultUses, 1, maxUses)
	if err != nil {
		return err
	}
	answer := componentsAnswer{Nodes: []deployment.ComponentUse{}}
	ids := c.grant.Deployments()
	if ids != nil {
		// A claim may hold anything.
		ids = slices.DeleteFunc(ids, func(id string) bool { return deployment.CheckID(id) != nil })
	}
	if ids == nil || len(ids) > 0 {
		uses, err := a.Reader.ComponentUses(r.Context(), query, ids, int(limit)+1)
		if err != nil {
			return fromStore(err)
		}
		answer.More = len(uses) > int(limit)
		answer.Nodes = append(answer.Nodes, uses[:min(len(uses), int(limit))]...)
	}
	return respondJSON(w, http.StatusOK, answer)
}

// componentQuery is what the query asks for: purl, or name and maybe version.
func componentQuery(r *http.Request) (deployment.ComponentQuery, error) {
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		// Otherwise a + or % of a package URL that was not encoded is lost.
		return deployment.ComponentQuery{}, refuse(codeInvalidRequest, "the query is not one; a package URL in it is percent-encoded")
	}
	var query deployment.ComponentQuery
	for _, p := range []struct {
		name  string
		value *string
	}{{"purl", &query.PURL}, {"name", &query.Name}, {"version", &query.Version}} {
		var err error
		if *p.value, _, err = parameter(r, p.name); err != nil {
			return query, err
		}
	}
	switch {
	case query.PURL != "" && (query.Name != "" || query.Version != ""):
		return query, refuse(codeInvalidRequest, "the parameter purl comes alone, without name and version")
	case query.PURL != "" && !strings.HasPrefix(query.PURL, "pkg:"):
		return query, refuse(codeInvalidRequest, "the parameter purl must be a package URL, which begins with pkg:")
	case query.PURL == "" && query.Name == "":
		return query, refuse(codeInvalidRequest, "the query must have the parameter purl, or the parameter name")
	}
	return query, nil
}

// parameter reads a query parameter that is text.
func parameter(r *http.Request, name string) (value string, given bool, err error) {
	const longest = 4096
	values, given := r.URL.Query()[name]
	if !given {
		return "", false, nil
	}
	value = values[0]
	switch {
	case len(values) > 1:
		err = errors.New("must come once")
	case value == "":
		err = errors.New("must not be empty")
	case len(value) > longest:
		err = fmt.Errorf("must have at most %d bytes", longest)
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		err = errors.New("must be UTF-8 without NUL")
	default:
		return value, true, nil
	}
	return "", true, refuse(codeInvalidRequest, "the parameter %s %s", name, err)
}
