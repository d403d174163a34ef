# Its deployer does not build.
let
  build =
    name: script:
    derivation {
      inherit name;
      system = builtins.currentSystem;
      builder = "/bin/sh";
      PATH = "/usr/bin:/bin";
      args = [
        "-eu"
        "-c"
        script
      ];
    };
in
{
  deployer = build "deployer" ''
    echo "no rope" >&2
    exit 3
  '';
}
