package sbom

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"slipway.dev/slipway/schema/deployment"
)

// ListFile is where a deployer writes the list of its nodes, in SBOM_OUT_DIR,
// and MaxListSize how large that may be, in bytes.
const (
	ListFile    = "nodes.json"
	MaxListSize = 1 << 20
)

// Why a node has no SBOM, beside the errors of Read and what the deployer says.
var (
	ErrMissing   = errors.New("the deployer wrote no such file")
	ErrOutside   = errors.New("the SBOM must be a file in SBOM_OUT_DIR itself")
	ErrSymlink   = errors.New("the file is a symbolic link, which is not followed")
	ErrNotAFile  = errors.New("it is not a regular file")
	ErrNotGiven  = errors.New("the deployer gave neither an SBOM nor a reason")
	ErrUnchanged = errors.New("no deploy has changed this node since slipway keeps SBOMs")
)

// Entry is what a deployer says about the SBOM of a node.
type Entry struct {
	Node    string
	Changed bool
	// File is the name of the SBOM in SBOM_OUT_DIR. It is empty where there is
	// none; Problem is why, for a person.
	File    string
	Problem string
}

// DecodeList reads the list of nodes of a deployer. A bad name of a file is the
// problem of its node; errors are of the list itself, for a person.
func DecodeList(text []byte) ([]Entry, error) {
	var list struct {
		Nodes *[]struct {
			Name    *string `json:"name"`
			Changed *bool   `json:"changed"`
			SBOM    *string `json:"sbom"`
			Reason  *string `json:"reason"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("it must be {\"nodes\": [{\"name\", \"changed\", \"sbom\", \"reason\"}]}: %w", err)
	}
	if list.Nodes == nil {
		return nil, errors.New("it has no array nodes")
	}
	entries := make([]Entry, 0, len(*list.Nodes))
	seen := map[string]bool{}
	for i, node := range *list.Nodes {
		switch {
		case node.Name == nil:
			return nil, fmt.Errorf("nodes[%d] has no name", i)
		case !deployment.IsNodeName(*node.Name):
			return nil, fmt.Errorf("the name of nodes[%d] is not one of a node, which has letters, digits, dots, dashes and underscores", i)
		case node.Changed == nil:
			return nil, fmt.Errorf("node %s does not say whether it changed", *node.Name)
		case seen[*node.Name]:
			return nil, fmt.Errorf("node %s is there twice", *node.Name)
		}
		seen[*node.Name] = true
		e := Entry{Node: *node.Name, Changed: *node.Changed}
		switch {
		case !e.Changed: // it keeps what it has
		case node.SBOM != nil && !plain(*node.SBOM):
			e.Problem = ErrOutside.Error()
		case node.SBOM != nil:
			e.File = *node.SBOM
		case node.Reason != nil && strings.TrimSpace(*node.Reason) != "":
			e.Problem = printable(*node.Reason)
		default:
			e.Problem = ErrNotGiven.Error()
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// plain reports whether a name cannot lead out of a folder.
func plain(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\x00")
}

// printable is a text of a deployer as a reason: one that can be stored, shown,
// and is not long.
func printable(text string) string {
	return shorten(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.TrimSpace(text)), 1<<10)
}

// shorten cuts text to at most limit bytes, between characters.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
