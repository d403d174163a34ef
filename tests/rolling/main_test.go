package rolling

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/tests/kubestand"
	"slipway.dev/slipway/tests/stand"
)

const (
	// removal is how long a pod is an endpoint after its SIGTERM, and drain how
	// long slipway goes on then, as it does by default: clients of leases try
	// again 2 s after its answer that it let go, and find the next leader or still
	// this one.
	removal = time.Second
	drain   = 5 * time.Second
	// shutdown is SLIPWAY_SHUTDOWN_TIMEOUT.
	shutdown = 30 * time.Second
	// propagation is from a change of an endpoint to when connections follow it.
	propagation = 200 * time.Millisecond
	// probes is how often readiness and labels are looked at.
	probes = 100 * time.Millisecond
)

// pods are those that the replicas of the API believe to be.
var pods = map[string]string{stand.API: "slipway-0", stand.OtherAPI: "slipway-1"}

var all *world

// world is a slipway behind Services.
type world struct {
	*stand.Stand
	kube  *kubestand.Stand
	admin *kubernetes.Clientset
	// deployments leads to replicas of the API that are ready, and leases to the
	// one with the leader's label.
	deployments, leases *balancer
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	all = &world{}
	defer func() {
		if err := all.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if err := all.start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code = m.Run(); code != 0 {
		fmt.Fprintln(os.Stderr, all.Logs())
	}
	return code
}

func (w *world) start(ctx context.Context) (err error) {
	if w.kube, err = kubestand.New(); err != nil {
		return err
	}
	if w.admin, err = kubernetes.NewForConfig(w.kube.Admin()); err != nil {
		return err
	}
	for _, name := range pods {
		_, err := w.admin.CoreV1().Pods(kube.Namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "slipway", Image: "slipway"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	w.Stand, err = stand.New(stand.Options{Kube: w.kube, Pods: pods, Env: []string{
		"SLIPWAY_DRAIN_TIMEOUT=" + drain.String(), "SLIPWAY_SHUTDOWN_TIMEOUT=" + shutdown.String(),
		"SLIPWAY_NIX_SLOTS=4",
	}})
	if err != nil {
		return err
	}
	if w.deployments, err = newBalancer(); err != nil {
		return err
	}
	if w.leases, err = newBalancer(); err != nil {
		return err
	}
	w.deployments.add(w.Address(stand.API))
	return nil
}

func (w *world) close() error {
	var errs []error
	for _, b := range []*balancer{w.deployments, w.leases} {
		if b != nil {
			errs = append(errs, b.listener.Close())
		}
	}
	if w.Stand != nil {
		errs = append(errs, w.Stand.Close())
	}
	if w.kube != nil {
		errs = append(errs, w.kube.Close())
	}
	return errors.Join(errs...)
}

// followLeader keeps the endpoints of leases those of the pods with the leader's
// label, ready or not, until ctx ends.
func (w *world) followLeader(ctx context.Context) {
	for ctx.Err() == nil {
		found, err := w.admin.CoreV1().Pods(kube.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "slipway/leader=true"})
		pause(ctx, propagation)
		if err == nil {
			var addresses []string
			for piece, name := range pods {
				for _, pod := range found.Items {
					if pod.Name == name {
						addresses = append(addresses, w.LeaseAddress(piece))
					}
				}
			}
			w.leases.set(addresses)
		}
		pause(ctx, probes)
	}
}

// ready waits until a pod is ready, as the kubelet finds it.
func (w *world) ready(ctx context.Context, piece string) error {
	deadline := time.Now().Add(time.Minute)
	for {
		status, err := w.probe(ctx, piece)
		if status == http.StatusOK {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%s is not ready: %d, %w", piece, status, err)
		}
		pause(ctx, probes)
	}
}

func (w *world) probe(ctx context.Context, piece string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Readyz(piece), nil)
	if err != nil {
		return 0, err
	}
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
