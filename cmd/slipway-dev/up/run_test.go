package up_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway-dev/ports"
	"slipway.dev/slipway/cmd/slipway-dev/up"
)

// TestMain is also every program that Run starts: this binary, told by a
// variable of the environment to be one of them.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("UP_TEST_EVENTS") == "":
		os.Exit(m.Run())
	case os.Args[1] == "up":
		os.Exit(fakeUp(os.Args[2]))
	}
	os.Exit(fake(os.Args[1:]))
}

// happened appends a line to the file of events.
func happened(event string) {
	file, err := os.OpenFile(os.Getenv("UP_TEST_EVENTS"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, err = file.WriteString(event + "\n")
	}
	if err != nil {
		panic(err)
	}
	_ = file.Close()
}

func flagValue(args []string, flag string) string { return args[slices.Index(args, flag)+1] }

// fake plays the commands of slipway-dev and of slipway.
func fake(args []string) int {
	command := strings.Join(args[:min(2, len(args))], " ")
	switch {
	case args[0] == "postgres":
		_ = os.MkdirAll(flagValue(args, "--data-dir"), 0o755)
		return server("postgres", func() error {
			return os.WriteFile(flagValue(args, "--url-file"), []byte("postgres://fake\n"), 0o600)
		})
	case args[0] == "temporal":
		_ = os.MkdirAll(filepath.Dir(flagValue(args, "--ready-file")), 0o755)
		return server("temporal", func() error { return os.WriteFile(flagValue(args, "--ready-file"), nil, 0o600) })
	case args[0] == "bao":
		_ = os.MkdirAll(flagValue(args, "--data-dir"), 0o755)
		fmt.Println(strings.Join(args, " "))
		return server("bao", func() error { return os.WriteFile(flagValue(args, "--ready-file"), nil, 0o600) })
	case args[0] == "panel":
		_ = os.MkdirAll(flagValue(args, "--data-dir"), 0o755)
		fmt.Println(strings.Join(args, " "))
		return server("panel", func() error { return os.WriteFile(flagValue(args, "--ready-file"), nil, 0o600) })
	case args[0] == "kube":
		_ = os.MkdirAll(flagValue(args, "--data-dir"), 0o755)
		fmt.Println(strings.Join(args, " "))
		return server("kube", func() error { return os.WriteFile(flagValue(args, "--ready-file"), nil, 0o600) })
	case args[0] == "serve":
		return server("serve", func() error {
			fmt.Println(strings.Join(os.Environ(), "\n"))
			listener, err := net.Listen("tcp", os.Getenv("SLIPWAY_HEALTH_LISTEN"))
			if err != nil {
				return err
			}
			go func() {
				_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
			}()
			return nil
		})
	case command == "deployments show":
		happened("show " + os.Getenv("SLIPWAY_URL"))
		fmt.Printf(`{"state": %q, "configuration": {"a": {"secretsSet": [%s]}}}`, os.Getenv("UP_TEST_STATE"), os.Getenv("UP_TEST_SECRETS"))
	case command == "deployments submit":
		happened("submit")
		if flagValue(args, "-f") == "-" {
			text, err := io.ReadAll(os.Stdin)
			if err == nil {
				err = os.WriteFile(os.Getenv("UP_TEST_EVENTS")+".submitted", text, 0o600)
			}
			if err != nil {
				panic(err)
			}
		}
		if os.Getenv("UP_TEST_SUBMIT") != "" {
			fmt.Println("the build failed")
			return 3
		}
	default:
		happened(command)
		if os.Getenv("UP_TEST_FAILS") == args[0] {
			fmt.Println("why it failed")
			return 5
		}
	}
	return 0
}

// server runs until a signal, or ends at once where it is told to.
func server(name string, ready func() error) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	if os.Getenv("UP_TEST_FAILS") == name {
		fmt.Println("why it failed")
		return 5
	}
	happened(name)
	if err := ready(); err != nil {
		fmt.Println(err)
		return 1
	}
	<-signals
	if os.Getenv("UP_TEST_STUBBORN") != "" {
		select {}
	}
	happened(name + " stopped")
	return 0
}

// fakeUp plays the command up of slipway-dev, detached.
func fakeUp(options string) int {
	var o up.Options
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		panic(err)
	}
	o.Environ, o.Out, o.Ready = os.Environ(), os.Stdout, up.SignalReady
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := up.Run(ctx, nil, o); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// machine is the options of a run of fakes.
type machine struct {
	up.Options
	events string
	output string
}

