package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"slipway.dev/slipway/cmd/slipway-dev/ports"
	"slipway.dev/slipway/cmd/slipway-dev/supervise"
)

// Options says what to run.
type Options struct {
	// Folder holds everything of this server; it is made where it is absent.
	Folder string
	// APIServer is the program kube-apiserver (make kube-apiserver builds it).
	APIServer string
	// API, Etcd and EtcdPeer are what they listen on, on ports.Host.
	API, Etcd, EtcdPeer ports.Use
	// ThrowAway is that etcd need not survive a power cut.
	ThrowAway bool
	// Output receives the logs of both.
	Output *os.File
}

// issuer is the iss of ServiceAccount tokens, and their audience where a
// TokenRequest names none.
const issuer = "https://kubernetes.default.svc.cluster.local"

// leaseHost is the name of slipway's TLS listener inside a cluster.
const leaseHost = "bloodraven.bloodraven.svc.cluster.local"

// Limits of the steps.
const (
	startTime = 2 * time.Minute
	// stopTime is how long each of the two has to end by itself.
	stopTime = 8 * time.Second
	// crashTime is how long what an earlier run left may hold its ports.
	crashTime = 5 * time.Second
)

// Server is an API server and its etcd.
type Server struct {
	options Options
	folder  string
	etcdBin string
	admin   string
	unlock  func()

	mu        sync.Mutex
	etcd, api *supervise.Process
}

