# The entry of the example module source: what slipway reads.
#
# It takes nothing from the outside: no NIX_PATH, no environment, no clock. Everything here is lazy, so a reader that
# wants `schema` pays for nothing else. README.md explains each attribute.
let
  schema = import ./schema.nix;
  nodesOf = configuration: import ./nodes.nix schema (import ./settings.nix schema configuration);
in
{
  inherit schema;

  # Not pinned: a configuration has exactly one of `methods` as its only root key.
  method = null;
  methods = [
    "fleet"
    "single"
  ];

  # New field = the field that held it before: a deployment whose secret is stored under the old name keeps it.
  renames.forum.translationApiKey = "translateKey";

  # Evaluates no system. Which nodes there are is known once the settings are checked; what each of them is stays lazy.
  names =
    configuration:
    let
      inherit (nodesOf configuration) nodes disabledApplications;
    in
    {
      nodes = builtins.mapAttrs (_: node: {
        inherit (node) names;
        configuration = import ./configuration.nix node;
      }) nodes;
      inherit disabledApplications;
    };

  # The system of one node costs the evaluation of that node alone.
  systems =
    configuration: builtins.mapAttrs (_: node: (import ./system.nix node).drvPath) (nodesOf configuration).nodes;

  deployer = ./deployer;
}
