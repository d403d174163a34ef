# schema -> settings -> { nodes = { <node> = { name, method, names, applications, components, secrets, packages }; }; disabledApplications }
#
#   name          of the node
#   names         the DNS names that it publishes
#   applications  the settings of what runs on it, by application, with `host` where it has a page
#   components    the hosts of the catalog components on it
#   secrets       the operator secrets that it reads, as <application>-operator-secrets/<field>
#   packages      the names of the packages that it runs (packages.nix)
#
# No node looks at another one: asking for one costs one.
schema: settings:
let
  inherit (builtins)
    attrNames
    attrValues
    concatMap
    filter
    intersectAttrs
    listToAttrs
    mapAttrs
    ;
  inherit (settings) method applications;

  hosts = import ./hosts.nix schema settings;
  enabled = filter (name: applications.${name}.enable) (attrNames applications);

  select = names: set: intersectAttrs (listToAttrs (map (name: { inherit name; value = null; }) names)) set;

  node =
    name:
    {
      runs,
      gateway ? false,
    }:
    let
      components = if gateway then hosts.components else { };
    in
    {
      inherit name method components;
      applications = mapAttrs (
        application: options:
        options // (if hosts.applications ? ${application} then { host = hosts.applications.${application}; } else { })
      ) (select runs applications);
      names = attrValues components ++ attrValues (select runs hosts.applications);
      secrets = concatMap (
        application: map (field: "${application}-operator-secrets/${field}") (applications.${application}.secretsSet or [ ])
      ) runs;
      packages = runs ++ attrNames components ++ (if gateway then [ "gateway" ] else [ ]);
    };

  layouts = {
    single = {
      main = {
        runs = enabled;
        gateway = true;
      };
    };
    fleet = {
      gateway = {
        runs = [ ];
        gateway = true;
      };
    }
    // listToAttrs (
      map (name: {
        inherit name;
        value.runs = [ name ];
      }) enabled
    );
  };
in
{
  nodes = mapAttrs node layouts.${method};
  disabledApplications = filter (name: !applications.${name}.enable) (attrNames applications);
}
