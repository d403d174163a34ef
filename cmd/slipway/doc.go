// Command slipway is what production runs: the deployments API and the worker,
// together (serve) or apart (api, worker), the migrations of the database, the
// search attributes of Temporal, and the client commands.
//
// This package only reads the configuration, builds the clients and fills the
// interfaces; what happens is in the rooms api, worker, workflows and
// activities. It does not link the Temporal server: see cmd/slipway-dev.
package main
