// Package config reads the configuration of the slipway program: defaults,
// overridden by environment variables, overridden by flags. Every setting is
// one row of the table in Settings, from which the flags, `slipway config` and
// the documentation come. It fails loudly: an unknown SLIPWAY_ variable, or a
// value that does not parse, is an error that names it.
package config
