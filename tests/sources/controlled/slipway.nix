# A module source whose evaluation and deployer do what the configuration
# says, for tests of what slipway does around them.
let
  # About a second of evaluation on a machine of today for each unit of work.
  spin = n: builtins.foldl' (sum: i: sum + builtins.stringLength (toString i)) 0 (builtins.genList (i: i) n);
  evaluate = {
    quick = _: true;
    slow = test: builtins.foldl' (sum: i: builtins.seq (spin (1000000 + i)) sum) 0 (builtins.genList (i: i) (test.work or 1)) == 0;
    refuse = test: throw "the domain ${test.domain} is not ours\nask for one that is (see ${./slipway.nix})";
    recurse = _: let f = n: 1 + f (n + 1); in f 0 == 0;
    allocate = _: builtins.stringLength (builtins.foldl' (text: _: text + text) "0123456789" (builtins.genList (i: i) 60)) == 0;
    ignore-sigterm = _: builtins.length (builtins.genericClosure { startSet = [ { key = 0; } ]; operator = i: [ { key = i.key + 1; } ]; }) == 0;
    passwd = _: builtins.stringLength (builtins.readFile /etc/passwd) > 0;
    environment = _: if builtins.getEnv "PATH" == "" && builtins.getEnv "SLIPWAY_DATABASE_URL" == "" then true else throw "the environment is there";
    network = _: builtins.stringLength (builtins.readFile (builtins.fetchurl "http://127.0.0.1:1/x")) > 0;
  };
  # What the system of a node does when it is evaluated.
  systems = {
    good = node: (derivation { name = node; system = "any"; builder = "/bin/sh"; }).drvPath;
    slow = node: builtins.seq (evaluate.slow { work = 600; }) (systems.good node);
    refuse = node: throw "the node ${node} has no disk";
    shape = node: { system = node; };
  };
  # 100 MiB to print, of a string that takes 1 MiB.
  mebibyte = builtins.foldl' (text: _: text + text) "0123456789abcdef" (builtins.genList (i: i) 16);
  print100 = builtins.genList (_: mebibyte) 100;
in
{
  schema = {
    "$schema" = "https://json-schema.org/draft/2020-12/schema";
    type = "object";
    additionalProperties = false;
    required = [ "test" ];
    properties.test = {
      type = "object";
      additionalProperties = false;
      required = [ "domain" ];
      properties = {
        domain = { type = "string"; pattern = "^[a-z.]+$"; minLength = 3; };
        evaluate = { enum = builtins.attrNames evaluate ++ [ "print" "shape" ]; };
        work = { type = "integer"; minimum = 1; maximum = 600; };
        # The name of what the deployer does; see deployer.
        deploy = { type = "string"; pattern = "^[a-z0-9-]+$"; };
        destroy = { type = "string"; pattern = "^[a-z0-9-]+$"; };
        # More nodes than web, and what the systems of all do.
        systems = { type = "object"; additionalProperties.enum = builtins.attrNames systems ++ [ "missing" ]; };
        # Anything that makes configurations differ.
        note = { };
        count = { type = "integer"; multipleOf = 2; };
        tags = { type = "array"; items = { type = "string"; }; uniqueItems = true; maxItems = 3; };
        applications = {
          type = "object";
          additionalProperties = {
            type = "object";
            additionalProperties = false;
            required = [ "password" ];
            properties = {
              password = { type = "string"; format = "password"; writeOnly = true; };
              secretsSet = { type = "array"; items.type = "string"; readOnly = true; };
              secretsClear = { type = "array"; items.type = "string"; };
            };
          };
        };
      };
    };
  };
  method = null;
  methods = [ "test" ];
  renames = { };
  names =
    configuration:
    let
      test = configuration.test;
      kind = test.evaluate or "quick";
    in
    if kind == "shape" then
      { nodes = [ "not a set" ]; }
    else if kind == "print" then
      { nodes.web = { names = print100; configuration = "/x"; }; disabledApplications = [ ]; }
    else
      builtins.seq (evaluate.${kind} test) {
        nodes = builtins.mapAttrs (_: _: { names = [ test.domain ]; configuration = "${./slipway.nix}"; }) ({ web = null; } // test.systems or { });
        disabledApplications = [ ];
      };
  systems =
    { test }:
    let
      wanted = { web = "good"; } // test.systems or { };
      there = builtins.filter (node: wanted.${node} != "missing") (builtins.attrNames wanted);
    in
    builtins.listToAttrs (map (node: { name = node; value = systems.${wanted.${node}} node; }) there);
  deployer = ./deployer;
}
