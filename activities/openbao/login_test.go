package openbao_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openbao/openbao/api/v2"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/activities/openbao"
	"slipway.dev/slipway/cmd/slipway-dev/bao"
	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/tests/kubestand"
	"slipway.dev/slipway/tests/kvstand"
)

// run runs the client's Run until the test ends, and returns the problems that
// it has told of.
func run(t *testing.T, o openbao.Options) (c *openbao.Client, problems func() []error) {
	t.Helper()
	var mu sync.Mutex
	var told []error
	o.Problem = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, err)
	}
	c, err := openbao.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return c, func() []error {
		mu.Lock()
		defer mu.Unlock()
		return told
	}
}

// since waits until the proxy has seen a request.
func since(t *testing.T, p *kvstand.Proxy, request string) {
	t.Helper()
	var seen []string
	require.Eventually(t, func() bool {
		seen = append(seen, p.Seen()...)
		for _, s := range seen {
			if strings.HasPrefix(s, request) {
				return true
			}
		}
		return false
	}, 30*time.Second, 20*time.Millisecond, "%s was not seen in %v", request, &seen)
}

func TestATokenIsRenewedBeforeItExpires(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	_, file := m.Token(t, 6*time.Second)
	proxy := secrets.Proxy(t, false)
	c, problems := run(t, openbao.Options{Address: proxy.URL, Mount: m.Path, TokenFile: file})
	began := time.Now()
	for time.Since(began) < 7*time.Second {
		since(t, proxy, "POST auth/token/renew-self")
	}
	require.NoError(t, c.Write(t.Context(), forum, "key", canary), "it has outlived its first time")
	require.Empty(t, problems())
}

func TestAnotherTokenInTheFileIsTaken(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	old, file := m.Token(t)
	c := client(t, m, func(o *openbao.Options) { o.TokenFile = file })
	require.NoError(t, c.Write(ctx, forum, "key", canary))

	secrets.Revoke(t, old)
	err := c.Write(ctx, forum, "key", canary)
	requireReason(t, err, openbao.ReasonLogin, file)
	require.NotContains(t, err.Error(), old)

	next, other := m.Token(t)
	require.NoError(t, os.Rename(other, file))
	require.NoError(t, c.Write(ctx, forum, "key", canary))

	// Replaced while the one before is still good.
	_, other = m.Token(t)
	require.NoError(t, os.Rename(other, file))
	require.NoError(t, c.Write(ctx, forum, "key", canary))
	secrets.Revoke(t, next)
	require.NoError(t, c.Write(ctx, forum, "key", canary))
}

func TestTokenFilesThatAreNone(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	for name, file := range map[string]string{
		"absent":    filepath.Join(t.TempDir(), "nowhere"),
		"empty":     kvstand.File(t, ""),
		"two words": kvstand.File(t, canary+" "+canary),
		"no token":  kvstand.File(t, canary),
	} {
		err := client(t, m, func(o *openbao.Options) { o.TokenFile = file }).Write(t.Context(), forum, "key", canary)
		require.Error(t, err, name)
		requireReason(t, err, openbao.ReasonLogin, file)
	}
}

func TestATokenThatCannotBeRenewedIsToldOf(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	renewable := false
	made, err := secrets.Root().Auth().Token().CreateOrphanWithContext(t.Context(),
		&api.TokenCreateRequest{Policies: []string{m.Policy}, NoDefaultPolicy: true, TTL: "3s", Renewable: &renewable})
	require.NoError(t, err)
	file := kvstand.File(t, made.Auth.ClientToken)
	_, problems := run(t, openbao.Options{Address: secrets.URL(), Mount: m.Path, TokenFile: file})
	for _, says := range []string{"is not renewable and ends at", "it has expired"} {
		require.Eventually(t, func() bool {
			told := problems()
			return len(told) > 0 && strings.Contains(told[len(told)-1].Error(), says)
		}, 30*time.Second, 10*time.Millisecond, says)
	}
	for _, err := range problems() {
		requireReason(t, err, openbao.ReasonLogin, file)
		require.NotContains(t, err.Error(), made.Auth.ClientToken)
	}
}

func TestATokenIsKeptWhereAnotherCannotBeHad(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	role, secret := m.AppRole(t, 3*time.Second, time.Hour)
	proxy := secrets.Proxy(t, false)
	c, problems := run(t, openbao.Options{Address: proxy.URL, Mount: m.Path, AppRole: &openbao.AppRole{RoleIDFile: role, SecretIDFile: secret}})
	require.NoError(t, c.Write(t.Context(), forum, "key", canary))
	proxy.Set(kvstand.Answer("auth/", http.StatusInternalServerError, "out of order"))
	require.Eventually(t, func() bool { return len(problems()) > 0 }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, c.Write(t.Context(), forum, "key", canary), "a third of its time is left")
	requireReason(t, problems()[0], openbao.ReasonServer, "log in by approle")
	proxy.Set(nil)
	since(t, proxy, "POST auth/")
	require.NoError(t, c.Write(t.Context(), forum, "key", canary))
}

func TestAppRole(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	proxy := secrets.Proxy(t, false)
	o := openbao.Options{Address: proxy.URL, Mount: m.Path, AppRole: &openbao.AppRole{}}
	o.AppRole.RoleIDFile, o.AppRole.SecretIDFile = m.AppRole(t, 2*time.Second, 5*time.Second)
	c, problems := run(t, o)
	require.NoError(t, c.Write(ctx, forum, "key", canary))
	since(t, proxy, "POST auth/token/renew-self")
	// At the end of what a renewal may give there is another login.
	since(t, proxy, "POST auth/approle/login")
	require.NoError(t, c.Write(ctx, forum, "key", canary))
	require.Empty(t, problems())
}

