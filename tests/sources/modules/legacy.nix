# A module that gets it wrong for one theme: the mistake is the source's own.
_:
{ config }:
{
  config.applications.forum = if config.domain == "broken.example" then { tls = "yes"; } else { };
}
