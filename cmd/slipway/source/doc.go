// Package source is `slipway source check`: it evaluates every attribute of a
// module source as a worker would, and says of each whether it keeps the contract
// (docs/module-source.md) and, if not, what to do. It needs Nix and nothing else
// of what slipway runs with.
//
// A check goes from the outside in, and goes on after what is wrong: the snapshot,
// each attribute by itself, how they fit together, and with a configuration what
// the functions give for it. Two things that an evaluation alone does not show are
// tried out: whether the source looks at something outside of it (the evaluation
// runs once more with all of that made an error), and whether the types of options
// are forced (each value of the configuration in turn is given another type, which
// names should refuse).
package source
