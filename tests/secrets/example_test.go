package secrets

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway-dev/bao"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/kvstand"
	"slipway.dev/slipway/tests/stand"
)

// example is a slipway of its own with a copy of the example source, whose nodes
// read their secrets. All of it reaches OpenBao by TLS and in a namespace; the
// API logs in by AppRole and the worker by Kubernetes auth, for seconds.
type example struct {
	*site
	proxy *kvstand.Proxy
	// source is the copy, schema the text of its schema.
	source, schema string
	// runtime has what the nodes read, with the token in a file.
	runtime, tokenFile string

	mu sync.Mutex
	// outside are requests without the namespace.
	outside []string
	// revokes is that the tokens of the next wrap and the next write are revoked
	// before these arrive.
	revokes map[string]bool
}

const (
	// team is the namespace. The proxy takes it away, since the server that
	// OpenBao forked from has none.
	team = "team"
	// at is the deployment, with one node, nodePassword what another secret of
	// its forum is called.
	at, nodePassword = "example", "smtp.password"
)

func (s *site) exampleSource(t, whole *testing.T) {
	e := s.newExample(t, whole)
	e.untrusted(t)
	e.movesWhatBecomesASecret(t)
	e.readsAnew(t)
	e.failsWithoutAValue(t)
	e.clearsAndForgets(t)
	e.leavesTheSchema(t)

	a := e.destroy(t, at)
	e.hauledOut(t, at, a.Build)
	require.NoDirExists(t, filepath.Join(e.runtime, at))
	require.Nil(t, e.value(t, at, nodePassword))
	e.logsIn(t)
	require.Empty(t, e.outside)
	s.take(e.site)
}

// take adds what is to be searched for.
func (s *site) take(other *site) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, other.values...)
	s.tokens = append(s.tokens, other.tokens...)
	s.answers.Write(other.answers.Bytes())
}

func (s *site) newExample(t, whole *testing.T) *example {
	e := &example{site: &site{mount: server.Mount(t)}, proxy: server.Proxy(t, true), runtime: t.TempDir(), source: filepath.Join(t.TempDir(), "source")}
	require.NoError(t, os.CopyFS(e.source, os.DirFS(filepath.Join(stand.Root(), "deploy", "source"))))
	schema, err := os.ReadFile(filepath.Join(e.source, "schema.nix"))
	require.NoError(t, err)
	e.schema = string(schema)
	e.setSchema(t, strings.Replace(e.schema, key+" = secret // {", key+` = { type = "string"; } // {`, 1))
	e.faults = newFaults(e.proxy)
	e.faults.setAll(e.fault(t))

	role, secret := e.mount.AppRole(t, 3*time.Second, 10*time.Second)
	var token string
	token, e.tokenFile = e.mount.NodesToken(t)
	e.tokens = []string{token}
	e.start(t, whole, stand.Options{
		Source: e.source,
		Env: []string{
			"OPENBAO_ADDR=" + e.proxy.URL, "SLIPWAY_OPENBAO_CA_FILE=" + e.proxy.CAFile,
			"SLIPWAY_OPENBAO_MOUNT=" + e.mount.Path, "SLIPWAY_OPENBAO_NAMESPACE=" + team,
			"SLIPWAY_NIX_SLOTS=100", "SLIPWAY_DEPLOYER_GRACE=1s", "SLIPWAY_LOG_LEVEL=debug",
			"SLIPWAY_DEPLOYER_ENV=DEPLOY_PROFILES,DEPLOY_RUNTIME,DEPLOY_OPENBAO_ADDR,DEPLOY_OPENBAO_CA_FILE," +
				"DEPLOY_OPENBAO_TOKEN_FILE,DEPLOY_OPENBAO_MOUNT,DEPLOY_OPENBAO_NAMESPACE",
			"DEPLOY_RUNTIME=" + e.runtime, "DEPLOY_OPENBAO_ADDR=" + e.proxy.URL, "DEPLOY_OPENBAO_CA_FILE=" + e.proxy.CAFile,
			"DEPLOY_OPENBAO_TOKEN_FILE=" + e.tokenFile, "DEPLOY_OPENBAO_MOUNT=" + e.mount.Path, "DEPLOY_OPENBAO_NAMESPACE=" + team,
		},
		EnvOf: map[string][]string{
			stand.API:    {"SLIPWAY_OPENBAO_ROLE_ID_FILE=" + role, "SLIPWAY_OPENBAO_SECRET_ID_FILE=" + secret},
			stand.Worker: e.serviceAccount(t),
		},
	})
	// What they keep stays for the search.
	t.Cleanup(func() { require.NoError(t, errors.Join(e.Stop(stand.API), e.Stop(stand.Worker))) })
	return e
}

