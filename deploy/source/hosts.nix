# schema -> settings -> where things answer, as slipway works it out too:
#   { applications = { <enabled application with a page> = "host"; }; components = { <component> = "host"; }; }
schema: settings:
let
  inherit (builtins) attrNames filter listToAttrs;
  inherit (settings) domain applications;

  described = schema.properties.${settings.method}.properties.applications.properties;
  withPage = filter (name: applications.${name}.enable && described.${name}.x-web or true) (
    attrNames applications
  );
in
{
  applications = listToAttrs (
    map (name: {
      inherit name;
      value = applications.${name}.domain or "${described.${name}.x-subdomain}.${domain}";
    }) withPage
  );
  components = builtins.mapAttrs (_: component: "${component.subdomain}.${domain}") schema.x-components;
}
