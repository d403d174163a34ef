# schema -> settings -> what is wrong with the settings that a JSON Schema cannot say, a sentence each. All of it is
# reported at once, to somebody who has never seen this file.
schema: settings:
let
  inherit (builtins)
    attrNames
    attrValues
    concatStringsSep
    filter
    groupBy
    head
    length
    ;
  inherit (settings.applications) backup;

  when = condition: list: if condition then list else [ ];

  # Two things at one name could not be told apart.
  hosts = import ./hosts.nix schema settings;
  served =
    hosts:
    map (name: {
      inherit name;
      host = hosts.${name};
    }) (attrNames hosts);
  shared = filter (group: length group > 1) (
    attrValues (groupBy (thing: thing.host) (served hosts.applications ++ served hosts.components))
  );

  # A copy of nothing looks like a backup until the day it is needed.
  missing = filter (name: !settings.applications.${name}.enable) backup.applications;
in
map (
  group:
  let
    names = concatStringsSep " and " (map (thing: thing.name) group);
  in
  "${(head group).host} cannot be the address of ${names} at once: give one of them another domain"
) shared
++ when backup.enable (
  when (backup.applications == [ ]) [
    "the backup is enabled but copies no application: name at least one, or disable the backup"
  ]
  ++ map (
    name: "the backup cannot copy ${name}, which is not enabled: enable it, or take it out of the backup"
  ) missing
)
