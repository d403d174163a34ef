# A module source whose schema says what it says by way of $ref, allOf, oneOf,
# patternProperties and defaults. Its shop has another name and address for each
# of its plans, and any number of sites are applications. Nothing is ever
# deployed from it.
let
  hostname = { type = "string"; format = "hostname"; };
  sites = applications: builtins.filter (name: builtins.match "site-[a-z]+" name != null) (builtins.attrNames applications);
  schema = {
    "$schema" = "https://json-schema.org/draft/2020-12/schema";
    "$defs" = {
      web = {
        type = "object";
        properties = { enable = { "$ref" = "#/$defs/on"; }; domain = hostname; };
      };
      on = { type = "boolean"; default = true; };
      tree = {
        type = "object";
        additionalProperties = false;
        properties = {
          label = { type = "string"; default = "leaf"; };
          left = { "$ref" = "#/$defs/tree"; };
          right = { "$ref" = "#/$defs/tree"; default.left = { }; };
        };
      };
      shop = {
        allOf = [ { "$ref" = "#/$defs/web"; } ];
        title = "Shop";
        properties.plan = { default = "small"; };
        oneOf = [
          { properties.plan.const = "small"; x-subdomain = "shop"; }
          { properties.plan.const = "large"; required = [ "plan" ]; title = "Market"; x-subdomain = "market"; }
        ];
        unevaluatedProperties = false;
      };
      applications = {
        type = "object";
        properties = {
          chat = {
            title = "Chat";
            x-subdomain = "chat";
            allOf = [
              { "$ref" = "#/$defs/web"; }
              { properties = { rooms = { type = "integer"; default = 5; }; tree = { "$ref" = "#/$defs/tree"; }; }; }
            ];
            unevaluatedProperties = false;
          };
          shop = { "$ref" = "#/$defs/shop"; };
        };
        patternProperties."^site-[a-z]+$" = {
          "$ref" = "#/$defs/web";
          title = "Site";
          required = [ "domain" ];
          properties.pages = { type = "number"; default = 1; };
          unevaluatedProperties = false;
        };
        additionalProperties = false;
        default = { };
      };
      branch = {
        type = "object";
        properties = { domain = hostname // { default = "example.org"; }; applications."$ref" = "#/$defs/applications"; };
        additionalProperties = false;
      };
    };
    oneOf = [
      { required = [ "cluster" ]; properties.cluster."$ref" = "#/$defs/branch"; additionalProperties = false; }
      { required = [ "solo" ]; properties.solo."$ref" = "#/$defs/branch"; additionalProperties = false; }
    ];
    allOf = [ { x-components.search = { title = "Search"; subdomain = "search"; }; } ];
  };
in
{
  inherit schema;
  method = null;
  methods = [ "cluster" "solo" ];
  renames = { };
  names =
    configuration:
    let
      branch = configuration.cluster or configuration.solo;
      domain = branch.domain or "example.org";
      applications = { chat = { }; shop = { }; } // branch.applications or { };
      enabled = name: applications.${name}.enable or true;
      host =
        name:
        applications.${name}.domain or (
          if name == "chat" then "chat.${domain}"
          else if (applications.shop.plan or "small") == "small" then "shop.${domain}"
          else "market.${domain}"
        );
      all = [ "chat" "shop" ] ++ sites applications;
    in
    {
      nodes.web = {
        names = map host (builtins.filter enabled all) ++ [ "search.${domain}" ];
        configuration = "${./slipway.nix}";
      };
      disabledApplications = builtins.filter (name: !(enabled name)) all;
    };
  systems = _: { };
  deployer = ./deployer;
}