func TestAnExpiredTokenOfAClientThatNobodyTends(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	role, secret := m.AppRole(t, time.Second, time.Second)
	c := client(t, m, func(o *openbao.Options) {
		o.AppRole = &openbao.AppRole{RoleIDFile: role, SecretIDFile: secret}
	})
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); {
		require.NoError(t, c.Write(ctx, forum, "key", canary))
	}
}

func TestARevokedTokenInTheMiddle(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	proxy := secrets.Proxy(t, false)
	role, secret := m.AppRole(t, time.Hour, time.Hour)
	c := client(t, m, through(proxy), func(o *openbao.Options) {
		o.AppRole = &openbao.AppRole{RoleIDFile: role, SecretIDFile: secret}
	})
	require.NoError(t, c.Write(ctx, forum, "key", canary))
	for range 2 {
		var once sync.Once
		proxy.Set(func(_ http.ResponseWriter, r *http.Request) bool {
			if token := r.Header.Get("X-Vault-Token"); token != "" && r.Method != http.MethodGet {
				once.Do(func() { secrets.Revoke(t, token) })
			}
			return false
		})
		proxy.Seen()
		require.NoError(t, c.Write(ctx, forum, "key", canary), "it logs in and asks again")
		require.Contains(t, proxy.Seen(), "POST auth/approle/login")
	}

	// A policy that forbids is no reason to log in.
	require.NoError(t, secrets.Root().Sys().PutPolicyWithContext(ctx, m.Policy, `path "auth/token/lookup-self" { capabilities = ["read"] }`))
	proxy.Seen()
	for range 3 {
		requireReason(t, c.Write(ctx, forum, "key", canary), openbao.ReasonForbidden, "policy")
	}
	require.NotContains(t, proxy.Seen(), "POST auth/approle/login")
}

func TestALoginThatIsRefused(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	role, secret := m.AppRole(t, time.Hour, time.Hour)
	for name, login := range map[string]openbao.AppRole{
		"wrong secret":  {RoleIDFile: role, SecretIDFile: kvstand.File(t, canary)},
		"wrong role":    {RoleIDFile: kvstand.File(t, canary), SecretIDFile: secret},
		"no such mount": {Mount: "nowhere", RoleIDFile: role, SecretIDFile: secret},
		"no file":       {RoleIDFile: role, SecretIDFile: "/nowhere/at/all"},
	} {
		c := client(t, m, func(o *openbao.Options) { o.AppRole = &login })
		for _, do := range operations(t.Context(), c) {
			err := do()
			require.Error(t, err, name)
			requireReason(t, err, openbao.ReasonLogin, "log in by")
			require.NotContains(t, err.Error(), readFile(t, role))
			require.NotContains(t, err.Error(), readFile(t, secret))
		}
	}
}

// TestManyWaitForOneLogin is that those who wait for an OpenBao that gives no
// answer do not wait for each other.
func TestManyWaitForOneLogin(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	proxy := secrets.Proxy(t, false)
	proxy.Set(kvstand.Silence(""))
	c := client(t, m, through(proxy), func(o *openbao.Options) { o.Timeout = time.Second })
	began := time.Now()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := c.Write(t.Context(), forum, "key", canary); err == nil {
				t.Error("it was written")
			}
		})
	}
	all.Wait()
	require.Less(t, time.Since(began), 10*time.Second)
	require.Less(t, len(proxy.Seen()), 5)
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	kubernetes, err := kubestand.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kubernetes.Close()) })
	own, err := kvstand.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	ctx := t.Context()
	ca, err := os.ReadFile(kubernetes.Kube.File("ca.crt"))
	require.NoError(t, err)
	require.NoError(t, own.Bao.Setup(ctx, &bao.Kubernetes{URL: kubernetes.Kube.URL(), CA: ca}))

	jwt := func(namespace, name string) string {
		return kubernetes.ServiceAccountToken(t, namespace, name)
	}
	file := kvstand.File(t, jwt(kube.Namespace, kube.ServiceAccount))
	proxy := own.Proxy(t, false)
	c, err := openbao.New(openbao.Options{Address: proxy.URL, Kubernetes: &openbao.Kubernetes{Role: bao.Name, TokenFile: file}})
	require.NoError(t, err)
	require.NoError(t, c.Write(ctx, forum, "key", canary))

	// The kubelet has rotated the pod's token by the next login.
	require.NoError(t, os.WriteFile(file, []byte(jwt(kube.Namespace, kube.ServiceAccount)), 0o600))
	var once sync.Once
	proxy.Set(func(_ http.ResponseWriter, r *http.Request) bool {
		if token := r.Header.Get("X-Vault-Token"); token != "" {
			once.Do(func() { own.Revoke(t, token) })
		}
		return false
	})
	require.NoError(t, c.Write(ctx, forum, "key", canary))
	require.Contains(t, proxy.Seen(), "POST auth/kubernetes/login")

	namespace := kubernetes.Namespace(t)
	kubernetes.ServiceAccount(t, namespace, "slipway")
	stranger, err := openbao.New(openbao.Options{Address: own.URL(),
		Kubernetes: &openbao.Kubernetes{Role: bao.Name, TokenFile: kvstand.File(t, jwt(namespace, "slipway"))}})
	require.NoError(t, err)
	requireReason(t, stranger.Write(ctx, forum, "key", canary), openbao.ReasonLogin, "refuses the login")
}