// serviceAccount sets up Kubernetes auth, and is how the worker logs in by it.
func (e *example) serviceAccount(t *testing.T) (env []string) {
	part := func(claims any) string {
		text, err := json.Marshal(claims)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	// The server leaves the signature to Kubernetes.
	token := part(members{"alg": "RS256"}) + "." + part(members{
		"nbf": time.Now().Unix(), "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(), "sub": "system:serviceaccount:slipway:slipway",
		"kubernetes.io": members{"namespace": "slipway", "serviceaccount": members{"name": "slipway", "uid": "u"}},
	}) + "." + part("signature")
	kubernetes := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Spec struct{ Token string } }
		err := json.NewDecoder(r.Body).Decode(&review)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(members{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": members{
			"authenticated": err == nil && strings.HasSuffix(r.URL.Path, "/tokenreviews") && review.Spec.Token == token,
			"user":          members{"username": "system:serviceaccount:slipway:slipway", "uid": "u"},
		}})
	}))
	t.Cleanup(kubernetes.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: kubernetes.Certificate().Raw})
	require.NoError(t, server.Bao.Setup(t.Context(), &bao.Kubernetes{URL: kubernetes.URL, CA: ca}))
	_, err := server.Root().Logical().WriteWithContext(t.Context(), "auth/kubernetes/role/"+e.mount.Path, map[string]any{
		"bound_service_account_names": "slipway", "bound_service_account_namespaces": "slipway",
		"token_policies": e.mount.Policy, "token_no_default_policy": true, "token_ttl": "3s", "token_max_ttl": "10s",
	})
	require.NoError(t, err)
	return []string{"SLIPWAY_OPENBAO_KUBERNETES_ROLE=" + e.mount.Path, "SLIPWAY_OPENBAO_KUBERNETES_TOKEN_FILE=" + kvstand.File(t, token)}
}

func (e *example) fault(t *testing.T) kvstand.Fault {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		what := ""
		switch {
		case isWrite(r):
			what = "write"
		case strings.HasSuffix(r.URL.Path, "/sys/wrapping/wrap"):
			what = "wrap"
		}
		e.mu.Lock()
		if r.Header.Get("X-Vault-Namespace") != team {
			e.outside = append(e.outside, r.Method+" "+r.URL.Path)
		}
		revokes := e.revokes[what]
		delete(e.revokes, what)
		e.mu.Unlock()
		r.Header.Del("X-Vault-Namespace")
		if revokes {
			server.Revoke(t, r.Header.Get("X-Vault-Token"))
		}
		return false
	}
}

// setSchema changes the source.
func (e *example) setSchema(t *testing.T, text string) {
	path := filepath.Join(e.source, "schema.nix")
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o644))
	require.NoError(t, os.Rename(path+".new", path))
}

// single is a configuration with everything on one node.
func single(application members) members {
	forum := members{"enable": true}
	for name, value := range application {
		forum[name] = value
	}
	return members{"single": members{"domain": "example.org", "applications": members{"forum": forum}}}
}

// previews waits until a preview of a configuration gives an answer.
func (e *example) previews(t *testing.T, status int, says string) {
	t.Helper()
	await(t, func() error {
		a := e.do(t, http.MethodPost, "/deployments/"+at+"/preview", "", members{"configuration": single(members{key: "by no schema yet"})})
		if a.Status != status || !strings.Contains(a.Body, says) {
			return fmt.Errorf("%d %s", a.Status, a.Body)
		}
		return nil
	})
}

// read is what the node has read: field → value.
func (e *example) read(t *testing.T) map[string]string {
	t.Helper()
	read := map[string]string{}
	folder := filepath.Join(e.runtime, at)
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, path)
		if entry.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		field, inPlace := strings.CutPrefix(path, filepath.Join(folder, "main", "forum-operator-secrets")+"/")
		require.True(t, inPlace, path)
		read[field] = string(text)
		return err
	}))
	return read
}

