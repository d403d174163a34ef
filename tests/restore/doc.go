// Package restore loses state of a running slipway and restores it the way that
// docs/operations.md says, with the commands that stand there: PostgreSQL to a
// time before Temporal's, and Temporal to a time before PostgreSQL's. No deployer
// may run again for a build that has ended, no workflow may touch a build that
// is not its own, and everything comes to an end and can be used.
package restore
