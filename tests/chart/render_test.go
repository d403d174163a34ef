package chart

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"slipway.dev/slipway/cmd/slipway/config"
)

// sets are values that installations have; a name is part of a path that helm
// splits at commas. each says what besides.
var sets = map[string]struct {
	values []string
	each   func(t *testing.T, r release)
}{
	"the least": {each: func(t *testing.T, r release) {
		for _, kind := range []string{"ClusterRole", "Role", "NetworkPolicy", "Ingress", "ServiceMonitor", "PrometheusRule"} {
			require.False(t, r.has(kind), kind)
		}
		aux := find[corev1.Service](t, r, "Service", "bloodraven")
		require.Len(t, aux.Spec.Ports, 1, "the plain port alone")
		require.NotContains(t, aux.Spec.Selector, "slipway/leader", "nobody leads")
		require.False(t, *find[appsv1.Deployment](t, r, "Deployment", "slipway-api").Spec.Template.Spec.AutomountServiceAccountToken)
	}},
	"coordination": {values: []string{coordinated}, each: func(t *testing.T, r release) {
		aux := find[corev1.Service](t, r, "Service", "bloodraven")
		require.Equal(t, "true", aux.Spec.Selector["slipway/leader"])
		require.True(t, aux.Spec.PublishNotReadyAddresses, "a leader that waits for PostgreSQL renews leases")
		require.EqualValues(t, 8443, aux.Spec.Ports[1].Port)
		require.NotContains(t, find[corev1.Service](t, r, "Service", "slipway").Spec.Selector, "slipway/leader")
		api := find[appsv1.Deployment](t, r, "Deployment", "slipway-api").Spec.Template.Spec
		require.True(t, *api.AutomountServiceAccountToken)
		env := environment(api.Containers[0])
		require.Equal(t, "true", env["BLOODRAVEN_DEPLOY_API_ENABLED"])
		require.Equal(t, "bloodraven-deploy", env["BLOODRAVEN_DEPLOY_API_AUDIENCE"])
		require.Equal(t, ":8443", env["BLOODRAVEN_ESCROW_TLS_ADDR"])
	}},
	"coordination by other names": {values: []string{coordinated, `
fullnameOverride: harbour
leaderElection: {enabled: true}
auxiliary:
  service: {name: harbour-leases}
  escrowTLS: {port: 9443}
  deployAPI: {audience: harbour, topology: follow, plannedOperations: false}
rights: {namespaces: [orders, billing]}
`}, each: func(t *testing.T, r release) {
		aux := find[corev1.Service](t, r, "Service", "harbour-leases")
		require.EqualValues(t, 9443, aux.Spec.Ports[1].Port)
		container := find[appsv1.Deployment](t, r, "Deployment", "harbour-api").Spec.Template.Spec.Containers[0]
		require.True(t, slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == "https" && p.ContainerPort == 9443 }))
		env := environment(container)
		require.Equal(t, ":9443", env["BLOODRAVEN_ESCROW_TLS_ADDR"])
		require.Equal(t, "harbour", env["BLOODRAVEN_DEPLOY_API_AUDIENCE"])
		require.Equal(t, "orders,billing", env["SLIPWAY_GROUP_NAMESPACES"])
	}},
	"the listener before the API": {values: []string{`
auxiliary: {escrowTLS: {enabled: true, existingSecret: tls}}
`}, each: func(t *testing.T, r release) {
		require.Len(t, find[corev1.Service](t, r, "Service", "bloodraven").Spec.Ports, 2)
		require.False(t, r.has("ClusterRole"))
	}},
	"no auxiliary Service": {values: []string{coordinated, "auxiliary: {service: {enabled: false}}"}, each: func(t *testing.T, r release) {
		require.Len(t, all[corev1.Service](t, r, "Service"), 1)
	}},
	"OpenBao by Kubernetes": {values: []string{`
openbao: {address: "https://openbao.openbao:8200", kubernetesRole: slipway, namespace: team, caSecret: openbao-ca}
`}, each: func(t *testing.T, r release) {
		for _, name := range []string{"slipway-api", "slipway-worker"} {
			pod := find[appsv1.Deployment](t, r, "Deployment", name).Spec.Template.Spec
			require.False(t, *pod.AutomountServiceAccountToken, name)
			mounts := pod.Containers[0].VolumeMounts
			i := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool {
				return m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount"
			})
			require.GreaterOrEqual(t, i, 0, "%s logs in with its token", name)
		}
	}},
	"OpenBao by Kubernetes and coordination": {values: []string{coordinated, `
openbao: {address: "https://openbao.openbao:8200", kubernetesRole: slipway}
`}},
	"OpenBao by AppRole": {values: []string{`
openbao: {address: "https://openbao.openbao:8200", appRoleSecret: slipway-approle, mount: kv, root: slipway}
`}},
	"OpenBao by token": {values: []string{`
openbao: {address: "https://openbao.openbao:8200", tokenSecret: slipway-openbao}
`}},
	"Temporal with certificates": {values: []string{`
temporal: {namespace: slipway.prod, setup: false, tls: {caSecret: temporal-ca, clientSecret: temporal-client, serverName: temporal.example}}
database: {caSecret: database-ca, key: uri}
`}, each: func(t *testing.T, r release) {
		require.Empty(t, find[batchv1.Job](t, r, "Job", "slipway-migrate").Spec.Template.Spec.InitContainers)
		env := environment(find[appsv1.Deployment](t, r, "Deployment", "slipway-worker").Spec.Template.Spec.Containers[0])
		require.Equal(t, "true", env["TEMPORAL_TLS"])
	}},
	"Temporal Cloud": {values: []string{`
temporal: {address: "slipway.a1b2c.tmprl.cloud:7233", namespace: slipway.a1b2c, apiKey: {existingSecret: temporal-cloud, key: token}}
`}, each: func(t *testing.T, r release) {
		for name, template := range pods(t, r) {
			for _, c := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
				i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "temporal-api-key" })
				require.GreaterOrEqual(t, i, 0, name)
				require.Equal(t, c.VolumeMounts[i].MountPath+"/api-key", environment(c)["SLIPWAY_TEMPORAL_API_KEY_FILE"], name)
				require.Empty(t, c.VolumeMounts[i].SubPath, name)
			}
			i := slices.IndexFunc(template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "temporal-api-key" })
			require.Equal(t, []corev1.KeyToPath{{Key: "token", Path: "api-key"}}, template.Spec.Volumes[i].Secret.Items, name)
		}
	}},
	"encrypted histories": {values: []string{`
temporal: {codec: {existingSecret: slipway-codec, key: codec-keys, origins: ["https://temporal.example", "https://other.example"]}}
`}, each: func(t *testing.T, r release) {
		for _, name := range []string{"slipway-api", "slipway-worker"} {
			pod := find[appsv1.Deployment](t, r, "Deployment", name).Spec.Template.Spec
			env := environment(pod.Containers[0])
			require.Equal(t, "https://temporal.example,https://other.example", env["SLIPWAY_CODEC_ORIGINS"])
			i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "codec" })
			require.GreaterOrEqual(t, i, 0)
			require.Equal(t, "slipway-codec", pod.Volumes[i].Secret.SecretName)
			require.Equal(t, []corev1.KeyToPath{{Key: "codec-keys", Path: "keys"}}, pod.Volumes[i].Secret.Items)
			i = slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "codec" })
			require.GreaterOrEqual(t, i, 0)
			require.Equal(t, env["SLIPWAY_CODEC_KEYS_FILE"], pod.Containers[0].VolumeMounts[i].MountPath+"/keys")
		}
	}},
	"an Ingress": {values: []string{`
api: {plainText: false}
ingress: {enabled: true, className: nginx, host: slipway.example, tlsSecret: slipway-tls, annotations: {nginx.ingress.kubernetes.io/proxy-buffering: "off"}}
`}, each: func(t *testing.T, r release) {
		ingress := find[networkingv1.Ingress](t, r, "Ingress", "slipway")
		backend := ingress.Spec.Rules[0].HTTP.Paths[0].Backend.Service
		service := find[corev1.Service](t, r, "Service", backend.Name)
		require.Equal(t, service.Spec.Ports[0].Name, backend.Port.Name)
	}},
	"TLS of its own": {values: []string{coordinated, `
api: {plainText: false, tls: {existingSecret: slipway-api-tls}}
`}, each: func(t *testing.T, r release) {
		pod := find[appsv1.Deployment](t, r, "Deployment", "slipway-api").Spec.Template.Spec
		env := environment(pod.Containers[0])
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "api-tls" })
		require.GreaterOrEqual(t, i, 0)
		require.Equal(t, "slipway-api-tls", pod.Volumes[i].Secret.SecretName)
		i = slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "api-tls" })
		require.GreaterOrEqual(t, i, 0)
		mount := pod.Containers[0].VolumeMounts[i]
		require.Empty(t, mount.SubPath, "one that is mounted so does not change with its Secret")
		require.Equal(t, mount.MountPath+"/tls.crt", env["SLIPWAY_TLS_CERT_FILE"])
		require.Equal(t, mount.MountPath+"/tls.key", env["SLIPWAY_TLS_KEY_FILE"])
		require.NotEqual(t, env["SLIPWAY_DEPLOY_TLS_CERT_FILE"], env["SLIPWAY_TLS_CERT_FILE"])
		for _, probe := range []*corev1.Probe{pod.Containers[0].StartupProbe, pod.Containers[0].ReadinessProbe, pod.Containers[0].LivenessProbe} {
			require.Equal(t, "health", probe.HTTPGet.Port.StrVal)
			require.Empty(t, probe.HTTPGet.Scheme)
		}
		for _, name := range []string{"slipway", "bloodraven"} {
			port := find[corev1.Service](t, r, "Service", name).Spec.Ports[0]
			require.Equal(t, "https", *port.AppProtocol, name)
			require.Equal(t, "http", port.TargetPort.StrVal, name)
		}
		require.NotContains(t, environment(find[appsv1.Deployment](t, r, "Deployment", "slipway-worker").Spec.Template.Spec.Containers[0]), "SLIPWAY_TLS_CERT_FILE")
	}},
	"an Ingress before TLS": {values: []string{`
api: {plainText: false, tls: {existingSecret: slipway-api-tls}}
ingress: {enabled: true, host: slipway.example, tlsSecret: slipway-tls, annotations: {nginx.ingress.kubernetes.io/backend-protocol: HTTPS}}
`}, each: func(t *testing.T, r release) {
		backend := find[networkingv1.Ingress](t, r, "Ingress", "slipway").Spec.Rules[0].HTTP.Paths[0].Backend.Service
		require.Equal(t, find[corev1.Service](t, r, "Service", backend.Name).Spec.Ports[0].Name, backend.Port.Name)
		require.Equal(t, "https", backend.Port.Name)
	}},
	"many workers and monitors": {values: []string{`
worker: {replicas: 3, antiAffinity: required, store: {accessMode: ReadWriteMany, storageClass: shared}}
api: {replicas: 3, antiAffinity: none}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: rules}}
imagePullSecrets: [{name: registry}]
image: {digest: "sha256:0123456789012345678901234567890123456789012345678901234567890123"}
`}, each: func(t *testing.T, r release) {
		budgets := all[policyv1.PodDisruptionBudget](t, r, "PodDisruptionBudget")
		require.Len(t, budgets, 2)
		for _, b := range budgets {
			require.Equal(t, policyv1.AlwaysAllow, *b.Spec.UnhealthyPodEvictionPolicy)
		}
		worker := find[appsv1.Deployment](t, r, "Deployment", "slipway-worker")
		for _, part := range []*appsv1.Deployment{worker, find[appsv1.Deployment](t, r, "Deployment", "slipway-api")} {
			require.Equal(t, appsv1.RollingUpdateDeploymentStrategyType, part.Spec.Strategy.Type)
			require.Zero(t, part.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue(), "the old pod waits for the new one")
		}
		require.Contains(t, worker.Spec.Template.Spec.Containers[0].Image, "@sha256:")
		checkRules(t, r)
	}},
	"rules without a monitor": {values: []string{`prometheusRule: {enabled: true, labels: {release: rules}}`}, each: func(t *testing.T, r release) {
		require.False(t, r.has("ServiceMonitor"))
		checkRules(t, r)
	}},
	"everything of the site's own": {values: []string{`
logLevel: debug
shutdownTimeout: 2m
extraEnv: [{name: DEPLOYER_SSH_KEY, value: /keys/deploy}]
issuers:
  - {issuer: "https://a.example", audience: slipway, jwksConfigMap: {name: a-keys, key: keys.json}}
  - {issuer: "https://b.example", audience: slipway, jwks: '{"keys":[]}'}
  - {issuer: "https://c.example", audience: slipway, jwksUrl: "https://c.example/keys"}
  - {issuer: "https://d.example", audience: slipway, caSecret: issuer-ca}
corsOrigins: ["https://panel.example", "https://other.example"]
api:
  drainTimeout: 1m
  extraEnv: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
  podLabels: {team: platform}
  podAnnotations: {a: b}
  nodeSelector: {disk: ssd}
  tolerations: [{key: dedicated, operator: Exists}]
  priorityClassName: system-cluster-critical
  service: {type: LoadBalancer, port: 80, annotations: {c: d}}
  serviceAccount: {annotations: {e: f}}
worker:
  source: /source
  deployerEnv: [DEPLOYER_SSH_KEY]
  store: {existingClaim: my-store}
  extraVolumes: [{name: source, configMap: {name: source}}, {name: keys, secret: {secretName: keys}}]
  extraVolumeMounts: [{name: source, mountPath: /source}, {name: keys, mountPath: /keys, readOnly: true}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: nix, operator: Exists}]}]}}}
migrate: {enabled: false}
`}, each: func(t *testing.T, r release) {
		require.False(t, r.has("Job"))
		require.False(t, r.has("PersistentVolumeClaim"))
		pod := find[appsv1.Deployment](t, r, "Deployment", "slipway-worker").Spec.Template.Spec
		require.EqualValues(t, 130, *pod.TerminationGracePeriodSeconds)
		api := find[appsv1.Deployment](t, r, "Deployment", "slipway-api").Spec.Template.Spec
		require.EqualValues(t, 190, *api.TerminationGracePeriodSeconds)
		require.Contains(t, api.Containers[0].Env, corev1.EnvVar{Name: "SLIPWAY_DRAIN_TIMEOUT", Value: "1m"})
		require.NotNil(t, pod.Affinity.NodeAffinity)
		require.Nil(t, pod.Affinity.PodAntiAffinity)
	}},
}

