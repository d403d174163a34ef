# JSON Schema 2020-12 of a configuration.
#
# Each method has the same applications; `fleet` puts each on a node of its own, `single` puts them all on one.
let
  hostname = {
    type = "string";
    format = "hostname";
    pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)+$";
    maxLength = 253;
  };

  object = properties: {
    type = "object";
    inherit properties;
    additionalProperties = false;
  };

  enable = what: {
    type = "boolean";
    title = "Enable";
    description = "Whether the deployment runs the ${what}.";
    default = false;
  };

  ownDomain = what: hostname // {
    title = "Domain of its own";
    description = "Where the ${what} answers, instead of at its name below the domain of the deployment.";
    examples = [ "${what}.example.net" ];
  };

  # A secret never reaches Nix: slipway takes it out of the configuration and only leaves its name in `secretsSet`.
  secret = {
    type = "string";
    writeOnly = true;
    format = "password";
    minLength = 1;
    maxLength = 4096;
  };

  # The two properties that an application with secrets has beside them.
  secretLists = fields: {
    secretsSet = {
      type = "array";
      title = "Secrets that are set";
      description = "Names of the secrets that have a value. Filled in by slipway, what a client sends is ignored.";
      readOnly = true;
      items.enum = fields;
      uniqueItems = true;
      default = [ ];
    };
    secretsClear = {
      type = "array";
      title = "Secrets to clear";
      description = "Names of the secrets whose stored value is deleted once the deployment runs without it.";
      items.enum = fields;
      uniqueItems = true;
      default = [ ];
    };
  };

  forum =
    object (
      {
        enable = enable "forum";
        domain = ownDomain "forum";
        title = {
          type = "string";
          title = "Title";
          description = "What the forum calls itself on its pages.";
          minLength = 1;
          maxLength = 80;
          default = "Forum";
        };
        registration = {
          type = "string";
          title = "Registration";
          description = "Who may open an account: anyone, people with an invitation, or nobody.";
          enum = [
            "open"
            "invitation"
            "closed"
          ];
          default = "invitation";
        };
        uploadMegabytes = {
          type = "integer";
          title = "Largest upload (MB)";
          description = "Size of the largest file that a post can have, in megabytes.";
          minimum = 1;
          maximum = 1024;
          default = 16;
        };
        translationApiKey = secret // {
          title = "Key of the translation service";
          description = "API key with which the forum has posts translated. Without it, posts are not translated.";
        };
        smtp =
          object {
            host = hostname // {
              title = "Mail server";
              description = "Host that takes the mail of the forum.";
              examples = [ "mail.example.org" ];
            };
            port = {
              type = "integer";
              title = "Port";
              description = "Port of the mail server, with TLS from the first byte.";
              minimum = 1;
              maximum = 65535;
              default = 465;
            };
            user = {
              type = "string";
              title = "User";
              description = "Name with which the forum logs in to the mail server.";
              maxLength = 254;
            };
            password = secret // {
              title = "Password";
              description = "Password with which the forum logs in to the mail server.";
            };
          }
          // {
            title = "Outgoing mail";
            description = "How the forum sends mail. Without a host it sends none.";
          };
      }
      // secretLists [
        "translationApiKey"
        "smtp.password"
      ]
    )
    // {
      title = "Forum";
      description = "Discussion in topics, with accounts and moderation.";
      x-subdomain = "forum";
    };

  wiki =
    object {
      enable = enable "wiki";
      domain = ownDomain "wiki";
      title = {
        type = "string";
        title = "Title";
        description = "What the wiki calls itself on its pages.";
        minLength = 1;
        maxLength = 80;
        default = "Wiki";
      };
      public = {
        type = "boolean";
        title = "Public";
        description = "Whether people without an account can read the wiki.";
        default = true;
      };
    }
    // {
      title = "Wiki";
      description = "Pages that everybody in the group can edit.";
      x-subdomain = "wiki";
    };

  backup =
    object {
      enable = enable "backup";
      applications = {
        type = "array";
        title = "Applications";
        description = "The applications whose data is copied. Each of them must be enabled.";
        items.enum = [
          "forum"
          "wiki"
        ];
        uniqueItems = true;
        default = [ ];
      };
      hour = {
        type = "integer";
        title = "Hour";
        description = "Hour of the day, in UTC, at which the copy is made.";
        minimum = 0;
        maximum = 23;
        default = 3;
      };
      keepDays = {
        type = "integer";
        title = "Days to keep";
        description = "How many daily copies are kept.";
        minimum = 1;
        maximum = 365;
        default = 14;
      };
    }
    // {
      title = "Backup";
      description = "Daily copies of the data of other applications.";
      x-subdomain = "backup";
      x-web = false;
    };

  method =
    title: description:
    object {
      domain = hostname // {
        title = "Domain";
        description = "The domain of the deployment. Its applications answer at names below it.";
        examples = [ "example.org" ];
      };
      applications =
        object { inherit forum wiki backup; }
        // {
          title = "Applications";
          description = "What the deployment runs. An application that is left out is disabled.";
        };
    }
    // {
      inherit title description;
      required = [
        "domain"
        "applications"
      ];
    };
in
object {
  fleet = method "Fleet" "A gateway, and a node for each application.";
  single = method "Single node" "Everything on one node.";
}
// {
  "$schema" = "https://json-schema.org/draft/2020-12/schema";
  title = "Example deployment";
  description = "A forum, a wiki and backups, deployed by one of two methods.";
  minProperties = 1;
  maxProperties = 1;
  x-components = {
    status = {
      title = "Status page";
      subdomain = "status";
    };
  };
}
