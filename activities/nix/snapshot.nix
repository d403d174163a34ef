# The store path of a copy of the folder. The name is constant, so that the same content is the same snapshot wherever
# the folder was. Version control and slipway-dev's state are not part of a source; what is neither file, folder nor
# link (a socket that an editor left) has no place in a store.
{ path }:
builtins.path {
  name = "slipway-source";
  path = /. + path;
  filter =
    path: type:
    !(builtins.elem (baseNameOf path) [
      ".git"
      ".slipway"
    ])
    && type != "unknown";
}
