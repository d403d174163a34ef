# Results of the wrong shape.
{
  notFunction = 1;
  function = x: x;
  functionInside = {
    a = [ (x: x) ];
  };
  notANumber = 1.0e308 * 10;
  notUTF8 = builtins.readFile ./latin1;
  notASet = _: [ ];
  names = _: {
    nodes.web.names = "web.example.org";
    disabledApplications = [ ];
  };
  deployer = ./slipway.nix;
}
