package up

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"strings"
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
	configuration, secrets, err := r.exampleConfiguration()
	if err != nil {
		return fmt.Errorf("the example: %w", err)
	}
	if r.active(ctx, environ, secrets > 0) {
		fmt.Fprintf(r.Out, "  the deployment %s is active already\n", deployment)
		return nil
	}
	began := time.Now()
	if secrets > 0 {
		fmt.Fprintf(r.Out, "\n%s, with random values of its %d secrets:", r.Example, secrets)
	}
	spec := supervise.Spec{Name: "submit of the example", Path: r.Slipway, Env: environ, Output: r.Out}
	file := r.Example
	if secrets > 0 {
		file, spec.Input = "-", bytes.NewReader(configuration)
	}
	spec.Args = []string{"deployments", "submit", deployment, "-f", file, "--follow"}
	fmt.Fprintf(r.Out, "\nslipway %s\n", strings.Join(spec.Args, " "))
	process, err := r.start(spec)
	if err != nil {
		return err
	}
	if err := ended(ctx, process); err != nil {
		return fmt.Errorf("the example deployment did not become active: %w", err)
	}
	fmt.Fprintf(r.Out, "  %-58s %6.1f s\n", "the deployment "+deployment+" is active", time.Since(began).Seconds())
	return nil
}

// exampleConfiguration is the example with random values of its secrets, and how
// many these are: none where there is no secrets server.
func (r *run) exampleConfiguration() (text []byte, secrets int, err error) {
	if r.Bao == nil {
		return nil, 0, nil
	}
	var named, configuration map[string]any
	if err := readJSON(strings.TrimSuffix(r.Example, ".json")+"-secrets.json", &named); errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, err
	}
	if err := readJSON(r.Example, &configuration); err != nil {
		return nil, 0, err
	}
	secrets = addSecrets(configuration, named)
	text, err = json.Marshal(configuration)
	return text, secrets, err
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// addSecrets gives the secrets that are named random values in a configuration,
// and returns how many they are.
func addSecrets(configuration, named map[string]any) (secrets int) {
	for name, value := range named {
		inner, isObject := value.(map[string]any)
		if !isObject {
			configuration[name] = rand.Text()
			secrets++
			continue
		}
		object, ok := configuration[name].(map[string]any)
		if !ok {
			object = map[string]any{}
			configuration[name] = object
		}
		secrets += addSecrets(object, inner)
	}
	return secrets
}

// active is whether the example deployment is up from an earlier run, and where
// that is asked for with secrets. Where it cannot be told it is submitted; that
// is harmless.
func (r *run) active(ctx context.Context, environ []string, withSecrets bool) bool {
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
		State         string `json:"state"`
		Configuration any    `json:"configuration"`
	}
	return json.Unmarshal(out, &shown) == nil && shown.State == "active" && (!withSecrets || hasSecrets(shown.Configuration))
}

// hasSecrets is whether any secretsSet in a configuration names a secret.
func hasSecrets(part any) bool {
	object, _ := part.(map[string]any)
	for name, value := range object {
		if set, ok := value.([]any); ok && name == "secretsSet" && len(set) > 0 || hasSecrets(value) {
			return true
		}
	}
	return false
}

// summary prints where everything is.
func (r *run) summary(token, databaseURL string) {
	query := url.QueryEscape("SlipwayDeployment='" + deployment + "'")
	fmt.Fprintf(r.Out, `
ready after %.1f s

  panel            %s
  API              %s
  its description  %s/docs
  Temporal Web UI  %s/namespaces/%s/workflows?query=%s
  metrics          %s/metrics
  PostgreSQL       %s
  variables        . %s
  logs             %s

  curl -H 'Authorization: Bearer %s' %s/deployments/%s

`,
		time.Since(r.begun).Seconds(), addressOf(r.Panel), addressOf(r.API), addressOf(r.API), addressOf(r.UI), namespace, query,
		addressOf(r.Metrics), databaseURL, r.state.path("dev.env"), r.state.path("logs"), token, addressOf(r.API), deployment)
	if r.Kube != nil {
		fmt.Fprintf(r.Out, `  Kubernetes API   https://%s, KUBECONFIG=%s
  lease API        %s

  a migration lease on the example group %s:

  curl --cacert %s -H "Authorization: Bearer $(cat %s)" \
    -H 'Content-Type: application/json' \
    -d '{"kind":"migration","operationId":"first","instance":"%s","ttlSeconds":120}' \
    %s/groups/%s/leases

`,
			ports.Address(r.Kube.API.Port), r.state.path("kube/kubeconfig"), r.Kube.leaseURL(), kube.ExampleGroup,
			r.state.path("kube/lease-ca.crt"), r.state.path("kube/token"), kube.ExampleDatabase, r.Kube.leaseURL(), kube.ExampleGroup)
	}
	if r.Bao != nil {
		fmt.Fprintf(r.Out, `  secrets server   %s, token of slipway in %s,
                   unseal key and root token in %s
  secrets of nodes %s

`,
			addressOf(r.Bao.Listen), r.state.path("bao/token"), r.state.path("bao/init.json"), r.state.path("runtime"))
	}
	if r.Ready == nil {
		fmt.Fprintln(r.Out, "Ctrl-C stops everything.")
		return
	}
	fmt.Fprintln(r.Out, "slipway-dev down, or make dev-stop, stops everything.")
}
