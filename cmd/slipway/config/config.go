package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/activities/openbao"
	"slipway.dev/slipway/api/auth"
	"slipway.dev/slipway/schema/origin"
)

// Config is what the services of slipway are run with.
type Config struct {
	DatabaseURL        string
	Listen             string
	TLSCertFile        string // none: plain text
	TLSKeyFile         string
	MetricsListen      string
	HealthListen       string
	TrustedIssuers     []auth.Issuer
	Origins            origin.List
	TrustedProxies     []netip.Prefix
	CodecKeysFile      string
	TemporalAPIKeyFile string
	CodecOrigins       origin.List
	Source             string
	SourceEntry        string
	StateDir           string
	NixSlots           int
	SourceCAFile       string
	NixTimeout         time.Duration
	SystemsTimeout     time.Duration
	NixMemory          int64 // bytes
	DeploySlots        int
	DeployerEnv        []string
	DeployerGrace      time.Duration
	SBOMTimeout        time.Duration
	DrainTimeout       time.Duration
	ShutdownTimeout    time.Duration
	LogLevel           zapcore.Level

	OpenBao openbao.Options

	// Of the deployment coordination API.
	Coordination         bool
	CoordinationListen   string
	CoordinationAudience string
	CertificateFile      string
	CertificateKeyFile   string
	GroupNamespaces      []string // none: all
	Namespace            string
	PodName              string
	FollowTopology       bool
	PlannedOperations    bool
}

// Setting is one row of the configuration.
type Setting struct {
	// Env is its environment variable; its flag is derived from that.
	Env     string
	Default string
	Help    string
	// Secret values are masked where they are shown.
	Secret bool
	set    func(*Config, string) error
}

// Flag is the name of the setting's flag.
func (s Setting) Flag() string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s.Env, prefix), "_", "-"))
}

const prefix = "SLIPWAY_"

// podToken is where a pod finds the token of its ServiceAccount, which rotates.
const podToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

func appRole(c *Config) *openbao.AppRole {
	if c.OpenBao.AppRole == nil {
		c.OpenBao.AppRole = &openbao.AppRole{}
	}
	return c.OpenBao.AppRole
}

func kubernetes(c *Config) *openbao.Kubernetes {
	if c.OpenBao.Kubernetes == nil {
		c.OpenBao.Kubernetes = &openbao.Kubernetes{TokenFile: podToken}
	}
	return c.OpenBao.Kubernetes
}

// clientVariables are of the client commands, which have flags of their own.
var clientVariables = []string{
	"SLIPWAY_URL", "SLIPWAY_CA_FILE", "SLIPWAY_TOKEN", "SLIPWAY_TOKEN_FILE",
	"SLIPWAY_LEASE_URL", "SLIPWAY_LEASE_CA_FILE", "SLIPWAY_LEASE_TOKEN_FILE",
	"SLIPWAY_LEASE_GROUP", "SLIPWAY_LEASE_INSTANCE", "SLIPWAY_LEASE_OPERATION_ID", "SLIPWAY_LEASE_TTL",
	"SLIPWAY_LEASE_WAIT", "SLIPWAY_LEASE_NO_HOLD", "SLIPWAY_LEASE_BOUNDARY",
}

