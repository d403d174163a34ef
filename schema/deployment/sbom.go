package deployment

import (
	"errors"
	"time"
)

// SBOMStatus says whether a node has an SBOM.
type SBOMStatus string

// The statuses of an SBOM.
const (
	SBOMReady       SBOMStatus = "ready"
	SBOMUnavailable SBOMStatus = "unavailable"
)

// NodeSBOM is the state of the SBOM of one node (seed B, "SBOM of the deployed
// nodes").
type NodeSBOM struct {
	Node   string     `json:"node"`
	Status SBOMStatus `json:"status"`
	// Reason is why it is unavailable, for a person; empty for a ready one.
	Reason string `json:"reason,omitempty"`
	// Build is the build whose deploy gave the state, and Time when that build
	// ended; none for a node that no deploy changed since slipway keeps SBOMs.
	Build *int64     `json:"build"`
	Time  *time.Time `json:"time"`
	// SpecVersion is that of CycloneDX, as "1.6"; Components counts the
	// top-level components. Only a ready one has them.
	SpecVersion string `json:"specVersion,omitempty"`
	Components  *int   `json:"components,omitempty"`
}

// SBOMDocument describes a stored document that can be served.
type SBOMDocument struct {
	Node        string
	Build       int64
	SpecVersion string
	// SHA256 is that of the document, and Size its length in bytes.
	SHA256 [32]byte
	Size   int64
}

// SBOMComponent is what a component is known by.
type SBOMComponent struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
}

// SBOMChange is a component with the version that it had before.
type SBOMChange struct {
	SBOMComponent
	Before SBOMComponent `json:"before"`
}

// SBOMDiff compares the SBOM of a node with the one that it had before.
type SBOMDiff struct {
	Node string `json:"node"`
	// Build gave the SBOM, and Before the earlier one.
	Build   int64           `json:"build"`
	Before  int64           `json:"before"`
	Added   []SBOMComponent `json:"added"`
	Removed []SBOMComponent `json:"removed"`
	// Changed are those of the same name in both whose version or text differs.
	Changed []SBOMChange `json:"changed"`
}

// ComponentQuery names a component: by its package URL, or by its name and, where
// it is not empty, its version.
type ComponentQuery struct {
	PURL    string
	Name    string
	Version string
}

// ComponentUse is a node whose SBOM has a component.
type ComponentUse struct {
	Deployment string        `json:"deploymentId"`
	Node       string        `json:"node"`
	Build      int64         `json:"build"`
	Component  SBOMComponent `json:"component"`
}

// ErrNoSBOM: the node, which the deployment has, has no SBOM to serve.
var ErrNoSBOM = errors.New("no SBOM")

// NoSBOM is an ErrNoSBOM with its reason for a person.
type NoSBOM struct{ Reason string }

func (e NoSBOM) Error() string { return "no SBOM: " + e.Reason }

// Is makes it an ErrNoSBOM.
func (e NoSBOM) Is(target error) bool { return target == ErrNoSBOM }
