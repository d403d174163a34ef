// Package bao runs a secrets server with the KV v2 engine, for `slipway-dev up
// --bao` and for the tests: OpenBao where there is one, else the server that it
// forked from (tests/kvserver).
//
// The server is as `server -dev` has it (one unseal key, kept beside the data,
// unsealed at every start, plain HTTP on 127.0.0.1), but for its data, which are
// on disk: a secret that a deployment has must be there after a restart, as
// everything else of the machine is.
//
// Server has the process, and can kill, start, seal and unseal it. Setup makes
// what slipway needs; it is repeatable. Run adds a token that is kept fresh.
//
// A folder is laid out as
//
//	lock         held while a server runs on the folder
//	server.hcl   the server's configuration
//	data/        its storage
//	init.json    the unseal key and the root token, made at random by the server
//
// and by Run
//
//	token        of the policy slipway, renewable, for 24 h; made anew at each
//	             start
//	nodes-token  that can only read the secrets of deployments; made anew at
//	             each start
//	role-id, secret-id
//	             of the AppRole slipway, which gives the same policy
//
// All of them have mode 0600, and no secret is in argv or in the environment.
//
// # What Setup makes
//
// The KV v2 mount, the policies of schema/kvpolicy, the auth method AppRole with
// a role slipway, and where there is a Kubernetes API server the auth method
// Kubernetes with a role slipway for the ServiceAccount slipway/slipway.
package bao
