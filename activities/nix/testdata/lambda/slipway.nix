# Not an attribute set.
{ pkgs }: { }