// Settings lists all settings in the order in which they are shown.
func Settings() []Setting {
	return []Setting{
		{Env: "SLIPWAY_DATABASE_URL", Secret: true,
			Help: "PostgreSQL, as postgres://user:password@host:port/database",
			set:  text(func(c *Config) *string { return &c.DatabaseURL })},
		{Env: "SLIPWAY_LISTEN", Default: ":8082",
			Help: "address of the deployments API",
			set:  address(func(c *Config) *string { return &c.Listen })},
		{Env: "SLIPWAY_TLS_CERT_FILE",
			Help: "certificate of the deployments API (PEM); reread when it changes; empty: plain text",
			set:  text(func(c *Config) *string { return &c.TLSCertFile })},
		{Env: "SLIPWAY_TLS_KEY_FILE",
			Help: "private key of that certificate (PEM)",
			set:  text(func(c *Config) *string { return &c.TLSKeyFile })},
		{Env: "SLIPWAY_METRICS_LISTEN", Default: ":8080",
			Help: "address of the Prometheus metrics",
			set:  address(func(c *Config) *string { return &c.MetricsListen })},
		{Env: "SLIPWAY_HEALTH_LISTEN", Default: ":8081",
			Help: "address of /healthz and /readyz",
			set:  address(func(c *Config) *string { return &c.HealthListen })},
		{Env: "SLIPWAY_TRUSTED_ISSUERS",
			Help: `whose tokens the API accepts: a JSON array of {"issuer", "audience"} with "jwksFile", "jwksUrl" or neither (discovery), and "caFile"`,
			set:  setIssuers},
		{Env: "SLIPWAY_CORS_ORIGINS",
			Help: "front-ends that may call from browsers and be called back: origins such as https://panel.example, separated by commas",
			set: func(c *Config, v string) (err error) {
				c.Origins, err = origin.ParseList(v)
				return err
			}},
		{Env: "SLIPWAY_TEMPORAL_API_KEY_FILE",
			Help: "file with the API key of Temporal, instead of TEMPORAL_API_KEY; read for every call",
			set:  text(func(c *Config) *string { return &c.TemporalAPIKeyFile })},
		{Env: "SLIPWAY_CODEC_KEYS_FILE",
			Help: "keys that encrypt what goes into Temporal's histories (docs/operations.md); empty: nothing is encrypted",
			set:  text(func(c *Config) *string { return &c.CodecKeysFile })},
		{Env: "SLIPWAY_CODEC_ORIGINS",
			Help: "origins of Temporal Web UIs that may have payloads decoded, such as https://temporal.example, separated by commas",
			set: func(c *Config, v string) (err error) {
				c.CodecOrigins, err = origin.ParseList(v)
				return err
			}},
		{Env: "SLIPWAY_TRUSTED_PROXIES",
			Help: "networks of proxies whose X-Forwarded-For is believed, as CIDRs separated by commas; empty: none is",
			set:  setProxies},
		{Env: "SLIPWAY_SOURCE",
			Help: "module source: a folder, or git+https://…?rev=<commit>",
			set:  text(func(c *Config) *string { return &c.Source })},
		{Env: "SLIPWAY_SOURCE_ENTRY", Default: "slipway.nix",
			Help: "file of the module source that is evaluated",
			set:  text(func(c *Config) *string { return &c.SourceEntry })},
		{Env: "SLIPWAY_SOURCE_CA_FILE",
			Help: "certificates that the server of a git+https source is trusted by (PEM); empty: those of the system",
			set:  text(func(c *Config) *string { return &c.SourceCAFile })},
		{Env: "SLIPWAY_STATE_DIR", Default: "/var/lib/slipway",
			Help: "folder for GC roots, fetched sources and the working folders of deployers",
			set:  text(func(c *Config) *string { return &c.StateDir })},
		{Env: "SLIPWAY_NIX_SLOTS", Default: strconv.Itoa(runtime.NumCPU()),
			Help: "how many evaluations run at once; a submit beyond goes on without one",
			set:  count(func(c *Config) *int { return &c.NixSlots })},
		{Env: "SLIPWAY_NIX_TIMEOUT", Default: "60s",
			Help: "how long one evaluation may take (at most 10m)",
			set:  duration(func(c *Config) *time.Duration { return &c.NixTimeout }, 10*time.Minute)},
		{Env: "SLIPWAY_NIX_SYSTEMS_TIMEOUT", Default: "600s",
			Help: "how long the systems of all nodes of an import may take together (at most 1h)",
			set:  duration(func(c *Config) *time.Duration { return &c.SystemsTimeout }, time.Hour)},
		{Env: "SLIPWAY_NIX_MEMORY", Default: "2GiB",
			Help: "address space of one evaluation",
			set:  bytes(func(c *Config) *int64 { return &c.NixMemory })},
		{Env: "SLIPWAY_DEPLOY_SLOTS", Default: "10",
			Help: "how many deployers run at once",
			set:  count(func(c *Config) *int { return &c.DeploySlots })},
		{Env: "SLIPWAY_DEPLOYER_ENV",
			Help: "names of environment variables that deployers get, separated by commas",
			set:  names(func(c *Config) *[]string { return &c.DeployerEnv })},
		{Env: "SLIPWAY_DEPLOYER_GRACE", Default: "10s",
			Help: "how long a cancelled deployer may take to end by itself",
			set:  duration(func(c *Config) *time.Duration { return &c.DeployerGrace }, time.Hour)},
		{Env: "SLIPWAY_SBOM_TIMEOUT", Default: "10m",
			Help: "how long a deployer may wait for its SBOMs (DEPLOY_SBOM_TIMEOUT)",
			set:  duration(func(c *Config) *time.Duration { return &c.SBOMTimeout }, 24*time.Hour)},
		{Env: "SLIPWAY_DRAIN_TIMEOUT", Default: "5s",
			Help: "how long an API that was asked to stop goes on as before, not ready, so that load balancers find out; 0s where none is before it",
			set:  durationOrNone(func(c *Config) *time.Duration { return &c.DrainTimeout }, time.Hour)},
		{Env: "SLIPWAY_SHUTDOWN_TIMEOUT", Default: "20s",
			Help: "how long a process that stops waits for what it has begun, after that",
			set:  duration(func(c *Config) *time.Duration { return &c.ShutdownTimeout }, 24*time.Hour)},
		{Env: "OPENBAO_ADDR",
			Help: "OpenBao that keeps operator secrets, as https://host:8200; without it a secret is refused",
			set:  text(func(c *Config) *string { return &c.OpenBao.Address })},
		{Env: "OPENBAO_TOKEN_FILE",
			Help: "file with the token for OpenBao; or log in by SLIPWAY_OPENBAO_KUBERNETES_ROLE or SLIPWAY_OPENBAO_ROLE_ID_FILE",
			set:  text(func(c *Config) *string { return &c.OpenBao.TokenFile })},
		{Env: "SLIPWAY_OPENBAO_CA_FILE",
			Help: "certificates that OpenBao is trusted by (PEM); empty: those of the system",
			set:  text(func(c *Config) *string { return &c.OpenBao.CAFile })},
		{Env: "SLIPWAY_OPENBAO_NAMESPACE",
			Help: "namespace of OpenBao",
			set:  text(func(c *Config) *string { return &c.OpenBao.Namespace })},
		{Env: "SLIPWAY_OPENBAO_MOUNT", Default: "secret",
			Help: "mount of the KV v2 engine",
			set:  text(func(c *Config) *string { return &c.OpenBao.Mount })},
		{Env: "SLIPWAY_OPENBAO_ROOT", Default: "deployments",
			Help: "folder of all deployments below the mount",
			set:  text(func(c *Config) *string { return &c.OpenBao.Root })},
		{Env: "SLIPWAY_OPENBAO_KUBERNETES_ROLE",
			Help: "role of the Kubernetes login, with a ServiceAccount token",
			set:  text(func(c *Config) *string { return &kubernetes(c).Role })},
		{Env: "SLIPWAY_OPENBAO_KUBERNETES_TOKEN_FILE",
			Help: "file with that token, for one with an audience of its own; empty: the token of the pod",
			set:  text(func(c *Config) *string { return &kubernetes(c).TokenFile })},
		{Env: "SLIPWAY_OPENBAO_ROLE_ID_FILE",
			Help: "file with the role ID of the AppRole login",
			set:  text(func(c *Config) *string { return &appRole(c).RoleIDFile })},
		{Env: "SLIPWAY_OPENBAO_SECRET_ID_FILE",
			Help: "file with the secret ID of the AppRole login",
			set:  text(func(c *Config) *string { return &appRole(c).SecretIDFile })},
		{Env: "BLOODRAVEN_DEPLOY_API_ENABLED", Default: "false",
			Help: "serve the deployment coordination API, /deploy/v1 (true or false)",
			set:  boolean(func(c *Config) *bool { return &c.Coordination })},
		{Env: "BLOODRAVEN_ESCROW_TLS_ADDR", Default: ":8443",
			Help: "address of the deployment coordination API, which is TLS only",
			set:  address(func(c *Config) *string { return &c.CoordinationListen })},
		{Env: "BLOODRAVEN_DEPLOY_API_AUDIENCE", Default: "bloodraven-deploy",
			Help: "audience of the ServiceAccount tokens that deploy jobs show",
			set:  text(func(c *Config) *string { return &c.CoordinationAudience })},
		{Env: "SLIPWAY_DEPLOY_TLS_CERT_FILE",
			Help: "certificate of the deployment coordination API (PEM); reread when it changes",
			set:  text(func(c *Config) *string { return &c.CertificateFile })},
		{Env: "SLIPWAY_DEPLOY_TLS_KEY_FILE",
			Help: "its private key (PEM)",
			set:  text(func(c *Config) *string { return &c.CertificateKeyFile })},
		{Env: "SLIPWAY_GROUP_NAMESPACES",
			Help: "Kubernetes namespaces of the failover groups, separated by commas; empty: all, which needs rights in all",
			set:  namespaces(func(c *Config) *[]string { return &c.GroupNamespaces })},
		{Env: "SLIPWAY_NAMESPACE", Default: "slipway",
			Help: "Kubernetes namespace of slipway itself, for leader election",
			set:  text(func(c *Config) *string { return &c.Namespace })},
		{Env: "SLIPWAY_POD_NAME",
			Help: "pod of this process, which is labelled while it leads; empty outside of Kubernetes",
			set:  text(func(c *Config) *string { return &c.PodName })},
		{Env: "SLIPWAY_TOPOLOGY", Default: "raise",
			Help: "raise: slipway raises the topology generation where the operator does not; follow: it never does",
			set:  oneOf(func(c *Config, v string) { c.FollowTopology = v == "follow" }, "raise", "follow")},
		{Env: "SLIPWAY_PLANNED_OPERATIONS", Default: "true",
			Help: "defer planned operations behind holds (false: the operator does that itself)",
			set:  boolean(func(c *Config) *bool { return &c.PlannedOperations })},
		{Env: "SLIPWAY_LOG_LEVEL", Default: "info",
			Help: "debug, info, warn or error",
			set: func(c *Config, v string) error {
				if err := c.LogLevel.Set(v); err != nil || c.LogLevel > zapcore.ErrorLevel {
					return errors.New("is none of debug, info, warn and error")
				}
				return nil
			}},
	}
}

