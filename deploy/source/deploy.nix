# What the deployer instantiates: { systems = { <node> = …; }; sboms = { <node> = …; }; }, derivations whose names are
# slipway-system-<node> and slipway-sbom-<node>.
#
# It goes through the same settings as `names`, so a configuration that is refused there is refused here.
configuration:
let
  inherit (builtins) fromJSON mapAttrs readFile;
  schema = import ./schema.nix;
  settings = import ./settings.nix schema (fromJSON (readFile configuration));
  inherit (import ./nodes.nix schema settings) nodes;
in
rec {
  systems = mapAttrs (_: import ./system.nix) nodes;
  sboms = mapAttrs (name: node: import ./sbom.nix node systems.${name}) nodes;
}
