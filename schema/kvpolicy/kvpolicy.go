// Package kvpolicy has the rights of slipway in OpenBao, as the policy that
// gives them: what operator secrets need (activities/openbao) and no more; and
// those of nodes, which only read. The development machine and the tests give
// them as they are, so every test against a KV server runs with these rights;
// docs/secrets.md shows the same texts.
package kvpolicy

import (
	_ "embed"
	"strings"
)

//go:embed slipway.hcl
var slipway string

//go:embed nodes.hcl
var nodes string

// The names that the policy is written with, which are the defaults.
const (
	// Mount is the KV v2 mount, SLIPWAY_OPENBAO_MOUNT.
	Mount = "secret"
	// Root is the folder of all deployments in it, SLIPWAY_OPENBAO_ROOT.
	Root = "deployments"
)

// Policy is slipway's policy (HCL) for a mount and the folder of deployments in
// it.
func Policy(mount, root string) string { return renamed(slipway, mount, root) }

// NodePolicy is the policy (HCL) of the nodes of all deployments.
func NodePolicy(mount, root string) string { return renamed(nodes, mount, root) }

func renamed(policy, mount, root string) string {
	var old []string
	for _, endpoint := range []string{"data", "metadata", "detailed-metadata", "destroy"} {
		old = append(old, `"`+Mount+"/"+endpoint+"/"+Root+"/", `"`+mount+"/"+endpoint+"/"+root+"/")
	}
	return strings.NewReplacer(old...).Replace(policy)
}
