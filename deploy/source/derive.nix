# name -> script -> environment -> a derivation that runs the script.
#
# There is no nixpkgs here, so the builder is the /bin/sh of the machine, with the tools that POSIX promises in /usr/bin
# and /bin (README.md says what follows from that). The scripts write only to $out, and nothing that they write depends
# on the machine or the time.
name: script: environment:
derivation (
  {
    inherit name;
    system = builtins.currentSystem;
    builder = "/bin/sh";
    args = [
      "-eu"
      script
    ];
    PATH = "/usr/bin:/bin";
    LC_ALL = "C";
  }
  // environment
)
