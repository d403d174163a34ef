// Package bench measures slipway against what it cannot be faster than, or
// against the plain way, side by side in one run: it reports ratios, and fails
// where one is over its limit. It never judges by an absolute time. Run it with
// `make bench` on a machine that does nothing else.
//
// The yardstick RT is one bare update-with-start that returns after two local
// activities that do nothing, on the same Temporal.
package bench
