# node -> system -> the derivation of the CycloneDX document of what the closure of its system holds.
#
# A store path does not say its licence, so those of our own packages come as lines of a path and an SPDX identifier.
# They are text without context: the SBOM of a node must not build the packages of another one.
node: system:
let
  inherit (builtins) attrValues concatStringsSep unsafeDiscardStringContext;
  line = package: "${unsafeDiscardStringContext package.outPath} ${package.license}";
in
import ./derive.nix "slipway-sbom-${node.name}" ./builders/sbom.sh {
  subject = system;
  licenses = concatStringsSep "\n" (map line (attrValues (import ./packages.nix)));
  passAsFile = [ "licenses" ];
  exportReferencesGraph = [
    "closure"
    system
  ];
  program = ./builders/sbom.awk;
}