func TestWhatIsRenderedIsAccepted(t *testing.T) {
	installMonitoring(t)
	for name, set := range sets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := kubernetes.Namespace(t)
			r := render(t, namespace, append([]string{least}, set.values...)...)
			for _, o := range r {
				if o.GetNamespace() == "orders" || o.GetNamespace() == "billing" {
					o.SetNamespace(namespace) // a dry run has no namespaces of its own
				}
				require.NoError(t, create(t, o, true), "%s %s", o.GetKind(), o.GetName())
				require.NotContains(t, text(t, o), "blockOwnerDeletion")
			}
			templates := pods(t, r)
			require.GreaterOrEqual(t, len(templates), 2)
			for name, template := range templates {
				checkPod(t, name, template)
			}
			worker := find[appsv1.Deployment](t, r, "Deployment", workload(t, r, "-worker"))
			api := find[appsv1.Deployment](t, r, "Deployment", workload(t, r, "-api"))
			require.NotEqual(t, worker.Spec.Template.Spec.ServiceAccountName, api.Spec.Template.Spec.ServiceAccountName)
			for _, account := range all[corev1.ServiceAccount](t, r, "ServiceAccount") {
				require.False(t, *account.AutomountServiceAccountToken)
			}
			accepts(t, api.Spec.Template.Spec.Containers[0], "SLIPWAY_DATABASE_URL", "SLIPWAY_TRUSTED_ISSUERS")
			accepts(t, worker.Spec.Template.Spec.Containers[0], "SLIPWAY_DATABASE_URL", "SLIPWAY_SOURCE")
			if set.each != nil {
				set.each(t, r)
			}
		})
	}
}