// Value is the value of a setting and where it came from.
type Value struct {
	Setting
	Value string
	// From is "default", "environment" or "flag".
	From string
}

// Shown is the value for a person: a secret is masked.
func (v Value) Shown() string {
	if v.Secret && v.Value != "" {
		return "********"
	}
	return v.Value
}

// AddFlags gives a command a flag for every setting.
func AddFlags(flags *pflag.FlagSet, only ...string) {
	for _, s := range Settings() {
		if len(only) > 0 && !slices.Contains(only, s.Env) {
			continue
		}
		flags.String(s.Flag(), s.Default, fmt.Sprintf("%s [%s]", s.Help, s.Env))
	}
}

// Read collects the value of every setting from environ (as os.Environ gives
// it) and from the flags of a command that has them. All errors are reported
// together.
func Read(environ []string, flags *pflag.FlagSet) (Config, []Value, error) {
	var c Config
	var errs []error
	settings := Settings()
	environment := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		environment[name] = value
		if !strings.HasPrefix(name, prefix) || slices.Contains(clientVariables, name) {
			continue
		}
		if !slices.ContainsFunc(settings, func(s Setting) bool { return s.Env == name }) {
			errs = append(errs, fmt.Errorf("%s: there is no such setting; `slipway config --help` lists them", name))
		}
	}
	values := make([]Value, 0, len(settings))
	for _, s := range settings {
		v := Value{Setting: s, Value: s.Default, From: "default"}
		if value, ok := environment[s.Env]; ok {
			v.Value, v.From = value, "environment"
		}
		if flags != nil && flags.Changed(s.Flag()) {
			v.Value, v.From = flags.Lookup(s.Flag()).Value.String(), "flag"
		}
		values = append(values, v)
		if v.Value == "" {
			continue
		}
		if err := s.set(&c, v.Value); err != nil {
			errs = append(errs, fmt.Errorf("%s (%s, from %s): %w", s.Env, v.Shown(), v.From, err))
		}
	}
	return c, values, errors.Join(errs...)
}

