package up

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/cmd/slipway-dev/ports"
)

// namespace is the one that the command temporal makes.
const namespace = "default"

// corsVariable has the front-ends that slipway allows.
const corsVariable = "SLIPWAY_CORS_ORIGINS"

// The variables of the lease API's clients.
const (
	leaseURLVariable   = "SLIPWAY_LEASE_URL"
	leaseCAVariable    = "SLIPWAY_LEASE_CA_FILE"
	leaseTokenVariable = "SLIPWAY_LEASE_TOKEN_FILE"
)

// The variables of the secrets server's clients.
const (
	openBaoVariable      = "OPENBAO_ADDR"
	openBaoTokenVariable = "OPENBAO_TOKEN_FILE"
)

// addressOf is the URL of a listener.
func addressOf(use ports.Use) string { return "http://" + ports.Address(use.Port) }

// serverEnvironment is what slipway serve, migrate and temporal-setup run with.
// What the caller sets for slipway comes through (SLIPWAY_NIX_SLOTS=1), what
// this machine decides wins.
func serverEnvironment(o Options, s state, databaseURL, jwksFile string) ([]string, error) {
	issuers, err := json.Marshal([]map[string]string{
		{"issuer": issuer.DefaultIssuer, "audience": issuer.DefaultAudience, "jwksFile": jwksFile},
		{"issuer": addressOf(o.Panel), "audience": issuer.DefaultAudience},
	})
	if err != nil {
		return nil, err
	}
	deployer := [][2]string{{"DEPLOY_PROFILES", s.path("profiles")}, {"DEPLOY_RUNTIME", s.path("runtime")}}
	if o.Bao != nil {
		deployer = append(deployer, o.Bao.nodeVariables(s)...)
	}
	var handedOn []string
	for _, v := range deployer {
		handedOn = append(handedOn, v[0])
	}
	variables := append(deployer, [][2]string{
		{"SLIPWAY_DATABASE_URL", databaseURL},
		{"SLIPWAY_LISTEN", ports.Address(o.API.Port)},
		{"SLIPWAY_METRICS_LISTEN", ports.Address(o.Metrics.Port)},
		{"SLIPWAY_HEALTH_LISTEN", ports.Address(o.Health.Port)},
		{"SLIPWAY_SOURCE", o.Source},
		{"SLIPWAY_STATE_DIR", s.path("slipway")},
		{"SLIPWAY_TRUSTED_ISSUERS", string(issuers)},
		{corsVariable, origins(o)},
		{"SLIPWAY_DEPLOYER_ENV", strings.Join(handedOn, ",")},
		{"SLIPWAY_DRAIN_TIMEOUT", "0s"}, // nothing is between it and who calls it
		{"TEMPORAL_ADDRESS", ports.Address(o.Temporal.Port)},
		{"TEMPORAL_NAMESPACE", namespace},
	}...)
	if o.Kube != nil {
		variables = append(variables, [][2]string{
			{"BLOODRAVEN_DEPLOY_API_ENABLED", "true"},
			{"BLOODRAVEN_ESCROW_TLS_ADDR", ports.Address(o.Kube.Lease.Port)},
			{"BLOODRAVEN_DEPLOY_API_AUDIENCE", kube.Audience},
			{"SLIPWAY_DEPLOY_TLS_CERT_FILE", s.path("kube/tls.crt")},
			{"SLIPWAY_DEPLOY_TLS_KEY_FILE", s.path("kube/tls.key")},
			{"SLIPWAY_NAMESPACE", kube.Namespace},
			{"KUBECONFIG", s.path("kube/slipway.kubeconfig")},
		}...)
	}
	if o.Bao != nil {
		variables = append(variables, o.Bao.variables(s)...)
	}
	return with(inherited(o.Environ), variables), nil
}

// origins are the front-ends that may call: the panel, and those that the
// caller's environment names, such as a front-end that is being written.
func origins(o Options) string {
	all := addressOf(o.Panel)
	for _, variable := range o.Environ {
		if more, ok := strings.CutPrefix(variable, corsVariable+"="); ok && more != "" {
			all += "," + more
		}
	}
	return all
}

// leaseURL is the lease API, by the name that its certificate has in every
// client.
func (k Kube) leaseURL() string { return fmt.Sprintf("https://localhost:%d/deploy/v1", k.Lease.Port) }

// variables are how clients of the secrets server find it: slipway, and from
// dev.env whoever looks into it.
func (b Bao) variables(s state) [][2]string {
	return [][2]string{
		{openBaoVariable, addressOf(b.Listen)},
		{openBaoTokenVariable, s.path("bao/token")},
	}
}

// nodeVariables are how the nodes of the example source find the secrets server,
// with a credential that is not slipway's.
func (b Bao) nodeVariables(s state) [][2]string {
	return [][2]string{
		{"DEPLOY_OPENBAO_ADDR", addressOf(b.Listen)},
		{"DEPLOY_OPENBAO_TOKEN_FILE", s.path("bao/nodes-token")},
	}
}

// clientEnvironment is what the client commands of slipway run with.
func clientEnvironment(o Options, token string) []string {
	return with(inherited(o.Environ), [][2]string{{"SLIPWAY_URL", addressOf(o.API)}, {"SLIPWAY_TOKEN", token}})
}

// inherited is the caller's environment without what would mislead slipway: the
// variables of its client, which dev.env of an earlier run may have set and
// serve does not know, and those of another Temporal.
func inherited(environ []string) []string {
	kept := make([]string, 0, len(environ))
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		switch name {
		case "SLIPWAY_URL", "SLIPWAY_CA_FILE", "SLIPWAY_TOKEN", leaseURLVariable, leaseCAVariable, leaseTokenVariable:
			continue
		}
		if strings.HasPrefix(name, "TEMPORAL_") {
			continue
		}
		kept = append(kept, variable)
	}
	return kept
}

// with sets variables; of two settings of a name, the last counts (os/exec).
func with(environ []string, variables [][2]string) []string {
	for _, v := range variables {
		environ = append(environ, v[0]+"="+v[1])
	}
	return environ
}

// writeDevEnv writes dev.env, whole or not at all. No value has a quote.
func writeDevEnv(o Options, s state, databaseURL, token string) error {
	variables := [][2]string{
		{"SLIPWAY_URL", addressOf(o.API)},
		{"SLIPWAY_TOKEN", token},
		{"TEMPORAL_ADDRESS", ports.Address(o.Temporal.Port)},
		{"TEMPORAL_NAMESPACE", namespace},
		{"TEMPORAL_UI_URL", addressOf(o.UI)},
		{"PANEL_URL", addressOf(o.Panel)},
		{"METRICS_URL", addressOf(o.Metrics) + "/metrics"},
		{"DATABASE_URL", databaseURL},
	}
	if o.Kube != nil {
		variables = append(variables, [][2]string{
			{leaseURLVariable, o.Kube.leaseURL()},
			{leaseCAVariable, s.path("kube/lease-ca.crt")},
			{leaseTokenVariable, s.path("kube/token")},
			{"KUBECONFIG", s.path("kube/kubeconfig")},
		}...)
	}
	if o.Bao != nil {
		variables = append(variables, o.Bao.variables(s)...)
	}
	var text strings.Builder
	for _, v := range variables {
		fmt.Fprintf(&text, "%s='%s'\n", v[0], v[1])
	}
	path := s.path("dev.env")
	if err := os.WriteFile(path+".new", []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("dev.env: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("dev.env: %w", err)
	}
	return nil
}