// checkRules checks that the rules are those of the file, untouched by helm.
func checkRules(t *testing.T, r release) {
	t.Helper()
	i := slices.IndexFunc(r, func(o *unstructured.Unstructured) bool { return o.GetKind() == "PrometheusRule" })
	require.GreaterOrEqual(t, i, 0)
	require.Equal(t, "rules", r[i].GetLabels()["release"])
	raw, err := os.ReadFile(chartFolder + "/alerts.yaml")
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, yaml.Unmarshal(raw, &file))
	require.NotEmpty(t, file["groups"])
	require.Equal(t, file, r[i].Object["spec"])
}

func text(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	raw, err := o.MarshalJSON()
	require.NoError(t, err)
	return string(raw)
}

// workload is the name of the Deployment with the suffix.
func workload(t *testing.T, r release, suffix string) string {
	t.Helper()
	for _, d := range all[appsv1.Deployment](t, r, "Deployment") {
		if strings.HasSuffix(d.Name, suffix) {
			return d.Name
		}
	}
	t.Fatalf("no Deployment …%s", suffix)
	return ""
}

// pods are the pods of everything that has some.
func pods(t *testing.T, r release) map[string]corev1.PodTemplateSpec {
	t.Helper()
	found := map[string]corev1.PodTemplateSpec{}
	for _, d := range all[appsv1.Deployment](t, r, "Deployment") {
		found[d.Name] = d.Spec.Template
	}
	for _, j := range all[batchv1.Job](t, r, "Job") {
		found[j.Name] = j.Spec.Template
	}
	return found
}

