# The software of the example, by name: stand-ins that say who they are, so that a closure has something in it. Each is
# the same for every deployment, so it is built once. Beside its derivation each has `license`, an SPDX identifier.
let
  package =
    pname: version: license: inputs:
    import ./derive.nix "${pname}-${version}" ./builders/package.sh { inherit pname version inputs; }
    // {
      inherit license;
    };
in
rec {
  runtime = package "slipway-example-runtime" "4.2.1" "MIT" [ ];
  database = package "slipway-example-database" "15.6" "PostgreSQL" [ runtime ];
  forum = package "slipway-example-forum" "3.3.0" "AGPL-3.0-only" [
    runtime
    database
  ];
  wiki = package "slipway-example-wiki" "1.41.2" "GPL-2.0-or-later" [
    runtime
    database
  ];
  backup = package "slipway-example-backup" "0.16.4" "BSD-2-Clause" [ runtime ];
  status = package "slipway-example-status" "2.0.0-rc1" "MIT" [ runtime ];
  gateway = package "slipway-example-gateway" "2.8.4" "Apache-2.0" [ runtime ];
}
