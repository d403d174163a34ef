// Package kubestand gives tests a real Kubernetes API server with RBAC, the
// CRDs, and slipway's ServiceAccount with the rights that it has in production.
// The tests of a package share one, each in a namespace of its own:
//
//	var kubernetes *kubestand.Stand
//
//	func TestMain(m *testing.M) { kubestand.Main(m, &kubernetes) }
//
// Its data is in memory where there is a tmpfs. The program kube-apiserver is
// built by `make kube-apiserver`; a test does not run without it, it fails.
package kubestand

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/cmd/slipway-dev/ports"
)

// limit is how long a helper may take.
const limit = time.Minute

// Stand is a running API server. It may be used by parallel tests.
type Stand struct {
	// Kube is the server and its files.
	Kube *kube.Server
	// Kubeconfig is the file for programs that run as slipway.
	Kubeconfig string

	folder string
	log    *os.File
	token  string
	client dynamic.Interface
}

// Main runs a stand around the tests of a package, and ends the program.
func Main(m *testing.M, into **Stand) {
	os.Exit(run(m, into))
}

func run(m *testing.M, into **Stand) (code int) {
	s, err := New()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubestand:", err)
		return 1
	}
	defer func() {
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "kubestand:", err)
			code = 1
		}
	}()
	*into = s
	return m.Run()
}

// New starts a stand. Close it. It ends with the process at the latest.
func New() (*Stand, error) {
	folder, err := os.MkdirTemp(memory(), "slipway-kubestand-")
	if err != nil {
		return nil, err
	}
	s := &Stand{folder: folder}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// memory is a folder in memory, or "" where there is none.
func memory() string {
	const tmpfs = "/dev/shm"
	if probe, err := os.MkdirTemp(tmpfs, "slipway-kubestand-"); err != nil || os.Remove(probe) != nil {
		return ""
	}
	return tmpfs
}

func (s *Stand) start() error {
	_, file, _, _ := runtime.Caller(0)
	program := filepath.Join(filepath.Dir(file), "..", "..", "bin", "kube-apiserver")
	free, err := ports.Free(3)
	if err != nil {
		return err
	}
	if s.log, err = os.Create(filepath.Join(s.folder, "log")); err != nil {
		return err
	}
	ctx := context.Background()
	s.Kube, err = kube.Start(ctx, kube.Options{
		Folder: filepath.Join(s.folder, "kube"), APIServer: program, ThrowAway: true, Output: s.log,
		API:  ports.Use{For: "Kubernetes API server of the tests", Port: free[0]},
		Etcd: ports.Use{For: "etcd of the tests", Port: free[1]}, EtcdPeer: ports.Use{For: "etcd of the tests", Port: free[2]},
	})
	if err != nil {
		return err
	}
	if err := s.Kube.Setup(ctx); err != nil {
		return err
	}
	if s.Kubeconfig, err = s.Kube.WriteKubeconfig(ctx); err != nil {
		return err
	}
	if s.token, err = s.Kube.Token(ctx, kube.Namespace, kube.ServiceAccount, 24*time.Hour); err != nil {
		return err
	}
	s.client, err = dynamic.NewForConfig(s.Kube.Admin())
	return err
}

// Close ends the stand and removes its data.
func (s *Stand) Close() error {
	if s.Kube != nil {
		s.Kube.Close()
	}
	var err error
	if s.log != nil {
		err = s.log.Close()
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}

// Admin is the configuration of a client that may do everything.
func (s *Stand) Admin() *rest.Config { return s.Kube.Admin() }

// Slipway is the configuration of a client with the rights of slipway.
func (s *Stand) Slipway() *rest.Config { return s.Kube.Config(s.token) }

// Namespace makes a namespace that no other test has. It stays until the stand
// ends: nothing would empty it.
func (s *Stand) Namespace(t testing.TB) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text()[:12])
	s.create(t, kube.NewNamespace(name))
	return name
}

// Group makes a group that is stable (kube.NewGroup), but for what change
// changes before.
func (s *Stand) Group(t testing.TB, namespace, name string, change ...func(group *unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	group := kube.NewGroup(namespace, name)
	for _, f := range change {
		f(group)
	}
	return s.create(t, group)
}

// ChangeGroup changes a group and its status, whoever else changes it
// meanwhile, and returns it as it is then. change may be called more than once.
func (s *Stand) ChangeGroup(t testing.TB, namespace, name string, change func(group *unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	groups := s.client.Resource(schema.GroupVersionResource{Group: "shipstream.io", Version: "v1alpha1", Resource: "mysqlfailovergroups"}).Namespace(namespace)
	var changed *unstructured.Unstructured
	err := retry.RetryOnConflict(wait.Backoff{Steps: 50, Duration: 5 * time.Millisecond, Factor: 1.2, Jitter: 0.5, Cap: 200 * time.Millisecond}, func() error {
		group, err := groups.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(group)
		status := group.Object["status"]
		if group, err = groups.Update(ctx, group, metav1.UpdateOptions{}); err != nil {
			return err
		}
		group.Object["status"] = status
		changed, err = groups.UpdateStatus(ctx, group, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// Database makes a database of a group in its namespace.
func (s *Stand) Database(t testing.TB, namespace, name, group string, clients ...kube.Client) *unstructured.Unstructured {
	t.Helper()
	return s.create(t, kube.NewDatabase(namespace, name, group, clients...))
}

// ServiceAccount makes a ServiceAccount.
func (s *Stand) ServiceAccount(t testing.TB, namespace, name string) kube.Client {
	t.Helper()
	s.create(t, kube.NewServiceAccount(namespace, name))
	return kube.Client{Namespace: namespace, ServiceAccount: name}
}

// ServiceAccountToken is a token, for an hour, of a ServiceAccount. Without
// audiences it is for the API server itself.
func (s *Stand) ServiceAccountToken(t testing.TB, namespace, name string, audiences ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	token, err := s.Kube.Token(ctx, namespace, name, time.Hour, audiences...)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (s *Stand) create(t testing.TB, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	made, err := kube.Create(ctx, s.client, object)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Kill kills the API server as `kill -9` does; etcd and the data stay.
func (s *Stand) Kill() { s.Kube.KillAPIServer() }

// Stop asks the API server to end and returns when it is gone.
func (s *Stand) Stop() { s.Kube.StopAPIServer() }

// Start starts an API server that was killed or stopped, on the same port, and
// returns when it is ready.
func (s *Stand) Start(t testing.TB) {
	t.Helper()
	if err := s.Kube.StartAPIServer(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// Logs is the end of the log of both servers, for a test that failed.
func (s *Stand) Logs() string {
	text, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "")
}