// checkPod is the restricted profile of Kubernetes' pod security standards, a
// root folder that nobody writes to, and that mounts and volumes belong to each
// other.
func checkPod(t *testing.T, name string, template corev1.PodTemplateSpec) {
	t.Helper()
	spec := template.Spec
	require.True(t, *spec.SecurityContext.RunAsNonRoot, name)
	require.Positive(t, *spec.SecurityContext.RunAsUser, name)
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type, name)
	require.NotNil(t, spec.AutomountServiceAccountToken, name)
	require.False(t, spec.HostNetwork || spec.HostPID || spec.HostIPC, name)
	volumes := map[string]bool{}
	for _, v := range spec.Volumes {
		require.NotContains(t, volumes, v.Name, name)
		require.Nil(t, v.HostPath, name)
		volumes[v.Name] = false
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, name)
		require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
		require.Empty(t, c.SecurityContext.Capabilities.Add, name)
		require.False(t, c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero(), name)
		for _, m := range c.VolumeMounts {
			require.Contains(t, volumes, m.Name, name)
			volumes[m.Name] = true
		}
		seen := map[string]bool{}
		for _, v := range c.Env {
			require.False(t, seen[v.Name], "%s has %s twice", name, v.Name)
			seen[v.Name] = true
		}
	}
	for volume, mounted := range volumes {
		require.True(t, mounted, "%s does not mount %s", name, volume)
	}
	for _, c := range spec.Containers {
		if template.Labels["app.kubernetes.io/component"] == "migrate" {
			continue
		}
		require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path, name)
		require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path, name)
		require.NotNil(t, c.StartupProbe, name)
	}
}

