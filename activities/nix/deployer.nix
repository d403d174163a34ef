# What the deployer of a source is, as evaluate.nix would say it, without copying it to the store:
#   { path = "…"; }                                     a path
#   { derivation = "….drv"; output = "…"; program = … } a derivation, and the name of its program in bin/, or null
{ entry }:
let
  source = import (<slipway> + "/${entry}");
  inherit (source) deployer;
  type = builtins.typeOf deployer;
in
builtins.trace "slipway begins" (
  if !builtins.isAttrs source then
    { wrong = "${entry} is not an attribute set"; }
  else if !(source ? deployer) then
    { missing = "deployer"; }
  else if type == "path" then
    { value.path = toString deployer; }
  else if type == "string" && builtins.getContext deployer == { } then
    { value.path = deployer; }
  else if type == "set" && deployer.type or null == "derivation" then
    {
      value = {
        derivation = builtins.unsafeDiscardStringContext deployer.drvPath;
        output = builtins.unsafeDiscardStringContext deployer.outPath;
        program = deployer.meta.mainProgram or null;
      };
    }
  else
    { wrong = "deployer must be the path of an executable in the source, or a derivation"; }
)
