package chart

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// client is a pod that tries to connect.
type client struct {
	pod, namespace labels.Set
}

var (
	job     = labels.Set{"bloodraven.shipstream.io/deploy-client": "true"}
	trusted = labels.Set{"shipstream.io/mysql-client": "true", "kubernetes.io/metadata.name": "application"}
	sidecar = labels.Set{"app.kubernetes.io/name": "mysql", "app.kubernetes.io/managed-by": "bloodraven"}
	other   = labels.Set{"kubernetes.io/metadata.name": "elsewhere"}
)

// admits reports whether a policy lets a client from another namespace reach a
// port of the pods that it selects, as the API's documentation of
// NetworkPolicyIngressRule has it.
func admits(t *testing.T, policy *networkingv1.NetworkPolicy, c client, port int) bool {
	t.Helper()
	matches := func(s *metav1.LabelSelector, set labels.Set) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		return selector.Matches(set)
	}
	for _, rule := range policy.Spec.Ingress {
		open := len(rule.Ports) == 0
		for _, p := range rule.Ports {
			open = open || p.Port.IntValue() == port
		}
		from := len(rule.From) == 0
		for _, peer := range rule.From {
			// Without a namespaceSelector a peer is of the policy's own namespace.
			from = from || peer.NamespaceSelector != nil && matches(peer.NamespaceSelector, c.namespace) &&
				(peer.PodSelector == nil || matches(peer.PodSelector, c.pod))
		}
		if open && from {
			return true
		}
	}
	return false
}

func TestWhomThePolicyAdmits(t *testing.T) {
	t.Parallel()
	escrow := client{labels.Set{"app.kubernetes.io/name": "escrow-client"}, labels.Set{"kubernetes.io/metadata.name": "database-system"}}
	const additional = `
auxiliary:
  deployAPI:
    networkPolicy:
      additionalIngress:
        - from:
            - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: database-system}}
              podSelector: {matchLabels: {app.kubernetes.io/name: escrow-client}}
          ports: [{protocol: TCP, port: 9443}]
`
	for name, test := range map[string]struct {
		values         []string
		tls, elsewhere int
		escrow         bool
	}{
		"by default":    {tls: 8443, elsewhere: 9443},
		"another port":  {values: []string{"auxiliary: {escrowTLS: {port: 9443}}"}, tls: 9443, elsewhere: 8443},
		"one rule more": {values: []string{"auxiliary: {escrowTLS: {port: 9443}}", additional}, tls: 9443, elsewhere: 8443, escrow: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := render(t, "slipway", append([]string{least, coordinated}, test.values...)...)
			policy := find[networkingv1.NetworkPolicy](t, r, "NetworkPolicy", "slipway-deploy-api")
			require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes, "no egress policy")

			selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
			require.NoError(t, err)
			for name, selected := range map[string]bool{"slipway-api": true, "slipway-worker": false} {
				pod := find[appsv1.Deployment](t, r, "Deployment", name).Spec.Template
				require.Equal(t, selected, selector.Matches(labels.Set(pod.Labels)), name)
			}

			for what, c := range map[string]struct {
				client
				may bool
			}{
				"a deploy job":                        {client{job, trusted}, true},
				"a job in any other namespace":        {client{job, other}, false},
				"another pod in a client's namespace": {client{labels.Set{"app": "web"}, trusted}, false},
				"a job whose label says no":           {client{labels.Set{"bloodraven.shipstream.io/deploy-client": "false"}, trusted}, false},
				"a pod with no label at all":          {client{nil, other}, false},
				"both labels on the pod":              {client{labels.Merge(job, trusted), other}, false},
				"a sidecar, wherever":                 {client{sidecar, other}, true},
				"a MySQL that the operator has not":   {client{labels.Set{"app.kubernetes.io/name": "mysql"}, other}, false},
				"anything else that the operator has": {client{labels.Set{"app.kubernetes.io/managed-by": "bloodraven"}, other}, false},
				"a custom escrow client":              {escrow, test.escrow},
				"its like in another namespace":       {client{escrow.pod, other}, false},
			} {
				require.Equal(t, c.may, admits(t, policy, c.client, test.tls), what)
				require.False(t, admits(t, policy, c.client, test.elsewhere), what)
				for _, port := range []int{8080, 8081, 8082} {
					require.True(t, admits(t, policy, c.client, port), "%s on %d, which the policy leaves open", what, port)
				}
			}
		})
	}
}