// environment is the environment of a container; what comes from elsewhere has
// a value that fits everywhere.
func environment(c corev1.Container) map[string]string {
	env := map[string]string{}
	for _, v := range c.Env {
		if v.ValueFrom != nil {
			v.Value = "from-elsewhere"
		}
		env[v.Name] = v.Value
	}
	return env
}

// accepts checks that the program would start with the container's environment.
func accepts(t *testing.T, c corev1.Container, required ...string) {
	t.Helper()
	var pairs []string
	for name, value := range environment(c) {
		pairs = append(pairs, name+"="+value)
	}
	read, values, err := config.Read(pairs, nil)
	require.NoError(t, err)
	if read.Coordination {
		required = append(required, "SLIPWAY_DEPLOY_TLS_CERT_FILE", "SLIPWAY_DEPLOY_TLS_KEY_FILE",
			"BLOODRAVEN_DEPLOY_API_AUDIENCE", "SLIPWAY_NAMESPACE", "SLIPWAY_POD_NAME")
	}
	require.NoError(t, config.Require(values, required...))
}

// The defaults are a contract: jobs and operators know them.
func TestDefaultsOfTheCoordinationAPI(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(chartFolder + "/values.yaml")
	require.NoError(t, err)
	var values map[string]any
	require.NoError(t, yaml.Unmarshal(raw, &values))
	for path, want := range map[string]any{
		"leaderElection.enabled":                              true,
		"auxiliary.service.enabled":                           true,
		"auxiliary.service.name":                              "bloodraven",
		"auxiliary.escrowTLS.enabled":                         false,
		"auxiliary.escrowTLS.port":                            float64(8443),
		"auxiliary.escrowTLS.existingSecret":                  "",
		"auxiliary.deployAPI.enabled":                         false,
		"auxiliary.deployAPI.audience":                        "bloodraven-deploy",
		"auxiliary.deployAPI.networkPolicy.enabled":           false,
		"auxiliary.deployAPI.networkPolicy.additionalIngress": []any{},
	} {
		got, found, err := unstructured.NestedFieldNoCopy(values, strings.Split(path, ".")...)
		require.NoError(t, err)
		require.True(t, found, path)
		require.EqualValues(t, want, got, path)
	}
}

