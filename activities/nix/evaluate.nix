# slipway's side of an evaluation. It says what it found instead of failing, so that only the source's own errors are
# errors:
#   { value = …; }      the result
#   { missing = "…"; }  the source has no such attribute
#   { wrong = "…"; }    the source is not what it should be
let
  request = builtins.fromJSON (builtins.readFile <configuration/request.json>);
  configuration = builtins.fromJSON (builtins.readFile <configuration/configuration.json>);

  # Asked for by who checks a source: what a source must not look at is an error, in each of its files. Evaluations
  # that somebody waits for do without, since Nix keeps no file that it imports so.
  outside = what: throw "it depends on ${what}, and a source takes nothing from the outside";
  hidden = {
    __getEnv = name: outside "the environment variable ${name}";
    __currentTime = outside "the time (builtins.currentTime)";
    __nixPath = outside "NIX_PATH (builtins.nixPath)";
    __findFile =
      path: name:
      if builtins.substring 0 4 name == "nix/" then
        builtins.findFile builtins.nixPath name
      else
        outside "NIX_PATH, by <${name}>";
    scopedImport = scope: builtins.scopedImport (hidden // scope);
    import = builtins.scopedImport hidden;
    builtins = builtins // {
      getEnv = hidden.__getEnv;
      currentTime = hidden.__currentTime;
      nixPath = hidden.__nixPath;
      findFile = hidden.__findFile;
      inherit (hidden) scopedImport import builtins;
    };
  };

  source = (if request.closed then builtins.scopedImport hidden else import) (<slipway> + "/${request.entry}");
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
