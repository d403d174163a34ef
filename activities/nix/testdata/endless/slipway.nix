# Things that never end, or end the evaluator. Each attribute is one.
let
  deep = n: 1 + deep (n + 1);
  nested = depth: builtins.foldl' (list: _: [ list ]) [ ] (builtins.genList (n: n) depth);
  # A hundred bytes of text, doubled.
  long = doublings: builtins.foldl' (text: _: text + text) hundredBytes (builtins.genList (n: n) doublings);
  hundredBytes = builtins.concatStringsSep "" (builtins.genList (_: "0123456789") 10);
  cycle = {
    inherit cycle;
  };
in
{
  # Nix sees this one.
  recursion = let x = x; in x;
  # And this one only when its stack is full.
  stack = deep 0;
  memory = builtins.foldl' (list: _: list ++ list) [ 1 ] (builtins.genList (n: n) 60);
  memoryOfStrings = builtins.foldl' (text: _: text + text) "x" (builtins.genList (n: n) 60);
  # It asks nobody whether to go on, so no signal that can be ignored ends it.
  time = builtins.genericClosure {
    startSet = [ { key = 0; } ];
    operator = item: [ { key = item.key + 1; } ];
  };
  # 100 MiB as a result, and 12 MiB as a message beside a small one (Nix takes seconds for a longer one).
  output = long 20;
  messages = builtins.trace (long 17) "short";
  inherit cycle;
  nested = nested 20000;
  nestedMore = nested 1000000;
}
