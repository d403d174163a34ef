# slipway's side of an evaluation. It says what it found instead of failing, so that only the source's own errors are
# errors:
#   { value = …; }      the result
#   { missing = "…"; }  the source has no such attribute
#   { wrong = "…"; }    the source is not what it should be
let
  request = builtins.fromJSON (builtins.readFile <configuration/request.json>);
  configuration = builtins.fromJSON (builtins.readFile <configuration/configuration.json>);

  source = import (<slipway> + "/${request.entry}");
  attribute = source.${request.attribute};
  callable = builtins.isFunction attribute || attribute ? __functor;
  result = if request.call then attribute configuration else attribute;

  article = type: if type == "int" then "an int" else "a ${type}";
in
builtins.trace "slipway begins" (
  if !builtins.isAttrs source then
    { wrong = "${request.entry} is ${article (builtins.typeOf source)}, it must be an attribute set"; }
  else if !(source ? ${request.attribute}) then
    { missing = request.attribute; }
  else if request.call && !callable then
    { wrong = "${request.attribute} is ${article (builtins.typeOf attribute)}, it must be a function"; }
  else if request.select == "" then
    { value = result; }
  else if !builtins.isAttrs result then
    { wrong = "${request.attribute} gives ${article (builtins.typeOf result)}, it must give an attribute set"; }
  else if !(result ? ${request.select}) then
    { missing = "${request.attribute}.${request.select}"; }
  else
    { value = result.${request.select}; }
)