// Require says which of the named settings are missing.
func Require(values []Value, env ...string) error {
	var errs []error
	for _, v := range values {
		if v.Value == "" && slices.Contains(env, v.Env) {
			errs = append(errs, fmt.Errorf("%s is not set (%s)", v.Env, v.Help))
		}
	}
	return errors.Join(errs...)
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*field(c) = v
		return nil
	}
}

func address(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if _, port, err := net.SplitHostPort(v); err != nil || port == "" {
			return errors.New("is not an address of the form host:port or :port")
		}
		*field(c) = v
		return nil
	}
}

func boolean(field func(*Config) *bool) func(*Config, string) error {
	return oneOf(func(c *Config, v string) { *field(c) = v == "true" }, "true", "false")
}

func oneOf(set func(*Config, string), words ...string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("is none of %s", strings.Join(words, ", "))
		}
		set(c, v)
		return nil
	}
}

func count(field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 10_000 {
			return errors.New("is not a whole number from 1 to 10000")
		}
		*field(c) = n
		return nil
	}
}

func duration(field func(*Config) *time.Duration, most time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 || d > most {
			return fmt.Errorf("is not a duration such as 30s or 5m of more than 0 and at most %s", most)
		}
		*field(c) = d
		return nil
	}
}

func durationOrNone(field func(*Config) *time.Duration, most time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 || d > most {
			return fmt.Errorf("is not a duration such as 5s or 0s of at most %s", most)
		}
		*field(c) = d
		return nil
	}
}

