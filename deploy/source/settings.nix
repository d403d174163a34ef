# schema -> configuration -> the settings of the deployment, all checked:
#   { method, domain, applications = { <application> = { <every option> }; }; }
#
# Nix is lazy: an option of the wrong type would be noticed by whatever uses it first, which is the build of a system,
# minutes after the submit. So every option is forced here, against the type, the bounds and the values that the schema
# gives it, and everything that slipway asks of this source goes through here. The rules that a schema cannot say are
# checked at the end.
schema: configuration:
let
  inherit (builtins)
    attrNames
    concatMap
    concatStringsSep
    deepSeq
    elem
    filter
    hasAttr
    head
    isAttrs
    length
    listToAttrs
    ;

  join = concatStringsSep ", ";

  typeNames = {
    set = "object";
    list = "array";
    int = "integer";
    float = "number";
    bool = "boolean";
    string = "string";
    null = "null";
  };
  typeOf = value: typeNames.${builtins.typeOf value};

  # The value with the defaults of the schema filled in; throws where it does not fit. `path` is for the message.
  checked =
    path: schema: value:
    let
      refuse = problem: throw "${path}: ${problem}";
    in
    if schema ? type && typeOf value != schema.type then
      refuse "this is of type ${typeOf value}, but it must be of type ${schema.type}"
    else if schema ? enum && !elem value schema.enum then
      refuse "this must be one of ${join schema.enum}"
    else if schema ? minimum && value < schema.minimum then
      refuse "this must be at least ${toString schema.minimum}"
    else if schema ? maximum && value > schema.maximum then
      refuse "this must be at most ${toString schema.maximum}"
    else if isAttrs value then
      checkedObject path schema value
    else if schema ? items then
      map (checked path schema.items) value
    else
      value;

  checkedObject =
    path: schema: value:
    let
      unknown = filter (name: !hasAttr name schema.properties) (attrNames value);
      missing = filter (name: !hasAttr name value) (schema.required or [ ]);
      property =
        name:
        let
          option = schema.properties.${name};
        in
        if option.writeOnly or false then
          # slipway took the secret out before Nix, so no value is the only right one.
          if hasAttr name value then throw "${path}.${name}: a secret must not reach the evaluation" else [ ]
        else if hasAttr name value then
          [
            {
              inherit name;
              value = checked "${path}.${name}" option value.${name};
            }
          ]
        else if option ? default then
          [
            {
              inherit name;
              value = option.default;
            }
          ]
        else if option ? properties then
          [
            {
              inherit name;
              value = checked "${path}.${name}" option { };
            }
          ]
        else
          [ ];
    in
    if unknown != [ ] then
      throw "${path}: there is no option ${join unknown}"
    else if missing != [ ] then
      throw "${path}: ${join missing} is missing"
    else
      listToAttrs (concatMap property (attrNames schema.properties));

  method =
    if isAttrs configuration && length (attrNames configuration) == 1 && hasAttr (head (attrNames configuration)) schema.properties then
      head (attrNames configuration)
    else
      throw "a configuration has exactly one of ${join (attrNames schema.properties)} at its root";
  branch = checked method schema.properties.${method} configuration.${method};

  settings = {
    inherit method;
    inherit (branch) domain applications;
  };

  problems = import ./rules.nix schema settings;
in
deepSeq settings (if problems == [ ] then settings else throw (concatStringsSep "\n" problems))
