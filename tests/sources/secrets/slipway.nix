# A module source with operator secrets: two applications, one of them with a
# secret two levels down and with fields that were renamed twice. Its deployer
# does what the configuration says.
let
  secret = { type = "string"; format = "password"; writeOnly = true; minLength = 1; maxLength = 200; };
  object = properties: { type = "object"; additionalProperties = false; inherit properties; };
  lists = {
    secretsSet = { type = "array"; items.type = "string"; readOnly = true; };
    secretsClear = { type = "array"; items.type = "string"; };
  };
in
{
  schema = {
    "$schema" = "https://json-schema.org/draft/2020-12/schema";
    type = "object";
    additionalProperties = false;
    required = [ "test" ];
    properties.test = object {
      title = { type = "string"; };
      deploy = { enum = [ "quick" "fail" "gate" ]; };
      destroy = { enum = [ "quick" "gate" ]; };
      refuse = { type = "boolean"; };
      applications = object {
        forum = object ({ translationApiKey = secret; mail = object { smtp = object { password = secret; }; }; } // lists);
        wiki = object ({ adminPassword = secret; } // lists);
      };
    };
  };
  method = null;
  methods = [ "test" ];
  renames.forum = { translationApiKey = "translateKey"; translateKey = "translator"; };
  # The names tell which secrets of the forum the evaluation believes to be set.
  names =
    { test }:
    let
      set = test.applications.forum.secretsSet or [ ];
      has = field: name: if builtins.elem field set then [ "${name}.example.org" ] else [ ];
    in
    if test.refuse or false then
      throw "no, by ${builtins.toJSON test}"
    else
      {
        nodes.web = {
          names = [ "www.example.org" ] ++ has "translationApiKey" "translated" ++ has "mail.smtp.password" "mail";
          configuration = "${builtins.toFile "configuration.json" (builtins.toJSON test)}";
        };
        disabledApplications = [ ];
      };
  systems = _: { web = (derivation { name = "web"; system = "any"; builder = "/bin/sh"; }).drvPath; };
  deployer = ./deployer;
}
