# A source that does everything right.
{
  schema = {
    type = "object";
  };
  names = configuration: {
    nodes = builtins.mapAttrs (_: names: {
      inherit names;
      configuration = builtins.toFile "configuration.nix" (builtins.toJSON names);
    }) configuration.nodes;
    disabledApplications = [ "chat" ];
  };
  # One that works beside one that does not.
  systems = configuration: {
    web = "web of ${configuration.domain}";
    broken = throw "the system of broken does not evaluate";
  };
  functor = {
    __functor = self: configuration: configuration.domain;
  };
  deployer = ./deployer;
}
