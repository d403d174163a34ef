package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
)

func issuerFolder(flags *pflag.FlagSet) *string {
	return flags.String("dir", ".slipway/issuer", "folder of the key pair")
}

func issuerCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "issuer",
		Short: "Make the key pair that signs tokens, where it is absent",
		Long: `Makes the key pair that signs tokens (ECDSA P-256), where it is absent: key.pem,
mode 0600, and jwks.json with the public key, which slipway trusts by

  SLIPWAY_TRUSTED_ISSUERS='[{"issuer":"` + issuer.DefaultIssuer + `","audience":"` + issuer.DefaultAudience + `","jwksFile":"<folder>/jwks.json"}]'

Prints the path of the JWKS file.`,
		Args: cobra.NoArgs,
	}
	folder := issuerFolder(command.Flags())
	command.RunE = func(command *cobra.Command, _ []string) error {
		opened, err := issuer.Open(*folder)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(command.OutOrStdout(), opened.JWKSFile)
		return err
	}
	return command
}

func tokenCommand() *cobra.Command {
	var claims issuer.Claims
	var ttl time.Duration
	command := &cobra.Command{
		Use:   "token",
		Short: "Print a signed token for the deployments API",
		Long: `Prints a signed token (JWT, ES256) for the deployments API. The key pair is made
where it is absent. A token for two deployments, to read only, for an hour:

  slipway-dev token --scope deployments:read --deployment blog --deployment shop --ttl 1h

A negative --ttl makes a token that has expired.`,
		Args: cobra.NoArgs,
	}
	flags := command.Flags()
	folder := issuerFolder(flags)
	flags.StringVar(&claims.Scope, "scope", issuer.DefaultScope, "scopes, separated by spaces")
	flags.StringArrayVar(&claims.Deployments, "deployment", nil, "limit the token to this deployment (may be repeated)")
	flags.DurationVar(&ttl, "ttl", issuer.DefaultTTL, "how long the token is valid")
	flags.StringVar(&claims.Audience, "audience", issuer.DefaultAudience, "claim aud")
	flags.StringVar(&claims.Subject, "subject", issuer.DefaultSubject, "claim sub")
	flags.StringVar(&claims.Issuer, "issuer", issuer.DefaultIssuer, "claim iss")
	command.RunE = func(command *cobra.Command, _ []string) error {
		opened, err := issuer.Open(*folder)
		if err != nil {
			return err
		}
		claims.IssuedAt = time.Now()
		claims.Expires = claims.IssuedAt.Add(ttl)
		token, err := opened.Token(claims)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(command.OutOrStdout(), token)
		return err
	}
	return command
}
