# A small module system of our own, for tests: options that are declared in modules, definitions that are merged and
# checked against their types, assertions. It throws messages of the form that the module system of nixpkgs' `lib` has,
# with the same traces around them.
let
  inherit (builtins) all any attrNames concatMap concatStringsSep elem filter head isAttrs isBool isInt isList isString length map toJSON;

  mkOption = option: option // { _type = "option"; };
  isOption = tree: isAttrs tree && tree._type or null == "option";

  types = rec {
    bool = { name = "boolean"; check = isBool; };
    str = { name = "string"; check = isString; };
    port = { name = "16 bit unsigned integer; between 0 and 65535 (both inclusive)"; check = n: isInt n && n >= 0 && n <= 65535; };
    enum = values: { name = "one of ${concatStringsSep ", " (map toJSON values)}"; check = value: elem value values; };
    listOf = type: { name = "list of ${type.name}"; check = list: isList list && all type.check list; merge = concatMap (d: d.value); };
    # What an assertion is made of.
    assertions = listOf { name = "assertion"; check = isAttrs; };
  };

  # A path as people write it, and the definitions of an option as a list.
  show = concatStringsSep ".";
  tell = definitions: concatStringsSep "" (map (d: "\n- In `${toString d.file}': ${toJSON d.value}") definitions);

  unique = names: attrNames (builtins.listToAttrs (map (name: { inherit name; value = null; }) names));

  # The value at a path, of the declarations and definitions there.
  at =
    path: declarations: definitions:
    if any (d: isOption d.value) declarations then
      builtins.addErrorContext "while evaluating the option `${show path}':" (option path (head (filter (d: isOption d.value) declarations)).value definitions)
    else
      let
        names = unique (concatMap (d: attrNames d.value) declarations);
        notSets = filter (d: !isAttrs d.value) definitions;
        defined = unique (concatMap (d: attrNames d.value) (filter (d: isAttrs d.value) definitions));
        unknown = filter (name: !elem name names) defined;
        below = name: set: concatMap (d: if isAttrs d.value && d.value ? ${name} then [ { inherit (d) file; value = d.value.${name}; } ] else [ ]) set;
      in
      if notSets != [ ] then
        throw "The option `${show path}' does not exist. Definition values:${tell notSets}"
      else if unknown != [ ] then
        throw "The option `${show (path ++ [ (head unknown) ])}' does not exist. Definition values:${tell (below (head unknown) definitions)}"
      else
        builtins.listToAttrs (map (name: { inherit name; value = at (path ++ [ name ]) (below name declarations) (below name definitions); }) names);

  option =
    path: declared: definitions:
    let
      inherit (declared) type;
      wrong = filter (d: !type.check d.value) definitions;
      others = filter (d: d.value != (head definitions).value) definitions;
    in
    if definitions == [ ] then
      declared.default or (throw "The option `${show path}' is used but not defined.")
    else if wrong != [ ] then
      throw "A definition for option `${show path}' is not of type `${type.name}'. Definition values:${tell wrong}"
    else if type ? merge then
      type.merge definitions
    else if others != [ ] then
      throw "The option `${show path}' has conflicting definition values:${tell definitions}"
    else
      (head definitions).value;

  # The config of modules, each { file; value; } with a function of { config } or a set.
  evalModules =
    modules:
    let
      loaded = map (m: { inherit (m) file; value = if isAttrs m.value then m.value else m.value { inherit config; }; }) modules;
      part = name: concatMap (m: if m.value ? ${name} then [ { inherit (m) file; value = m.value.${name}; } ] else [ ]) loaded;
      config = at [ ] (part "options") (part "config");
    in
    config;

  # The config, once all of it has been checked.
  checked =
    config:
    let
      failed = filter (a: !a.assertion) config.assertions;
    in
    builtins.deepSeq config (
      if failed == [ ] then config else throw "\nFailed assertions:\n${concatStringsSep "\n" (map (a: "- ${a.message}") failed)}"
    );
in
{
  inherit mkOption types evalModules checked;
}