func (e *example) log(t *testing.T, build int64) string {
	return string(e.get(t, fmt.Sprintf("%s/deployments/%s/builds/%d/log", e.URL, at, build)))
}

// untrusted: a certificate that slipway does not know.
func (e *example) untrusted(t *testing.T) {
	const id = "untrusted"
	e.proxy.Distrust(t)
	e.requireAway(t, id, e.put(t, id, "one", single(members{"smtp": members{"password": e.secret(id)}})))
	e.proxy.Trust()
	log, err := os.ReadFile(filepath.Join(e.Dir, "logs", stand.API+".log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "(tls)", "the operator is told")
}

// movesWhatBecomesASecret: a value that was stored before its field was a secret
// is moved by the next submit.
func (e *example) movesWhatBecomesASecret(t *testing.T) {
	const plain = "was-no-secret"
	a := e.deploy(t, at, "plain", single(members{key: plain}))
	require.Equal(t, plain, e.stored(t, at, a.Build).Rest[key])
	require.NoDirExists(t, filepath.Join(e.runtime, at), "without secrets")
	require.Nil(t, e.mount.Metadata(t, at, "forum", key))

	e.setSchema(t, e.schema)
	e.previews(t, http.StatusOK, `"secretsSet":{"forum":["`+key+`"]}`)
	require.NotContains(t, e.do(t, http.MethodGet, "/deployments/"+at, "", nil).Body, plain)
	a = e.deploy(t, at, "moves", single(members{}))
	kept := e.stored(t, at, a.Build)
	require.Equal(t, []string{key}, kept.SecretsSet)
	require.NotContains(t, kept.Rest, key)
	require.Equal(t, plain, e.value(t, at, key))
	require.Equal(t, map[string]string{key: plain}, e.read(t))
	require.Contains(t, e.log(t, a.Build), "main: has read its secrets forum "+key+"\n")
}

// readsAnew: the next deploy has what was submitted, byte for byte, though the
// tokens of both processes are revoked in the middle.
func (e *example) readsAnew(t *testing.T) {
	value, password := e.secret(at)+" \"é\\n<&>\\ \u2028 😀\n\n", e.secret(at)
	e.mu.Lock()
	e.revokes = map[string]bool{"wrap": true, "write": true}
	e.mu.Unlock()
	a := e.deploy(t, at, "anew", single(members{key: value, "smtp": members{"password": password}}))
	require.Empty(t, e.revokes)
	require.Equal(t, map[string]string{key: value, nodePassword: password}, e.read(t))
	require.Contains(t, e.log(t, a.Build), "main: has read its secrets forum "+nodePassword+", forum "+key+"\n")
	changed := e.secret(at)
	e.deploy(t, at, "changed", single(members{key: changed}))
	require.Equal(t, map[string]string{key: changed, nodePassword: password}, e.read(t), "in the same system")
}

// failsWithoutAValue: a secret that is named and cannot be read fails the deploy,
// and changes nothing.
func (e *example) failsWithoutAValue(t *testing.T) {
	before := e.read(t)
	nodes, err := os.ReadFile(e.tokenFile)
	require.NoError(t, err)
	powerless, err := bao.Token(t.Context(), server.Root(), bao.TokenOptions{Policies: []string{"nothing"}, TTL: time.Hour})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(e.tokenFile, []byte(powerless+"\n"), 0o600))
	a := e.submit(t, at, "powerless", single(members{key: e.secret(at)}))
	d := e.settled(t, at)
	require.Equal(t, deployment.StateFailed, d.State)
	const refused = "main: OpenBao does not let it read its secret forum-operator-secrets/"
	require.Contains(t, e.log(t, a.Build), refused)
	require.Equal(t, before, e.read(t))
	require.NoError(t, os.WriteFile(e.tokenFile, nodes, 0o600))

	for name, c := range map[string]struct {
		variable, value string
		entry           map[string]any
		says            string
	}{
		"no-address": {"DEPLOY_OPENBAO_ADDR", "", nil, "DEPLOY_OPENBAO_ADDR is not set"},
		"no-answer":  {"DEPLOY_OPENBAO_ADDR", "https://127.0.0.1:1", nil, "OpenBao does not answer: curl: (7)"},
		"no-trust":   {"DEPLOY_OPENBAO_CA_FILE", "", nil, "OpenBao does not answer: curl: (60)"},
		"no-token":   {"DEPLOY_OPENBAO_TOKEN_FILE", os.DevNull, nil, "there is no token in the file DEPLOY_OPENBAO_TOKEN_FILE"},
		"no-entry":   {"", "", nil, "its secret forum-operator-secrets/" + key + " is not in OpenBao"},
		"no-value":   {"", "", map[string]any{"other": e.secret("no-value"), "values": []any{1, true}}, "has no text in OpenBao under the key value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.entry != nil {
				e.mount.Put(t, name, "forum", key, c.entry)
			}
			said, err := e.deployByHand(t, name, c.variable+"="+c.value)
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, said)
			require.Contains(t, said, c.says)
			require.NoDirExists(t, filepath.Join(e.runtime, name, "main"))
		})
	}
}

