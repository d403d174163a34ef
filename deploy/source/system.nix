# node -> the derivation of its system: its configuration.nix, the names that it publishes and those of its
# secrets, and what it runs.
node:
let
  packages = import ./packages.nix;
in
import ./derive.nix "slipway-system-${node.name}" ./builders/system.sh {
  configuration = import ./configuration.nix node;
  packages = map (name: packages.${name}) node.packages;
  inherit (node) names secrets;
}