func newMachine(t *testing.T, variables ...string) *machine {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	folder := t.TempDir()
	for _, name := range []string{"temporal-dev.yaml", "example.json"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	free, err := ports.Free(7)
	require.NoError(t, err)
	m := &machine{
		Options: up.Options{
			StateFolder: filepath.Join(folder, "state"), Self: self, Slipway: self,
			TemporalConfig: filepath.Join(folder, "temporal-dev.yaml"), Source: folder, Example: filepath.Join(folder, "example.json"),
			API: ports.Use{For: "API", Port: free[0]}, Metrics: ports.Use{For: "metrics", Port: free[1]},
			Health: ports.Use{For: "health", Port: free[2]}, Temporal: ports.Use{For: "Temporal", Port: free[3]},
			UI: ports.Use{For: "Web UI", Port: free[4]}, Postgres: ports.Use{For: "PostgreSQL", Port: free[5]},
			Panel: ports.Use{For: "panel", Port: free[6]},
		},
		events: filepath.Join(folder, "events"), output: filepath.Join(folder, "output"),
	}
	// Without the last, a program of the race detector takes a second to exit.
	m.Environ = append(os.Environ(), append(variables, "UP_TEST_EVENTS="+m.events, "GORACE=atexit_sleep_ms=0")...)
	return m
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(t, err)
	return string(text)
}

func (m *machine) happened(t *testing.T) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(content(t, m.events)), "\n")
}

// start runs the machine until stop is called; done has what Run returned.
func (m *machine) start(t *testing.T) (stop context.CancelFunc, done <-chan error) {
	t.Helper()
	out, err := os.Create(m.output)
	require.NoError(t, err)
	m.Out = out
	ctx, cancel := context.WithCancel(context.Background())
	result, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		result <- up.Run(ctx, nil, m.Options)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		require.NoError(t, out.Close())
	})
	return cancel, result
}

func (m *machine) printed(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(content(t, m.output), text) }, 30*time.Second, 10*time.Millisecond)
}

