// Package wire is everything that crosses Temporal: names of workflows,
// updates and search attributes, workflow IDs, task queues, message structs
// and error types. Each is declared here once, so that the API, the workflows
// and the activities cannot disagree.
//
// What a message must never hold: a secret value, a token, a log, an SBOM.
// Everything large crosses as a reference to a row, except the configuration
// of a submit, which has at most configuration.MaxBytes.
package wire
