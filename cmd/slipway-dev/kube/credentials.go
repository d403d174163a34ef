package kube

import (
	"context"
	"fmt"
	"time"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Audience is that of tokens for the lease API: seed A's default.
const Audience = "bloodraven-deploy"

// tokenFile is a file that holds a token of a ServiceAccount.
type tokenFile struct {
	name                      string
	namespace, serviceAccount string
	// audiences of the token; none is the API server itself.
	audiences []string
	// lasts is how long a token is valid, renew when it is replaced.
	lasts, renew time.Duration
}

// ownToken is that of slipway.
func ownToken() tokenFile {
	return tokenFile{name: "slipway.token", namespace: Namespace, serviceAccount: ServiceAccount, lasts: 24 * time.Hour, renew: time.Hour}
}

// exampleToken is that of the example's client.
func exampleToken() tokenFile {
	return tokenFile{
		name: "token", namespace: exampleClient.Namespace, serviceAccount: exampleClient.ServiceAccount,
		audiences: []string{Audience}, lasts: time.Hour, renew: 20 * time.Minute,
	}
}

// retryTime is how long after a failure a token is asked for again.
const retryTime = 5 * time.Second

// Token asks the API server for a token of a ServiceAccount (TokenRequest).
// Without audiences it is for the API server itself. The least that lasts may
// be is 10 minutes.
func (s *Server) Token(ctx context.Context, namespace, serviceAccount string, lasts time.Duration, audiences ...string) (string, error) {
	client, err := kubernetes.NewForConfig(s.Admin())
	if err != nil {
		return "", fmt.Errorf("kube: %w", err)
	}
	seconds := int64(lasts / time.Second)
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, &authentication.TokenRequest{
		Spec: authentication.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("kube: token of %s/%s: %w", namespace, serviceAccount, err)
	}
	return answer.Status.Token, nil
}

// WriteKubeconfig writes slipway.kubeconfig, and slipway.token for it, and
// returns the path. Setup comes before. The token is valid for 24 hours.
func (s *Server) WriteKubeconfig(ctx context.Context) (path string, err error) {
	if err := s.writeToken(ctx, ownToken()); err != nil {
		return "", err
	}
	const name = "slipway.kubeconfig"
	if err := s.writeKubeconfig(name, Namespace, clientcmdapi.AuthInfo{TokenFile: s.File(ownToken().name)}); err != nil {
		return "", fmt.Errorf("kube: %w", err)
	}
	return s.File(name), nil
}

func (s *Server) writeToken(ctx context.Context, f tokenFile) error {
	token, err := s.Token(ctx, f.namespace, f.serviceAccount, f.lasts, f.audiences...)
	if err != nil {
		return err
	}
	return write(s.File(f.name), []byte(token), 0o600)
}

// keepFresh replaces the token of a file until ctx is done.
func (s *Server) keepFresh(ctx context.Context, f tokenFile) {
	wait := f.renew
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = f.renew
		if err := s.writeToken(ctx, f); err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintf(s.options.Output, "%v; tried again in %s\n", err, retryTime)
			wait = retryTime
		}
	}
}

// writeKubeconfig writes a kubeconfig with one user.
func (s *Server) writeKubeconfig(name, namespace string, user clientcmdapi.AuthInfo) error {
	const here = "slipway-dev"
	config := clientcmdapi.NewConfig()
	config.Clusters[here] = &clientcmdapi.Cluster{Server: s.URL(), CertificateAuthority: s.File("ca.crt")}
	config.AuthInfos[here] = &user
	config.Contexts[here] = &clientcmdapi.Context{Cluster: here, AuthInfo: here, Namespace: namespace}
	config.CurrentContext = here
	text, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return write(s.File(name), text, 0o600)
}
