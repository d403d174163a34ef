# node -> system -> the derivation of the CycloneDX document of what the closure of its system holds.
node: system:
import ./derive.nix "slipway-sbom-${node.name}" ./builders/sbom.sh {
  subject = system;
  exportReferencesGraph = [
    "closure"
    system
  ];
  program = ./builders/sbom.awk;
}
