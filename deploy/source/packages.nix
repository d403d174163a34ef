# The software of the example, by name: stand-ins that say who they are, so that a closure has something in it. Each is
# the same for every deployment, so it is built once.
let
  package =
    pname: version: inputs:
    import ./derive.nix "${pname}-${version}" ./builders/package.sh { inherit pname version inputs; };

  runtime = package "slipway-example-runtime" "4.2.1" [ ];
  database = package "slipway-example-database" "15.6" [ runtime ];
in
{
  forum = package "slipway-example-forum" "3.3.0" [
    runtime
    database
  ];
  wiki = package "slipway-example-wiki" "1.41.2" [
    runtime
    database
  ];
  backup = package "slipway-example-backup" "0.16.4" [ runtime ];
  status = package "slipway-example-status" "2.0.0-rc1" [ runtime ];
  gateway = package "slipway-example-gateway" "2.8.4" [ runtime ];
}
