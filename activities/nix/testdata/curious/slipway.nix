# Looks for what a source must not see. Each attribute is one way.
{
  file = builtins.readFile /etc/passwd;
  folder = builtins.readDir /.;
  existence = builtins.pathExists /etc/passwd;
  home = builtins.readFile (builtins.getEnv "HOME" + "/.netrc");
  imported = import /etc/passwd;
  copied = "${/etc/passwd}";
  searched = <nixpkgs>;
  environment = {
    canary = builtins.getEnv "SLIPWAY_CANARY";
    home = builtins.getEnv "HOME";
    path = builtins.getEnv "PATH";
  };
  # Functions of a URL.
  fetchurl = url: builtins.readFile (builtins.fetchurl url);
  fetchTarball = url: import (builtins.fetchTarball url);
  fetchGit = url: builtins.readDir (builtins.fetchGit { inherit url; });
  # A fixed-output derivation that downloads during the evaluation.
  importFromDerivation =
    url:
    import (derivation {
      name = "fetched";
      system = "builtin";
      builder = "builtin:fetchurl";
      inherit url;
      outputHashMode = "flat";
      outputHashAlgo = "sha256";
      outputHash = "0000000000000000000000000000000000000000000000000000";
    });
}