// deployByHand runs the deployer without slipway.
func (e *example) deployByHand(t *testing.T, id, variable string) (said string, err error) {
	configuration := single(members{"secretsSet": []string{key}})
	text, err := json.Marshal(configuration)
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "configuration"), text, 0o600))
	source := filepath.Join(stand.Root(), "deploy", "source")
	cmd := exec.Command(filepath.Join(source, "deployer"), "deploy")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + folder, "SLIPWAY_DEPLOYMENT_ID=" + id, "SLIPWAY_SOURCE=" + source,
		"SLIPWAY_CONFIGURATION=" + filepath.Join(folder, "configuration"), "SBOM_OUT_DIR=" + filepath.Join(folder, "sbom"),
		"DEPLOY_PROFILES=" + filepath.Join(folder, "profiles"), "DEPLOY_RUNTIME=" + e.runtime, "DEPLOY_OPENBAO_MOUNT=" + e.mount.Path,
		"DEPLOY_OPENBAO_ADDR=" + e.proxy.URL, "DEPLOY_OPENBAO_CA_FILE=" + e.proxy.CAFile, "DEPLOY_OPENBAO_TOKEN_FILE=" + e.tokenFile,
		"DEPLOY_OPENBAO_NAMESPACE=" + team, variable,
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// clearsAndForgets: after a clear the node has the secret no more.
func (e *example) clearsAndForgets(t *testing.T) {
	e.deploy(t, at, "clear", single(members{"secretsClear": []string{nodePassword}}))
	require.Nil(t, e.mount.Metadata(t, at, "forum", nodePassword))
	read := e.read(t)
	require.Contains(t, read, key)
	require.NotContains(t, read, nodePassword)
	e.deploy(t, at, "again", single(members{"smtp": members{"password": e.secret(at)}}))
	require.Contains(t, e.read(t), nodePassword)
}

// leavesTheSchema: a field that the schema has no more is not set any more,
// cannot be submitted, and keeps its entry until the destroy.
func (e *example) leavesTheSchema(t *testing.T) {
	property := regexp.MustCompile(`(?s)        ` + key + ` = secret // \{.*?\};\n`)
	listed := regexp.MustCompile(` *"` + key + `"\n`)
	e.setSchema(t, listed.ReplaceAllString(property.ReplaceAllString(e.schema, ""), ""))
	e.previews(t, http.StatusBadRequest, "invalid_configuration")
	before := e.value(t, at, key)
	require.NotNil(t, before)
	a := e.deploy(t, at, "gone", single(members{}))
	require.Equal(t, []string{nodePassword}, e.stored(t, at, a.Build).SecretsSet)
	require.NotContains(t, e.read(t), key)
	require.Equal(t, before, e.value(t, at, key))
}

// logsIn: all tokens were had by the logins that are set, renewed, and had anew.
func (e *example) logsIn(t *testing.T) {
	await(t, func() error {
		seen := e.proxy.Seen()
		e.faults.mu.Lock()
		seen = append(seen, e.faults.seen...)
		e.faults.mu.Unlock()
		for _, want := range []string{"auth/approle/login", "auth/kubernetes/login", "auth/token/renew-self"} {
			n := 0
			for _, request := range seen {
				if strings.Contains(request, want) {
					n++
				}
			}
			if n < 2 {
				return fmt.Errorf("%s was seen %d times", want, n)
			}
		}
		return nil
	})
}
