// Package source runs the deployer of the example module source, deploy/source,
// with a real Nix and without the rest of slipway. Its SBOMs are held against
// the schema of CycloneDX, against what cyclonedx-go reads, and against what Nix
// says of the closures.
package source
