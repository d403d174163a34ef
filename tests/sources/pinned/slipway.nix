# A module source that pins its deployment method, so that domain and
# applications sit at the root of a configuration. Of its applications one is
# on unless it is switched off, one is off unless it is switched on, and one has
# no switch and no page. Nothing is ever deployed from it.
let
  hostname = { type = "string"; format = "hostname"; };
  enable = default: { type = "boolean"; inherit default; };
  object = properties: { type = "object"; additionalProperties = false; inherit properties; };
  schema = object {
    domain = hostname;
    applications = object {
      site = object { enable = enable true; domain = hostname; pages = { type = "integer"; default = 10; }; }
        // { title = "Site"; x-subdomain = "www"; };
      files = object { enable = enable false; quota = object { gigabytes = { type = "number"; default = 1.5; }; }; }
        // { title = "Files"; x-subdomain = "files"; };
      mailer = object { relay = hostname; } // { x-web = false; };
    };
  } // {
    "$schema" = "https://json-schema.org/draft/2020-12/schema";
    required = [ "domain" ];
    x-components.console = { title = "Console"; subdomain = "console"; };
  };
in
{
  inherit schema;
  method = "appliance";
  methods = [ ];
  renames = { };
  names =
    { domain, applications ? { } }:
    let
      enabled = {
        site = applications.site.enable or true;
        files = applications.files.enable or false;
        mailer = applications ? mailer;
      };
      on = builtins.filter (name: enabled.${name}) (builtins.attrNames enabled);
      host = {
        site = [ (applications.site.domain or "www.${domain}") ];
        files = [ "files.${domain}" ];
        mailer = [ ];
      };
    in
    {
      nodes.appliance = {
        names = builtins.concatMap (name: host.${name}) on ++ [ "console.${domain}" ];
        configuration = "${./slipway.nix}";
      };
      disabledApplications = builtins.filter (name: !enabled.${name}) (builtins.attrNames enabled);
    };
  systems = _: { };
  deployer = ./deployer;
}