func bytes(field func(*Config) *int64) func(*Config, string) error {
	units := []struct {
		suffix string
		bytes  int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}
	return func(c *Config, v string) error {
		for _, unit := range units {
			number, ok := strings.CutSuffix(v, unit.suffix)
			if !ok {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 32+10)
			if err != nil || n < 1 {
				break
			}
			*field(c) = n * unit.bytes
			return nil
		}
		return errors.New("is not a size such as 512MiB or 2GiB")
	}
}

func names(field func(*Config) *[]string) func(*Config, string) error {
	return func(c *Config, v string) error {
		for name := range strings.SplitSeq(v, ",") {
			name = strings.TrimSpace(name)
			if name == "" || strings.ContainsAny(name, "= \t") {
				return errors.New("is not a list of names of environment variables, separated by commas")
			}
			if strings.HasPrefix(name, prefix) || slices.ContainsFunc(Settings(), func(s Setting) bool { return s.Env == name }) {
				return fmt.Errorf("%s is a variable of slipway's own and is not handed on", name)
			}
			*field(c) = append(*field(c), name)
		}
		return nil
	}
}

func setProxies(c *Config, v string) error {
	for text := range strings.SplitSeq(v, ",") {
		network, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || network.Addr().Is4In6() {
			return errors.New("is not a list of networks such as 10.0.0.0/8 or fd00::/8, separated by commas")
		}
		c.TrustedProxies = append(c.TrustedProxies, network)
	}
	return nil
}

func namespaces(field func(*Config) *[]string) func(*Config, string) error {
	return func(c *Config, v string) error {
		for name := range strings.SplitSeq(v, ",") {
			name = strings.TrimSpace(name)
			if len(validation.IsDNS1123Label(name)) > 0 {
				return fmt.Errorf("has %q, which is not the name of a namespace", name)
			}
			if slices.Contains(*field(c), name) {
				return fmt.Errorf("has %s twice", name)
			}
			*field(c) = append(*field(c), name)
		}
		return nil
	}
}

func setIssuers(c *Config, v string) error {
	d := json.NewDecoder(strings.NewReader(v))
	d.DisallowUnknownFields()
	if err := d.Decode(&c.TrustedIssuers); err != nil {
		return fmt.Errorf("is not a JSON array of issuers: %w", err)
	}
	return nil
}
