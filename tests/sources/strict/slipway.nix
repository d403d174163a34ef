# A module source whose schema has every kind of rule, each at a member of its
# name, below one of two methods. Nothing is ever deployed from it.
let
  branch = {
    type = "object";
    additionalProperties = false;
    required = [ "required" ];
    patternProperties."^pattern-" = { type = "integer"; };
    propertyNames.maxLength = 16;
    dependentRequired.dependent = [ "needed" ];
    properties = {
      required = { };
      needed = { };
      dependent = { };
      a-name-of-more-than-sixteen = { };
      type.type = [ "integer" "boolean" ];
      enum.enum = [ "red" "green" ];
      const.const = "blue";
      multipleOf.multipleOf = 5;
      minimum.minimum = 10;
      maximum.maximum = 10;
      exclusiveMinimum.exclusiveMinimum = 10;
      exclusiveMaximum.exclusiveMaximum = 10;
      minLength.minLength = 100;
      maxLength.maxLength = 3;
      pattern.pattern = "^[0-9]+$";
      minItems.minItems = 4;
      maxItems.maxItems = 2;
      uniqueItems.uniqueItems = true;
      items.items.type = "integer";
      prefixItems = { prefixItems = [ { type = "integer"; } ]; items = false; };
      contains.contains.type = "integer";
      minProperties.minProperties = 2;
      maxProperties.maxProperties = 1;
      not.not.type = "string";
      false = false;
      allOf.allOf = [ { type = "object"; } { required = [ "inner" ]; } ];
      anyOf.anyOf = [ { type = "integer"; } { required = [ "inner" ]; } ];
      oneOf.oneOf = [ { type = "integer"; } { required = [ "inner" ]; } ];
      both.oneOf = [ { type = "string"; } { minLength = 1; } ];
      conditional = { "if".type = "string"; "then".maxLength = 2; };
      referred."$ref" = "#/$defs/number";
      unevaluated = { properties.known = { }; unevaluatedProperties = false; };
    };
  };
in
{
  schema = {
    "$schema" = "https://json-schema.org/draft/2020-12/schema";
    "$defs".number.type = "integer";
    type = "object";
    additionalProperties = false;
    minProperties = 1;
    maxProperties = 1;
    properties = { one = branch; two = branch; };
  };
  method = null;
  methods = [ "one" "two" ];
  renames = { };
  names = _: { nodes = { }; disabledApplications = [ "one" ]; };
  systems = _: { };
  deployer = ./deployer;
}
