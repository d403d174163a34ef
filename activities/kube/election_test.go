package kube

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The Service leads to the pod with the label, so a leader that resigns keeps it
// until another one leads.
func TestResigningLeaderKeepsItsLabel(t *testing.T) {
	s := newScene(t)
	labelled := func(pod string) bool {
		p, err := s.admin.core.Pods(s.namespace).Get(t.Context(), pod, metav1.GetOptions{})
		require.NoError(t, err)
		return p.Labels["slipway/leader"] == "true"
	}
	becomes := func(what func() bool) {
		t.Helper()
		require.Eventually(t, what, 30*time.Second, 20*time.Millisecond)
	}
	takesPart := func(pod string) (e *Election, resign chan struct{}, stop func()) {
		_, err := s.admin.core.Pods(s.namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: pod},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "api", Image: "slipway"}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		resign = make(chan struct{})
		e = &Election{Cluster: s.admin, Namespace: s.namespace, Identity: pod, Pod: pod, Resign: resign, Log: zaptest.NewLogger(t)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
		}()
		return e, resign, func() {
			cancel()
			require.NoError(t, <-ended)
		}
	}

	first, resign, stopFirst := takesPart("first")
	becomes(func() bool { return first.Leading() && labelled("first") })
	close(resign)
	becomes(func() bool { return !first.Leading() })
	require.Never(t, func() bool { return !labelled("first") }, 2*electionRetry, electionRetry/2, "nobody else leads yet")

	second, _, stopSecond := takesPart("second")
	becomes(func() bool { return second.Leading() && labelled("second") })
	becomes(func() bool { return !labelled("first") })
	stopSecond()
	require.False(t, labelled("second"))
	stopFirst()
}
