// Package crds holds the CustomResourceDefinitions of the two resources that the
// lease API reads, group shipstream.io, version v1alpha1: MysqlDatabase and
// MysqlFailoverGroup. They belong to the operator. These are the subset that
// slipway reads (docs/lease-api.md) and preserve every other field; they are for
// development, tests and clusters without the operator, and never replace the
// operator's own.
package crds

import "embed"

// Files holds the definitions, one YAML document a file, each named after the
// resource: mysqldatabases.shipstream.io.yaml and
// mysqlfailovergroups.shipstream.io.yaml.
//
//go:embed *.yaml
var Files embed.FS
