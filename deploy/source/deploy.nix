# What the deployer instantiates, in one evaluation: { system-<node>, sbom-<node> }, derivations whose names are
# slipway-system-<node> and slipway-sbom-<node>.
#
# It goes through the same settings as `names`, so a configuration that is refused there is refused here. An SBOM that
# does not evaluate is left out: it must not stop the deploy.
configuration:
let
  inherit (builtins)
    attrNames
    concatMap
    fromJSON
    listToAttrs
    readFile
    tryEval
    ;
  settings = import ./settings.nix schema (fromJSON (readFile configuration));
  schema = import ./schema.nix;
  inherit (import ./nodes.nix schema settings) nodes;

  derivations =
    name:
    let
      system = import ./system.nix nodes.${name};
      sbom = import ./sbom.nix nodes.${name} system;
    in
    [
      {
        name = "system-${name}";
        value = system;
      }
    ]
    ++ (
      if (tryEval sbom.drvPath).success then
        [
          {
            name = "sbom-${name}";
            value = sbom;
          }
        ]
      else
        [ ]
    );
in
listToAttrs (concatMap derivations (attrNames nodes))
