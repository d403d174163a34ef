// Package deployment has the shapes that the deployments API shows: a
// deployment, its builds, nodes and events, and the rules of their names.
//
// A deployment is never stored with a state. Its state follows from its
// builds (seed B, "Two-store model"):
//
//	queued or running build   the newest of them decides: deploy → building,
//	                          destroy → destroying
//	else the last finished    deploy succeeded → active, destroy succeeded →
//	                          idle, failed or cancelled while running → failed
//	else                      idle
//
// Superseded builds, and builds that were cancelled while queued, do not
// count. The view deployment_states of the database is this rule; see
// schema/migrations.
package deployment