func TestRunStartsInOrderAndStopsInReverse(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "SLIPWAY_TOKEN=of an earlier run", "TEMPORAL_ADDRESS=elsewhere", "SLIPWAY_NIX_SLOTS=1", "SLIPWAY_CORS_ORIGINS=http://localhost:3000")
	stop, done := m.start(t)
	m.printed(t, "Ctrl-C stops everything.")

	info, err := os.Stat(filepath.Join(m.StateFolder, "dev.env"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	address := "http://" + ports.Address(m.API.Port)
	env := content(t, filepath.Join(m.StateFolder, "dev.env"))
	require.Contains(t, env, "SLIPWAY_URL='"+address+"'\n")
	require.Contains(t, env, "TEMPORAL_ADDRESS='"+ports.Address(m.Temporal.Port)+"'\n")
	require.Contains(t, env, "TEMPORAL_NAMESPACE='default'\n")
	require.Contains(t, env, "TEMPORAL_UI_URL='http://"+ports.Address(m.UI.Port)+"'\n")
	require.Contains(t, env, "METRICS_URL='http://"+ports.Address(m.Metrics.Port)+"/metrics'\n")
	require.Contains(t, env, "DATABASE_URL='postgres://fake'\n")
	panel := "http://" + ports.Address(m.Panel.Port)
	require.Contains(t, env, "PANEL_URL='"+panel+"'\n")
	require.Contains(t, content(t, m.output), "panel            "+panel+"\n")
	require.Contains(t, content(t, filepath.Join(m.StateFolder, "logs", "panel.log")), "--api-url "+address)
	require.NotContains(t, env, "KUBECONFIG")
	require.Regexp(t, `SLIPWAY_TOKEN='[\w-]+\.[\w-]+\.[\w-]+'`, env)

	// The environment of serve, which it printed.
	serve := strings.Split(content(t, filepath.Join(m.StateFolder, "logs", "slipway.log")), "\n")
	require.Contains(t, serve, "SLIPWAY_NIX_SLOTS=1")
	require.Contains(t, serve, "SLIPWAY_DATABASE_URL=postgres://fake")
	require.Contains(t, serve, "SLIPWAY_CORS_ORIGINS="+panel+",http://localhost:3000")
	require.Contains(t, content(t, filepath.Join(m.StateFolder, "logs", "slipway.log")), `{"audience":"slipway","issuer":"`+panel+`"}`)
	require.Contains(t, serve, "TEMPORAL_ADDRESS="+ports.Address(m.Temporal.Port))
	require.NotContains(t, serve, "TEMPORAL_ADDRESS=elsewhere")
	require.NotContains(t, serve, "SLIPWAY_TOKEN=of an earlier run")

	stop()
	require.NoError(t, <-done)
	require.Equal(t, []string{
		"postgres", "temporal", "panel", "migrate", "temporal-setup", "serve", "show " + address, "submit",
		"serve stopped", "panel stopped", "temporal stopped", "postgres stopped",
	}, m.happened(t))
	require.Empty(t, content(t, filepath.Join(m.StateFolder, "dev.lock")))
}

func TestRunWithKubernetesServesTheLeaseAPI(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "SLIPWAY_LEASE_URL=of an earlier run", "KUBECONFIG=elsewhere")
	free, err := ports.Free(4)
	require.NoError(t, err)
	m.Kube = &up.Kube{
		APIServer: m.Self, Lease: ports.Use{For: "lease API", Port: free[0]}, API: ports.Use{For: "Kubernetes", Port: free[1]},
		Etcd: ports.Use{For: "etcd", Port: free[2]}, EtcdPeer: ports.Use{For: "peers", Port: free[3]},
	}
	stop, done := m.start(t)
	m.printed(t, "Ctrl-C stops everything.")

	folder := filepath.Join(m.StateFolder, "kube")
	lease := fmt.Sprintf("https://localhost:%d/deploy/v1", free[0])
	env := content(t, filepath.Join(m.StateFolder, "dev.env"))
	require.Contains(t, env, "SLIPWAY_LEASE_URL='"+lease+"'\n")
	require.Contains(t, env, "SLIPWAY_LEASE_CA_FILE='"+folder+"/lease-ca.crt'\n")
	require.Contains(t, env, "SLIPWAY_LEASE_TOKEN_FILE='"+folder+"/token'\n")
	require.Contains(t, env, "KUBECONFIG='"+folder+"/kubeconfig'\n")
	require.Contains(t, content(t, m.output), lease+"/groups/orders/leases\n")
	require.Contains(t, content(t, filepath.Join(m.StateFolder, "logs", "kube.log")),
		fmt.Sprintf("--kube-port %d --etcd-port %d --etcd-peer-port %d", free[1], free[2], free[3]))

	serve := strings.Split(content(t, filepath.Join(m.StateFolder, "logs", "slipway.log")), "\n")
	for _, want := range []string{
		"BLOODRAVEN_DEPLOY_API_ENABLED=true", "BLOODRAVEN_ESCROW_TLS_ADDR=" + ports.Address(free[0]),
		"BLOODRAVEN_DEPLOY_API_AUDIENCE=bloodraven-deploy", "SLIPWAY_DEPLOY_TLS_CERT_FILE=" + folder + "/tls.crt",
		"SLIPWAY_DEPLOY_TLS_KEY_FILE=" + folder + "/tls.key", "SLIPWAY_NAMESPACE=slipway",
		"KUBECONFIG=" + folder + "/slipway.kubeconfig",
	} {
		require.Contains(t, serve, want)
	}
	require.NotContains(t, serve, "SLIPWAY_LEASE_URL=of an earlier run")
	require.NotContains(t, serve, "KUBECONFIG=elsewhere")

	stop()
	require.NoError(t, <-done)
	events := m.happened(t)
	require.Equal(t, []string{"postgres", "temporal", "kube", "panel", "migrate"}, events[:5])
	require.Equal(t, []string{"serve stopped", "panel stopped", "kube stopped", "temporal stopped", "postgres stopped"}, events[len(events)-5:])
}

