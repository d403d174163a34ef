// Package memory is a store in memory, for the tests of the API: what the API
// reads (its Reader and Listener), and methods that do to it what workers do.
// It publishes events as the real store does: a build event for each change of
// a build, then a state event if the state changed, in one step.
package memory
