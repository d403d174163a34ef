// Package sbom has the pure rules of SBOMs (seed B, "SBOM of the deployed
// nodes"): taking a CycloneDX document apart and putting it together again,
// saying why a file is none, and reading the list of nodes that a deployer
// leaves.
//
//	document ── Read ──► components, each by its SHA-256     ─┐
//	                     remainder, with a mark for each one ─┴─ Join ──► document
//
// These hold:
//
//   - What comes back is the document, byte for byte. A component is the exact
//     text of an element of the top-level array "components"; everything else,
//     white space and commas between components included, is the remainder. In
//     it a NUL stands where a component was: JSON has none, in strings neither
//     (RFC 8259, section 7), so the remainder alone says where they belong.
//   - Several arrays "components" at the top level are all taken apart. A
//     "components" that is no array stays in the remainder, as do components
//     within components.
//   - A document is accepted if cyclonedx-go decodes it, except that a byte
//     order mark, which RFC 8259 lets readers ignore, is ignored. It is decoded
//     in parts of some KiB, since the whole of 64 MiB would take several times
//     that: a type fits or not element by element.
//
// Beside the document itself Read needs 40 bytes a component.
package sbom