func TestTheChartIsWellFormed(t *testing.T) {
	t.Parallel()
	_, err := helm(t, []string{"lint", "--strict", chartFolder}, least, coordinated)
	require.NoError(t, err)
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ values, want string }{
		{`auxiliary: {escrowTLS: {enabled: true}}`, "needs auxiliary.escrowTLS.existingSecret"},
		{`auxiliary: {deployAPI: {enabled: true}}`, "needs auxiliary.escrowTLS.enabled=true"},
		{`auxiliary: {deployAPI: {enabled: true}, escrowTLS: {enabled: true}}`, "needs auxiliary.escrowTLS.existingSecret"},
		{coordinated + `leaderElection: {enabled: false}`, "needs leaderElection.enabled=true"},
		{`auxiliary: {deployAPI: {enabled: true, audience: ""}, escrowTLS: {enabled: true, existingSecret: tls}}`, "audience must not be empty"},
		{`auxiliary: {deployAPI: {networkPolicy: {enabled: true}}}`, "needs auxiliary.deployAPI.enabled=true"},
		{`auxiliary: {escrowTLS: {port: 8081}}`, "port 8081 is taken"},
		{`auxiliary: {service: {name: slipway}}`, "choose another"},
		{`image: {repository: ""}`, "image.repository is missing"},
		{`database: {existingSecret: ""}`, "database.existingSecret is missing"},
		{`temporal: {address: ""}`, "temporal.address is missing"},
		{`temporal: {codec: {origins: ["https://temporal.example"]}}`, "needs temporal.codec.existingSecret"},
		{`issuers: []`, "issuers is empty"},
		{`issuers: [{issuer: a, audience: b, jwks: "{}", jwksUrl: "https://a.example/keys"}]`, "more than one of jwks"},
		{`worker: {source: ""}`, "worker.source is missing"},
		{`worker: {replicas: 2}`, "needs worker.store.accessMode=ReadWriteMany"},
		{`openbao: {address: "https://b:8200"}`, "needs exactly one of"},
		{`openbao: {address: "https://b:8200", tokenSecret: a, kubernetesRole: b}`, "and has 2"},
		{`openbao: {tokenSecret: a}`, "no openbao.address"},
		{`api: {plainText: false}`, "listens in plain text"},
		{`ingress: {enabled: true}`, "ingress.host is missing"},
		{`api: {tls: {existingSecret: a}, extraEnv: [{name: SLIPWAY_TLS_KEY_FILE, value: /x}]}`, "extraEnv has SLIPWAY_TLS_KEY_FILE"},
		{`ingress: {enabled: true, host: a.example}`, "ingress.tlsSecret is missing"},
		{`extraEnv: [{name: SLIPWAY_SOURCE, value: /x}]`, "extraEnv has SLIPWAY_SOURCE"},
		{`{extraEnv: [{name: A, value: "1"}], worker: {extraEnv: [{name: A, value: "2"}]}}`, "extraEnv and worker.extraEnv have A twice"},
		{`api: {podLabels: {app.kubernetes.io/component: worker}}`, "api.podLabels has app.kubernetes.io/component"},
		{`worker: {podLabels: {slipway/leader: "true"}}`, "worker.podLabels has slipway/leader"},
		// By the schema of the values.
		{`auxiliary: {deployAPI: {audience: " "}}`, "/auxiliary/deployAPI/audience"},
		{`auxiliary: {deployAPI: {networkPolicy: {additionalIngress: [{}]}}}`, "/auxiliary/deployAPI/networkPolicy/additionalIngress"},
		{`auxiliary: {deployAPI: {networkPolicy: {additionalIngress: [{from: [{}]}]}}}`, "/additionalIngress/0/from"},
		{`temporal: {address: temporal.example}`, "/temporal/address"},
		{`worker: {store: {size: big}}`, "/worker/store/size"},
		{`worker: {podDisruptionBudget: {maxUnavailable: 0}}`, "/worker/podDisruptionBudget/maxUnavailable"},
		{`api: {podDisruptionBudget: {maxUnavailable: "0%"}}`, "/api/podDisruptionBudget/maxUnavailable"},
		{`auxiliary: {deployApi: {enabled: true}}`, "deployApi"},
		{`auxiliary: {escrowTLS: {port: "8443"}}`, "/auxiliary/escrowTLS/port"},
		{`shutdownTimeout: 1m30s`, "/shutdownTimeout"},
		{`api: {drainTimeout: 0}`, "/api/drainTimeout"},
		{`image: {digest: latest}`, "/image/digest"},
		{`api: {tls: {enabled: true}}`, "/api/tls"},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			_, err := helm(t, []string{"template", "slipway", chartFolder}, least, test.values)
			require.ErrorContains(t, err, test.want)
		})
	}
}
