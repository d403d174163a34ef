package up

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"syscall"
	"time"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/cmd/slipway-dev/ports"
	"slipway.dev/slipway/cmd/slipway-dev/supervise"
)

// example submits the example deployment and follows it until it is active.
// Its steps, with their times, are printed by the command that follows it.
func (r *run) example(ctx context.Context, environ []string) error {
	if r.Example == "" {
		return nil
	}
	if r.active(ctx, environ) {
		fmt.Fprintf(r.Out, "  the deployment %s is active already\n", deployment)
		return nil
	}
	began := time.Now()
	fmt.Fprintf(r.Out, "\nslipway deployments submit %s -f %s --follow\n", deployment, r.Example)
	process, err := r.start(supervise.Spec{
		Name: "submit of the example", Path: r.Slipway, Env: environ, Output: r.Out,
		Args: []string{"deployments", "submit", deployment, "-f", r.Example, "--follow"},
	})
	if err != nil {
		return err
	}
	if err := ended(ctx, process); err != nil {
		return fmt.Errorf("the example deployment did not become active: %w", err)
	}
	fmt.Fprintf(r.Out, "  %-58s %6.1f s\n", "the deployment "+deployment+" is active", time.Since(began).Seconds())
	return nil
}

// active is whether the example deployment is up from an earlier run. Where
// that cannot be told it is submitted; that is harmless.
func (r *run) active(ctx context.Context, environ []string) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Slipway, "deployments", "show", deployment, "-o", "json")
	cmd.Env = environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		return false
	}
	var shown struct {
		State string `json:"state"`
	}
	return json.Unmarshal(out, &shown) == nil && shown.State == "active"
}

// summary prints where everything is.
func (r *run) summary(token, databaseURL string) {
	query := url.QueryEscape("SlipwayDeployment='" + deployment + "'")
	fmt.Fprintf(r.Out, `
ready after %.1f s

  API              %s
  its description  %s/docs
  Temporal Web UI  %s/namespaces/%s/workflows?query=%s
  metrics          %s/metrics
  PostgreSQL       %s
  variables        . %s
  logs             %s

  curl -H 'Authorization: Bearer %s' %s/deployments/%s

`,
		time.Since(r.begun).Seconds(), addressOf(r.API), addressOf(r.API), addressOf(r.UI), namespace, query,
		addressOf(r.Metrics), databaseURL, r.state.path("dev.env"), r.state.path("logs"), token, addressOf(r.API), deployment)
	if r.Kube != nil {
		fmt.Fprintf(r.Out, `  Kubernetes API   https://%s, KUBECONFIG=%s
  lease API        %s

  a migration lease on the example group %s:

  curl --cacert %s -H "Authorization: Bearer $(cat %s)" \
    -H 'Content-Type: application/json' \
    -d '{"kind":"migration","operationId":"first","instance":"%s","ttlSeconds":120}' \
    %s/deploy/v1/groups/%s/leases

`,
			ports.Address(r.Kube.API.Port), r.state.path("kube/kubeconfig"), r.Kube.leaseURL(), kube.ExampleGroup,
			r.state.path("kube/lease-ca.crt"), r.state.path("kube/token"), kube.ExampleDatabase, r.Kube.leaseURL(), kube.ExampleGroup)
	}
	if r.Bao != nil {
		fmt.Fprintf(r.Out, `  secrets server   %s, token of slipway in %s,
                   unseal key and root token in %s

`,
			addressOf(r.Bao.Listen), r.state.path("bao/token"), r.state.path("bao/init.json"))
	}
	if r.Ready == nil {
		fmt.Fprintln(r.Out, "Ctrl-C stops everything.")
		return
	}
	fmt.Fprintln(r.Out, "slipway-dev down, or make dev-stop, stops everything.")
}
