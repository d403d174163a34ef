// Package schema is the leaf of slipway: every shape and every pure rule of
// its domain, and the files that describe it to others.
//
//   - schema/wire: what crosses Temporal. Names of workflows, updates and
//     attributes, builders of workflow IDs, message structs, error types.
//   - schema/deployment: the deployment and its builds as the API shows them.
//   - schema/origin: which front-ends may call from browsers and are called
//     back, and at which addresses.
//   - schema/configuration: reading, splitting and checking a configuration.
//   - schema/lease: leases on a failover group: the record, what a state of the
//     group allows, what a request comes to.
//   - schema/crds, schema/rbac: the custom resources that slipway reads, and the
//     rights that it needs in Kubernetes.
//   - schema/kvpolicy: the rights that it needs in OpenBao.
//   - migrations/: the PostgreSQL schema, in order. schema.sql is what they
//     add up to; a test keeps the two equal.
//   - openapi.yaml: the deployments API.
//
// Nothing here does I/O, reads a clock or knows a client. Every other room may
// import these packages; they import none of them.
package schema

import "embed"

// Migrations holds the ordered SQL migrations, in the format of goose.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// OpenAPI is the description of the deployments API (OpenAPI 3.1, YAML).
//
//go:embed openapi.yaml
var OpenAPI []byte
