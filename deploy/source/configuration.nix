# node -> store path of its configuration.nix: the settings of the node, as a Nix file that its system carries.
#
# The settings are data from outside. They become the text of a Nix string that holds JSON, with each character that
# means something in such a string escaped by itself, so no setting can be read as Nix.
node:
let
  literal = text: "\"${builtins.replaceStrings [ "\\" "\"" "$" ] [ "\\\\" "\\\"" "\\$" ] text}\"";
in
builtins.toFile "configuration.nix" ''
  # The settings of the node ${node.name}, made by the example module source of slipway.
  builtins.fromJSON ${
    literal (
      builtins.toJSON {
        inherit (node)
          name
          method
          names
          applications
          components
          ;
      }
    )
  }
''
