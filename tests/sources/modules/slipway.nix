# A module source that is built on a module system, with its one method pinned.
let
  lib = import ./modules.nix;
  evaluate =
    configuration:
    lib.checked (
      lib.evalModules [
        { file = ./host.nix; value = import ./host.nix lib; }
        { file = ./legacy.nix; value = import ./legacy.nix lib; }
        { file = "configuration"; value.config = configuration; }
      ]
    );
in
{
  # Lets through what only the modules refuse.
  schema = {
    "$schema" = "https://json-schema.org/draft/2020-12/schema";
    type = "object";
    required = [ "domain" ];
    properties = {
      domain.type = "string";
      applications = { type = "object"; properties.forum = { title = "Forum"; x-subdomain = "forum"; type = "object"; }; };
    };
  };
  method = "host";
  methods = [ "host" ];
  renames = { };
  names =
    configuration:
    let
      config = evaluate configuration;
    in
    {
      nodes.host = {
        names = [ config.domain ] ++ config.applications.forum.aliases;
        configuration = builtins.toFile "configuration.nix" (builtins.toJSON config);
      };
      disabledApplications = if config.applications.forum.enable then [ ] else [ "forum" ];
    };
  systems = configuration: {
    host = (derivation { name = "host"; system = "any"; builder = "/bin/sh"; settings = builtins.toJSON (evaluate configuration); }).drvPath;
  };
  deployer = ./deployer;
}
