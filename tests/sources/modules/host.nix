# The options that a configuration sets.
{ mkOption, types, ... }:
{ config }:
{
  options = {
    domain = mkOption { type = types.str; };
    assertions = mkOption { type = types.assertions; default = [ ]; };
    applications.forum = {
      enable = mkOption { type = types.bool; default = false; };
      port = mkOption { type = types.port; default = 8080; };
      theme = mkOption { type = types.enum [ "light" "dark" ]; default = "light"; };
      aliases = mkOption { type = types.listOf types.str; default = [ ]; };
      tls = mkOption { type = types.bool; default = true; };
    };
  };
  config.assertions = [
    {
      assertion = config.applications.forum.enable || config.applications.forum.aliases == [ ];
      message = "The forum has other names, but it is not enabled.";
    }
    {
      assertion = !builtins.elem config.domain config.applications.forum.aliases;
      message = "The name ${config.domain} is taken by the deployment itself (see ${./host.nix}).";
    }
  ];
}
