// Package rbac has the rights of slipway's ServiceAccount in Kubernetes, as the
// objects that give them: what the lease API needs and no more.
//
//   - everywhere: review tokens (TokenReview); read, write and delete Leases
//     (the records of the lease API and its own leader election); read
//     MysqlDatabases; read MysqlFailoverGroups and patch them and their status
//     (topology, planned operations, the annotation that revokes); write Events;
//   - in its own namespace: patch pods, for the label of the leader.
//
// The objects are those of a ServiceAccount slipway in the namespace slipway.
// The development machine and the tests apply them as they are, so every test
// against a Kubernetes API server runs with these rights. The chart ships the
// same rules under its own names, which tests/chart compares.
package rbac

import "embed"

// Files holds the objects, one or more to a YAML file.
//
//go:embed *.yaml
var Files embed.FS
