package leases

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kubeyaml "k8s.io/apimachinery/pkg/util/yaml"
)

const audience = "bloodraven-deploy"

func example(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "examples", name))
	require.NoError(t, err)
	return text
}

// known says whether a flag of lease run has the variable.
func known(variable string) bool {
	found := false
	runCommand(os.Getenv).Flags().VisitAll(func(f *pflag.Flag) {
		found = found || strings.HasSuffix(f.Usage, "("+variable+")")
	})
	return found
}

func TestTheExampleJob(t *testing.T) {
	document, err := kubeyaml.ToJSON(example(t, "job.yaml"))
	require.NoError(t, err)
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	var job batchv1.Job
	require.NoError(t, decoder.Decode(&job))
	require.Equal(t, "batch/v1", job.APIVersion)
	require.Equal(t, "Job", job.Kind)

	pod := job.Spec.Template
	require.Equal(t, "true", pod.Labels["bloodraven.shipstream.io/deploy-client"])
	require.Equal(t, corev1.RestartPolicyNever, pod.Spec.RestartPolicy)
	require.NotNil(t, pod.Spec.AutomountServiceAccountToken)
	require.False(t, *pod.Spec.AutomountServiceAccountToken)
	require.Equal(t, "application-deploy", pod.Spec.ServiceAccountName)
	rules := job.Spec.PodFailurePolicy.Rules
	require.Len(t, rules, 1)
	require.Equal(t, batchv1.PodFailurePolicyActionFailJob, rules[0].Action)
	require.Equal(t, batchv1.PodFailurePolicyOnExitCodesOpNotIn, rules[0].OnExitCodes.Operator)
	require.Equal(t, []int32{exitRefused, exitLost}, rules[0].OnExitCodes.Values)

	require.Len(t, pod.Spec.Containers, 1)
	container := pod.Spec.Containers[0]
	require.Equal(t, container.Name, *rules[0].OnExitCodes.ContainerName)
	sources := map[string]*corev1.ServiceAccountTokenProjection{}
	var ca bool
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		mount := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
		require.GreaterOrEqual(t, mount, 0)
		require.True(t, container.VolumeMounts[mount].ReadOnly)
		for _, s := range v.Projected.Sources {
			if token := s.ServiceAccountToken; token != nil {
				sources[filepath.Join(container.VolumeMounts[mount].MountPath, token.Path)] = token
			}
			if s.ConfigMap != nil {
				ca = ca || filepath.Join(container.VolumeMounts[mount].MountPath, s.ConfigMap.Items[0].Path) == podCAFile
			}
		}
	}
	require.True(t, ca, "the CA is where slipway looks for it")
	require.Len(t, sources, 1)
	require.NotNil(t, sources[podTokenFile], "the token is where slipway looks for it")
	require.Equal(t, audience, sources[podTokenFile].Audience)

	// The command line works, with another API and another command.
	require.Equal(t, []string{"slipway", "lease", "run"}, container.Command)
	end := slices.Index(container.Args, "--")
	require.Positive(t, end)
	a := newAPI(t)
	c := a.command(slices.Concat([]string{"run"}, container.Args[:end], []string{"--", "true"})...)
	for _, e := range container.Env {
		require.True(t, known(e.Name), e.Name)
		if e.Name == "SLIPWAY_LEASE_URL" {
			require.Equal(t, podURL, e.Value)
			continue
		}
		c.Env = append(c.Env, e.Name+"="+e.Value)
	}
	code, _, errOut := run(c)
	require.Equal(t, 0, code, errOut)
}

// The script of the workflow is run with a kubectl that gives tokens.
func TestTheExampleWorkflow(t *testing.T) {
	var workflow struct {
		Permissions map[string]string
		Concurrency struct {
			CancelInProgress bool `yaml:"cancel-in-progress"`
		}
		Jobs map[string]struct {
			Env   map[string]string
			Steps []struct{ Run string }
		}
	}
	require.NoError(t, yaml.Unmarshal(example(t, "workflow.yaml"), &workflow))
	require.Equal(t, map[string]string{"contents": "read"}, workflow.Permissions)
	require.False(t, workflow.Concurrency.CancelInProgress)
	job := workflow.Jobs["migrate"]
	script := job.Steps[len(job.Steps)-1].Run

	a := newAPI(t)
	bin := a.path("bin")
	require.NoError(t, os.Mkdir(bin, 0o700))
	self, err := os.Executable()
	require.NoError(t, err)
	for name, text := range map[string]string{
		"bin/kubectl": `echo "$*" >asked; echo the-token`,
		"bin/slipway": `exec ` + self + ` "$@"`,
		"migrate.sh":  `echo migrated "$SLIPWAY_LEASE_OPERATION_ID"`,
	} {
		require.NoError(t, os.WriteFile(a.path(name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	}
	c := a.command()
	c.Path, c.Args = "/bin/bash", []string{"bash", "-eo", "pipefail", "-c", script}
	for name, value := range job.Env {
		require.True(t, known(name), name)
		switch name {
		case "SLIPWAY_LEASE_URL", "SLIPWAY_LEASE_CA_FILE": // those of the test
		case "SLIPWAY_LEASE_TOKEN_FILE":
			c.Env = append(c.Env, name+"="+a.path("runner-token"))
		default:
			c.Env = append(c.Env, name+"="+value)
		}
	}
	path := "PATH=" + bin + ":" + os.Getenv("PATH")
	c.Env = append(c.Env, path, "GITHUB_RUN_ID=7", "GITHUB_RUN_ATTEMPT=1")
	// The pipe of the output ends when nothing that the script started is left.
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "migrated github-7-1")
	asked, err := os.ReadFile(a.path("asked"))
	require.NoError(t, err)
	require.Contains(t, string(asked), "--audience "+audience)
	_, err = os.Stat(a.path("runner-token"))
	require.ErrorIs(t, err, os.ErrNotExist, "the token does not stay")
}
