package config_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/activities/openbao"
	"slipway.dev/slipway/cmd/slipway/config"
)

func TestFlagsOverEnvironmentOverDefaults(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(flags)
	require.NoError(t, flags.Parse([]string{"--nix-timeout", "5s"}))
	c, values, err := config.Read([]string{
		"SLIPWAY_NIX_TIMEOUT=7s", "SLIPWAY_NIX_MEMORY=512MiB", "SLIPWAY_DATABASE_URL=postgres://u:hunter2@h/d", "HOME=/",
		`SLIPWAY_TRUSTED_ISSUERS=[{"issuer":"i","audience":"a","jwksFile":"/f"}]`, "SLIPWAY_DEPLOYER_ENV=A, B",
		"SLIPWAY_CORS_ORIGINS=https://panel.example, http://localhost:3000",
		"SLIPWAY_TRUSTED_PROXIES=10.0.0.0/8, fd00::/8",
		"SLIPWAY_GROUP_NAMESPACES=orders, billing",
		"SLIPWAY_CODEC_KEYS_FILE=/etc/keys", "SLIPWAY_CODEC_ORIGINS=https://temporal.example",
	}, flags)
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, c.NixTimeout)
	require.EqualValues(t, 512<<20, c.NixMemory)
	require.Equal(t, ":8082", c.Listen)
	require.Equal(t, []string{"A", "B"}, c.DeployerEnv)
	require.Equal(t, []string{"orders", "billing"}, c.GroupNamespaces)
	require.Len(t, c.TrustedIssuers, 1)
	require.Equal(t, "/etc/keys", c.CodecKeysFile)
	require.True(t, c.CodecOrigins.Allows("https://temporal.example"))
	require.False(t, c.Origins.Allows("https://temporal.example"))
	require.True(t, c.Origins.Allows("https://panel.example") && c.Origins.Allows("http://localhost:3000"))
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, c.TrustedProxies)
	from := map[string]string{}
	for _, v := range values {
		require.NotContains(t, v.Shown(), "hunter2")
		from[v.Env] = v.From
	}
	require.Equal(t, "flag", from["SLIPWAY_NIX_TIMEOUT"])
	require.Equal(t, "environment", from["SLIPWAY_NIX_MEMORY"])
	require.Equal(t, "default", from["SLIPWAY_LISTEN"])
}

func TestTheKubernetesLoginHasTheTokenOfThePodOrAnother(t *testing.T) {
	for environ, file := range map[string]string{
		"SLIPWAY_OPENBAO_KUBERNETES_TOKEN_FILE=":       "/var/run/secrets/kubernetes.io/serviceaccount/token",
		"SLIPWAY_OPENBAO_KUBERNETES_TOKEN_FILE=/other": "/other",
	} {
		c, _, err := config.Read([]string{"SLIPWAY_OPENBAO_KUBERNETES_ROLE=slipway", environ}, nil)
		require.NoError(t, err)
		require.Equal(t, openbao.Kubernetes{Role: "slipway", TokenFile: file}, *c.OpenBao.Kubernetes)
	}
	c, _, err := config.Read(nil, nil)
	require.NoError(t, err)
	require.Nil(t, c.OpenBao.Kubernetes)
}

func TestBadValuesAreAllNamed(t *testing.T) {
	_, values, err := config.Read([]string{
		"SLIPWAY_NIX_SLOT=2", "SLIPWAY_NIX_SLOTS=0", "SLIPWAY_NIX_TIMEOUT=soon", "SLIPWAY_NIX_MEMORY=lots", "SLIPWAY_LISTEN=8082",
		"SLIPWAY_TRUSTED_ISSUERS={}", "SLIPWAY_LOG_LEVEL=loud", "SLIPWAY_DEPLOYER_ENV=SLIPWAY_TOKEN", "SLIPWAY_TOKEN=of-a-client",
		"SLIPWAY_CORS_ORIGINS=https://panel.example,https://*.example", "SLIPWAY_CODEC_ORIGINS=temporal.example",
		"SLIPWAY_TRUSTED_PROXIES=10.0.0.0/8,proxy.example",
		"SLIPWAY_GROUP_NAMESPACES=orders,Orders",
	}, nil)
	for _, want := range []string{
		"SLIPWAY_NIX_SLOT: there is no such setting", "SLIPWAY_NIX_SLOTS (0, from environment): is not a whole number",
		"SLIPWAY_NIX_TIMEOUT (soon", "SLIPWAY_NIX_MEMORY (lots", "SLIPWAY_LISTEN (8082", "SLIPWAY_TRUSTED_ISSUERS ({}",
		"SLIPWAY_TRUSTED_PROXIES (10.0.0.0/8,proxy.example, from environment): is not a list of networks",
		"SLIPWAY_LOG_LEVEL (loud", "is not handed on",
		`the entry "https://*.example" has a wildcard`,
		"SLIPWAY_CODEC_ORIGINS (temporal.example, from environment)",
		`SLIPWAY_GROUP_NAMESPACES (orders,Orders, from environment): has "Orders"`,
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "of-a-client")
	_, _, err = config.Read([]string{"SLIPWAY_DEPLOYER_ENV=A,OPENBAO_TOKEN_FILE"}, nil)
	require.ErrorContains(t, err, "OPENBAO_TOKEN_FILE is a variable of slipway's own and is not handed on")
	require.ErrorContains(t, config.Require(values, "SLIPWAY_DATABASE_URL", "SLIPWAY_SOURCE"), "SLIPWAY_SOURCE is not set")
}