func TestRunWithASecretsServer(t *testing.T) {
	t.Parallel()
	for _, kubernetes := range []bool{false, true} {
		m := newMachine(t, "OPENBAO_ADDR=elsewhere")
		free, err := ports.Free(5)
		require.NoError(t, err)
		m.Bao = &up.Bao{Program: "/usr/bin/bao", Listen: ports.Use{For: "secrets", Port: free[0]}}
		if kubernetes {
			m.Kube = &up.Kube{
				APIServer: m.Self, Lease: ports.Use{For: "lease API", Port: free[1]}, API: ports.Use{For: "Kubernetes", Port: free[2]},
				Etcd: ports.Use{For: "etcd", Port: free[3]}, EtcdPeer: ports.Use{For: "peers", Port: free[4]},
			}
		}
		stop, done := m.start(t)
		m.printed(t, "Ctrl-C stops everything.")

		address, token := "http://"+ports.Address(free[0]), filepath.Join(m.StateFolder, "bao", "token")
		env := content(t, filepath.Join(m.StateFolder, "dev.env"))
		require.Contains(t, env, "OPENBAO_ADDR='"+address+"'\n")
		require.Contains(t, env, "OPENBAO_TOKEN_FILE='"+token+"'\n")
		serve := strings.Split(content(t, filepath.Join(m.StateFolder, "logs", "slipway.log")), "\n")
		require.Contains(t, serve, "OPENBAO_ADDR="+address)
		require.Contains(t, serve, "OPENBAO_TOKEN_FILE="+token)
		require.NotContains(t, serve, "OPENBAO_ADDR=elsewhere")
		require.Contains(t, serve, "SLIPWAY_DEPLOYER_ENV=DEPLOY_PROFILES,DEPLOY_RUNTIME,DEPLOY_OPENBAO_ADDR,DEPLOY_OPENBAO_TOKEN_FILE")
		require.Contains(t, serve, "DEPLOY_OPENBAO_ADDR="+address)
		require.Contains(t, serve, "DEPLOY_OPENBAO_TOKEN_FILE="+filepath.Join(m.StateFolder, "bao", "nodes-token"))
		arguments := content(t, filepath.Join(m.StateFolder, "logs", "bao.log"))
		require.Contains(t, arguments, fmt.Sprintf("--bao-bin /usr/bin/bao --bao-port %d", free[0]))
		require.Equal(t, kubernetes, strings.Contains(arguments, "--kubeconfig "+m.StateFolder+"/kube/kubeconfig"))

		stop()
		require.NoError(t, <-done)
		events := m.happened(t)
		require.Less(t, slices.Index(events, "bao"), slices.Index(events, "migrate"))
		require.Less(t, slices.Index(events, "serve stopped"), slices.Index(events, "bao stopped"))
	}
}

func TestTheExampleHasRandomSecretsWhereThereIsASecretsServer(t *testing.T) {
	t.Parallel()
	for set, submits := range map[string]bool{"": true, `"mail.password"`: false} {
		// It is active, at first from a run without a secrets server.
		m := newMachine(t, "UP_TEST_STATE=active", "UP_TEST_SECRETS="+set)
		free, err := ports.Free(1)
		require.NoError(t, err)
		m.Bao = &up.Bao{Program: "/usr/bin/bao", Listen: ports.Use{For: "secrets", Port: free[0]}}
		require.NoError(t, os.WriteFile(m.Example, []byte(`{"a": {"title": "t", "mail": {"host": "h"}}}`), 0o600))
		require.NoError(t, os.WriteFile(strings.TrimSuffix(m.Example, ".json")+"-secrets.json",
			[]byte(`{"a": {"mail": {"password": "random"}, "key": "random"}}`), 0o600))
		stop, done := m.start(t)
		m.printed(t, "Ctrl-C stops everything.")
		stop()
		require.NoError(t, <-done)
		submitted := content(t, m.events+".submitted")
		if !submits {
			require.NotContains(t, m.happened(t), "submit")
			continue
		}
		var got struct {
			A struct {
				Title, Key string
				Mail       struct{ Host, Password string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(submitted), &got))
		require.Equal(t, "t h", got.A.Title+" "+got.A.Mail.Host)
		require.NotEqual(t, got.A.Key, got.A.Mail.Password)
		for _, value := range []string{got.A.Key, got.A.Mail.Password} {
			require.Greater(t, len(value), 20)
			require.NotContains(t, content(t, m.output), value)
			require.NoError(t, filepath.WalkDir(m.StateFolder, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.Type().IsRegular() {
					require.NotContains(t, content(t, path), value, path)
				}
				return err
			}))
		}
	}
}

func TestRunDoesNotSubmitAnExampleThatIsActive(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "UP_TEST_STATE=active")
	stop, done := m.start(t)
	m.printed(t, "the deployment example is active already")
	m.printed(t, "Ctrl-C stops everything.")
	stop()
	require.NoError(t, <-done)
	require.NotContains(t, m.happened(t), "submit")
}

func TestAFailingExampleLeavesARunInTheForegroundUp(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "UP_TEST_SUBMIT=fails")
	stop, done := m.start(t)
	m.printed(t, "Ctrl-C stops everything.")
	require.Contains(t, content(t, m.output), "the build failed\n\nthe example deployment did not become active: exit status 3\n")
	stop()
	require.NoError(t, <-done)
}

func TestWhateverFailsIsNamedAndTheRestStopped(t *testing.T) {
	t.Parallel()
	for fails, want := range map[string]string{
		"postgres":       "PostgreSQL ended by itself (exit status 5)",
		"temporal":       "Temporal ended by itself (exit status 5)",
		"migrate":        "slipway migrate: exit status 5",
		"temporal-setup": "slipway temporal-setup: exit status 5",
		"serve":          "slipway ended by itself (exit status 5)",
	} {
		t.Run(fails, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "UP_TEST_FAILS="+fails)
			_, done := m.start(t)
			err := <-done
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "    why it failed")
			events := m.happened(t)
			for _, name := range []string{"postgres", "temporal"} {
				require.Equal(t, slices.Contains(events, name), slices.Contains(events, name+" stopped"), events)
			}
		})
	}
}

func TestASecondRunIsRefusedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	stop, done := m.start(t)
	m.printed(t, "Ctrl-C stops everything.")
	before := m.happened(t)

	require.ErrorContains(t, up.Run(context.Background(), nil, m.Options), "already running in "+m.StateFolder)
	other := newMachine(t)
	other.Health = m.Health
	require.ErrorContains(t, up.Run(context.Background(), nil, other.Options), "cannot listen on it")
	require.Equal(t, before, m.happened(t))
	require.Empty(t, content(t, other.events))

	stop()
	require.NoError(t, <-done)
}

func TestResetRemovesTheStateAndNothingElse(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, name := range []string{"slipway/old", "profiles/old", "logs/old.log", "mine"} {
		path := filepath.Join(m.StateFolder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	m.Reset = true
	stop, done := m.start(t)
	m.printed(t, "Ctrl-C stops everything.")
	stop()
	require.NoError(t, <-done)
	require.NoFileExists(t, filepath.Join(m.StateFolder, "slipway/old"))
	require.NoFileExists(t, filepath.Join(m.StateFolder, "profiles/old"))
	require.NoFileExists(t, filepath.Join(m.StateFolder, "logs/old.log"))
	require.FileExists(t, filepath.Join(m.StateFolder, "mine"))
}

func TestWhatIsMissingIsNamedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.Source = filepath.Join(m.Source, "nowhere")
	require.ErrorContains(t, up.Run(context.Background(), nil, m.Options), "the module source: ")
	require.Empty(t, content(t, m.events))
}

func TestASecondSignalKillsWhatDoesNotStop(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "UP_TEST_STUBBORN=1")
	out, err := os.Create(m.output)
	require.NoError(t, err)
	m.Out = out
	ctx, cancel := context.WithCancel(context.Background())
	kill := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- up.Run(ctx, kill, m.Options) }()
	m.printed(t, "Ctrl-C stops everything.")
	began := time.Now()
	cancel()
	close(kill)
	require.NoError(t, <-done)
	require.Less(t, time.Since(began), 15*time.Second)
	require.NoError(t, out.Close())
	require.NotEmpty(t, content(t, filepath.Join(m.StateFolder, "dev.lock")), "the next run must know that this one was not stopped properly")
}

// detach runs up.Detach with this binary as the program.
func (m *machine) detach(t *testing.T) (printed string, err error) {
	t.Helper()
	options, err := json.Marshal(struct {
		up.Options
		Environ, Out, Ready *struct{} `json:",omitempty"`
	}{Options: m.Options})
	require.NoError(t, err)
	for _, variable := range m.Environ {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "UP_TEST_") || name == "GORACE" {
			t.Setenv(name, value)
		}
	}
	var out strings.Builder
	err = up.Detach(context.Background(), m.StateFolder, m.Self, []string{"up", string(options)}, &out)
	return out.String(), err
}

func TestDetachReturnsWhenReadyAndDownStopsIt(t *testing.T) {
	m := newMachine(t)
	printed, err := m.detach(t)
	require.NoError(t, err)
	require.Contains(t, printed, "the deployment example is active")
	require.Contains(t, printed, "curl -H 'Authorization: Bearer ")
	require.Contains(t, printed, "slipway-dev down, or make dev-stop, stops everything.")
	require.NotContains(t, m.happened(t), "serve stopped")

	_, err = m.detach(t)
	require.ErrorContains(t, err, "already running in "+m.StateFolder)

	var out strings.Builder
	require.NoError(t, up.Down(context.Background(), m.StateFolder, &out))
	require.Regexp(t, `slipway-dev \(process \d+\) stopped`, out.String())
	require.Equal(t, []string{"serve stopped", "panel stopped", "temporal stopped", "postgres stopped"}, m.happened(t)[8:])
	require.NoError(t, up.Down(context.Background(), m.StateFolder, &out))
	require.Contains(t, out.String(), "nothing runs in "+m.StateFolder)
}

func TestDetachShowsWhyItFailed(t *testing.T) {
	m := newMachine(t, "UP_TEST_SUBMIT=fails")
	printed, err := m.detach(t)
	require.ErrorContains(t, err, "it did not become ready (see above)")
	require.Contains(t, printed, "the build failed\n")
	require.Contains(t, printed, "the example deployment did not become active: exit status 3\n")
	require.Contains(t, m.happened(t), "postgres stopped")
}
