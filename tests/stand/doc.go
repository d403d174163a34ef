// Package stand runs the whole of slipway for tests, as processes, the way an
// operator would: PostgreSQL and Temporal by slipway-dev, and slipway's own
// api and worker from the built programs. Each piece can be killed, stopped
// and started again alone.
//
// The programs are built by `make build` before the tests run.
package stand
