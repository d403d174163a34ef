# Refuses, in the ways that modules do.
let
  file = builtins.toFile "a-file.nix" "";
in
{
  lines = _: throw ''
    two problems:

      1. ${file} is wrong
      error: that is a word like any other
    Talk to your operator.
  '';
  assertions = _: throw "\nFailed assertions:\n- the first\n- the second";
  asserted =
    configuration:
    assert configuration ? missing;
    "never";
  aborted = _: abort "this is the end";
  context = _: builtins.addErrorContext "while evaluating something that nobody asked about" (throw "the reason");
  disguised = _: builtins.trace "error: not the reason" (throw "the reason");
  where = _: throw "look at ${toString ./slipway.nix}";
  missingAttribute = configuration: configuration.missing;
  needsArgument = { missing, ... }: missing;
  long = _: throw (builtins.concatStringsSep "" (builtins.genList (_: "ä") 100000));
  coloured = _: throw (builtins.fromJSON ''"a \u001b[31mred\u001b[0m word\u0007"'');
}