// Start starts etcd and the API server on a folder and returns when the API
// server is ready. The caller closes the server.
func Start(ctx context.Context, options Options) (*Server, error) {
	s, err := open(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	if err := errors.Join(s.startEtcd(ctx), ctx.Err()); err != nil {
		s.Close()
		return nil, fmt.Errorf("kube: %w", err)
	}
	if err := s.StartAPIServer(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// open locks the folder and makes what the programs need before they start.
func open(ctx context.Context, options Options) (*Server, error) {
	if _, err := os.Stat(options.APIServer); err != nil {
		return nil, fmt.Errorf("kube-apiserver is not built: run `make kube-apiserver` (%w)", err)
	}
	etcd, err := exec.LookPath("etcd")
	if err != nil {
		return nil, fmt.Errorf("etcd is not installed: run `deploy/dev/install.sh kube` (%w)", err)
	}
	folder, err := filepath.Abs(options.Folder)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	unlock, err := supervise.Lock(folder)
	if err != nil {
		return nil, err
	}
	s := &Server{options: options, folder: folder, etcdBin: etcd, unlock: unlock}
	if err := errors.Join(certificateFiles(folder, time.Now()), s.credentials(), s.freePorts(ctx)); err != nil {
		unlock()
		return nil, err
	}
	return s, nil
}

// credentials makes the key that signs tokens and the administrator's token
// where they are absent, and writes the administrator's kubeconfig.
func (s *Server) credentials() error {
	key := s.File("service-account.key")
	if _, err := os.Stat(key); errors.Is(err, fs.ErrNotExist) {
		made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		if err := writeKey(key, made); err != nil {
			return err
		}
	}
	file := s.File("tokens.csv")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		random := make([]byte, 32)
		if _, err := rand.Read(random); err != nil {
			return err
		}
		text = []byte(hex.EncodeToString(random) + `,admin,admin,"system:masters"` + "\n")
		err = write(file, text, 0o600)
	}
	if err != nil {
		return err
	}
	s.admin, _, _ = strings.Cut(string(text), ",")
	return s.writeKubeconfig("kubeconfig", exampleNamespace, clientcmdapi.AuthInfo{Token: s.admin})
}

func (s *Server) freePorts(ctx context.Context) error {
	deadline := time.Now().Add(crashTime)
	for {
		err := ports.Check([]ports.Use{s.options.API, s.options.Etcd, s.options.EtcdPeer})
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// File is the path of a file in the folder (see the package).
func (s *Server) File(name string) string { return filepath.Join(s.folder, name) }

// URL is where the API server is reached.
func (s *Server) URL() string { return "https://" + ports.Address(s.options.API.Port) }

// Admin is the configuration of a client that may do everything.
func (s *Server) Admin() *rest.Config { return s.Config(s.admin) }

// Config is the configuration of a client that shows a bearer token. It has no
// limit of requests.
func (s *Server) Config(token string) *rest.Config {
	return &rest.Config{
		Host: s.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: s.File("ca.crt")}, QPS: -1,
	}
}

func (s *Server) startEtcd(ctx context.Context) error {
	client, peer := "https://"+ports.Address(s.options.Etcd.Port), "https://"+ports.Address(s.options.EtcdPeer.Port)
	args := []string{
		"--name=slipway-dev", "--data-dir=" + s.File("etcd"), "--logger=zap", "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=slipway-dev=" + peer,
		"--client-cert-auth", "--trusted-ca-file=" + s.File("ca.crt"),
		"--cert-file=" + s.File("apiserver.crt"), "--key-file=" + s.File("apiserver.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + s.File("ca.crt"),
		"--peer-cert-file=" + s.File("apiserver.crt"), "--peer-key-file=" + s.File("apiserver.key"),
	}
	if s.options.ThrowAway {
		args = append(args, "--unsafe-no-fsync")
	}
	process, err := s.spawn("etcd", s.etcdBin, args)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.etcd = process
	s.mu.Unlock()
	// The API server waits for more by itself.
	return await(ctx, process, func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", ports.Address(s.options.Etcd.Port))
		if err != nil {
			return err
		}
		return connection.Close()
	})
}

// StartAPIServer starts the API server where it does not run, on the same port
// and data, and returns when it is ready.
func (s *Server) StartAPIServer(ctx context.Context) error {
	s.mu.Lock()
	running := s.api
	s.mu.Unlock()
	if running != nil && !running.Over() {
		return errors.New("kube: the API server runs already")
	}
	process, err := s.spawn("the Kubernetes API server", s.options.APIServer, []string{
		"--bind-address=" + ports.Host, fmt.Sprintf("--secure-port=%d", s.options.API.Port),
		// There is no Service that would send clients to this address.
		"--advertise-address=" + ports.Host, "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + s.File("apiserver.crt"), "--tls-private-key-file=" + s.File("apiserver.key"),
		"--etcd-servers=https://" + ports.Address(s.options.Etcd.Port), "--etcd-cafile=" + s.File("ca.crt"),
		"--etcd-certfile=" + s.File("apiserver.crt"), "--etcd-keyfile=" + s.File("apiserver.key"),
		"--authorization-mode=RBAC", "--anonymous-auth=false", "--token-auth-file=" + s.File("tokens.csv"),
		"--service-account-issuer=" + issuer, "--service-account-key-file=" + s.File("service-account.key"),
		"--service-account-signing-key-file=" + s.File("service-account.key"),
		// Nobody makes the default ServiceAccounts that it asks for.
		"--disable-admission-plugins=ServiceAccount",
		"--service-cluster-ip-range=10.0.0.0/24", "--profiling=false",
	})
	if err != nil {
		return fmt.Errorf("kube: %w", err)
	}
	s.mu.Lock()
	s.api = process
	s.mu.Unlock()
	client, err := kubernetes.NewForConfig(s.Admin())
	if err != nil {
		return fmt.Errorf("kube: %w", err)
	}
	err = await(ctx, process, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return fmt.Errorf("kube: %w", err)
	}
	return nil
}

func (s *Server) spawn(name, path string, args []string) (*supervise.Process, error) {
	return supervise.Start(supervise.Spec{
		Name: name, Path: path, Args: args, Dir: s.folder, Output: s.options.Output,
		Env: []string{"PATH=/usr/bin:/bin", "HOME=" + s.folder, "TZ=UTC"},
	})
}

// await tries usable until it succeeds or the process ends.
func await(ctx context.Context, process *supervise.Process, usable func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("%s is not ready after %s", process.Name, startTime))
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, 5*time.Second)
		err := usable(try)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-process.Done():
			return fmt.Errorf("%s did not start: %w\n%s", process.Name, process.Ended(), process.Tail(20))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// KillAPIServer kills the API server, as `kill -9` does, and returns when it is
// gone. etcd stays.
func (s *Server) KillAPIServer() {
	if process := s.apiServer(); process != nil {
		process.Kill()
		<-process.Done()
	}
}

// StopAPIServer asks the API server to end and returns when it is gone. etcd
// stays.
func (s *Server) StopAPIServer() {
	if process := s.apiServer(); process != nil {
		process.Stop(stopTime)
	}
}

func (s *Server) apiServer() *supervise.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.api
}

// Processes are the process IDs of etcd and of the API server that was started
// last.
func (s *Server) Processes() (etcd, api int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.etcd.PID, s.api.PID
}

// Close stops both and unlocks the folder. The data stays.
func (s *Server) Close() {
	s.StopAPIServer()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.etcd != nil {
		s.etcd.Stop(stopTime)
	}
	s.unlock()
}

// wait returns nil when ctx is done, and an error when one of the two ends
// before.
func (s *Server) wait(ctx context.Context) error {
	s.mu.Lock()
	etcd, api := s.etcd, s.api
	s.mu.Unlock()
	process := etcd
	select {
	case <-ctx.Done():
		return nil
	case <-etcd.Done():
	case <-api.Done():
		process = api
	}
	return fmt.Errorf("%s ended by itself: %w", process.Name, process.Ended())
}
