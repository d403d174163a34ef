# Does not parse.
{ schema = ; }
