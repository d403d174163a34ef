package coordination

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/tests/stand"
)

// authorization is a header for call.
func authorization(values ...string) http.Header { return http.Header{"Authorization": values} }

func TestTokens(t *testing.T) {
	t.Parallel()
	r := enter(t)
	token := func(audiences ...string) string { return all.bearer(t, r.namespace, "deploy", audiences...) }
	admin := all.kube.Admin().BearerToken
	all.secrets.add(admin)
	for name, c := range map[string]struct {
		header http.Header
		status int
	}{
		"ours":                   {authorization("Bearer " + token(kube.Audience)), http.StatusOK},
		"several with ours":      {authorization("Bearer " + token("vault", kube.Audience, "other")), http.StatusOK},
		"lower case":             {authorization("bearer " + r.token), http.StatusOK},
		"upper case":             {authorization("BEARER " + r.token), http.StatusOK},
		"two spaces":             {authorization("Bearer  " + r.token), http.StatusOK}, // two fields still
		"another audience":       {authorization("Bearer " + token("vault")), http.StatusUnauthorized},
		"of the API server":      {authorization("Bearer " + token()), http.StatusUnauthorized},
		"audience as a prefix":   {authorization("Bearer " + token(kube.Audience+"-2")), http.StatusUnauthorized},
		"audience in upper case": {authorization("Bearer " + token(strings.ToUpper(kube.Audience))), http.StatusUnauthorized},
		"no ServiceAccount":      {authorization("Bearer " + admin), http.StatusUnauthorized},
		"none":                   {authorization(), http.StatusUnauthorized},
		"empty":                  {authorization(""), http.StatusUnauthorized},
		"scheme alone":           {authorization("Bearer"), http.StatusUnauthorized},
		"token alone":            {authorization(r.token), http.StatusUnauthorized},
		"garbage":                {authorization("Bearer garbage"), http.StatusUnauthorized},
		"signature cut":          {authorization("Bearer " + r.token[:len(r.token)-8]), http.StatusUnauthorized},
		"no signature":           {authorization("Bearer " + r.token[:strings.LastIndex(r.token, ".")+1]), http.StatusUnauthorized},
		"Basic":                  {authorization("Basic " + r.token), http.StatusUnauthorized},
		"two tokens":             {authorization("Bearer " + r.token + " " + r.token), http.StatusUnauthorized},
		"two with a comma":       {authorization("Bearer " + r.token + ", Bearer " + r.token), http.StatusUnauthorized},
		"two headers":            {authorization("Bearer "+r.token, "Bearer "+r.token), http.StatusUnauthorized},
		"16,384 bytes":           {authorization("Bearer " + strings.Repeat("a", 16384)), http.StatusUnauthorized},
		"16,385 bytes":           {authorization("Bearer " + strings.Repeat("a", 16385)), http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			for _, header := range c.header["Authorization"] {
				if _, token, found := strings.Cut(header, " "); found && len(token) > 40 {
					all.secrets.add(strings.TrimSpace(token))
				}
			}
			a := r.call(http.MethodGet, "/groups/"+r.group, "", c.header)
			require.Equal(t, c.status, a.status, a.body)
			if c.status != http.StatusUnauthorized {
				return
			}
			a.refused(t, http.StatusUnauthorized, "unauthorized")
			// Before anything else is looked at.
			r.call(http.MethodGet, "/nowhere", "", c.header).refused(t, http.StatusUnauthorized, "unauthorized")
			r.call(http.MethodPatch, "/groups/"+r.group, "", c.header).refused(t, http.StatusUnauthorized, "unauthorized")
			r.call(http.MethodPost, "/groups/"+r.group+"/leases", strings.Repeat("x", 5000), c.header).refused(t, http.StatusUnauthorized, "unauthorized")
		})
	}
	t.Run("of a ServiceAccount that is gone", func(t *testing.T) {
		client := all.kube.ServiceAccount(t, r.namespace, "gone")
		gone := all.bearer(t, r.namespace, client.ServiceAccount, kube.Audience)
		require.NoError(t, all.admin.CoreV1().ServiceAccounts(r.namespace).Delete(t.Context(), "gone", metav1.DeleteOptions{}))
		await(t, 10*time.Second, func() error { // the API server learns of it by a watch of its own
			review, err := all.admin.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: gone, Audiences: []string{kube.Audience}},
			}, metav1.CreateOptions{})
			if err == nil && review.Status.Authenticated {
				err = errors.New("the API server still accepts the token")
			}
			return err
		})
		r.call(http.MethodGet, "/groups/"+r.group, "", authorization("Bearer "+gone)).refused(t, http.StatusUnauthorized, "unauthorized")
	})
}

// calls are one of each, of a lease in any group.
func (r *room) calls(group string) []answer {
	r.t.Helper()
	of := *r
	of.group = group
	return []answer{
		of.get(), of.grant(migration, operation, 30), of.grant(hold, operation, 30),
		of.renew(migration, operation, "x", 30), of.release(migration, operation, "x"),
	}
}

// Who may not ask learns nothing, not even whether there is such a group.
func TestAnotherServiceAccount(t *testing.T) {
	t.Parallel()
	r := enter(t)
	r.granted(migration, operation, 60)
	all.kube.ServiceAccount(t, r.namespace, "other")
	elsewhere := all.kube.ServiceAccount(t, all.kube.Namespace(t), "deploy")
	for _, token := range []string{
		all.bearer(t, r.namespace, "other", kube.Audience),
		all.bearer(t, elsewhere.Namespace, elsewhere.ServiceAccount, kube.Audience),
	} {
		other := *r
		other.token = token
		for _, group := range []string{r.group, "missing"} {
			for _, a := range other.calls(group) {
				a.refused(t, http.StatusForbidden, "forbidden")
				require.Len(t, a.header, 5, "%v", a.header) // three of ours, length, date: the same for both
			}
		}
	}
	// A caller of one database may not name another one.
	all.kube.Database(t, r.namespace, "others-app", r.group, elsewhere)
	r.grantFor("others-app", migration, another, 60).refused(t, http.StatusForbidden, "forbidden")
	r.grantFor("missing", migration, another, 60).refused(t, http.StatusForbidden, "forbidden")
	// And does not end or renew what is not its own, whatever it knows.
	token := r.grant(migration, operation, 60).text(t, "token")
	other := *r
	other.token = all.bearer(t, elsewhere.Namespace, elsewhere.ServiceAccount, kube.Audience)
	other.renew(migration, operation, token, 60).refused(t, http.StatusForbidden, "token_mismatch")
	other.release(migration, operation, token).refused(t, http.StatusForbidden, "token_mismatch")
}

func TestGroupsOfOneNameInTwoNamespaces(t *testing.T) {
	t.Parallel()
	r := enter(t)
	second := all.kube.Namespace(t)
	all.kube.Group(t, second, r.group)
	all.kube.Database(t, second, "billing-app", r.group, r.account)
	r.get().refused(t, http.StatusForbidden, "forbidden")
	r.renew(migration, operation, "x", 30).refused(t, http.StatusForbidden, "forbidden")
	r.release(migration, operation, "x").refused(t, http.StatusForbidden, "forbidden")
	// The instance says which.
	r.granted(migration, operation, 30)
	require.Equal(t, operation, r.record(migration, operation).OperationID)
	// Unless both have it.
	all.kube.Database(t, second, r.instance, r.group, r.account)
	r.grant(migration, operation, 30).refused(t, http.StatusForbidden, "forbidden")
}

func TestADatabaseThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	r := enter(t)
	token := r.granted(migration, operation, 60)
	databases := all.custom.Resource(schema.GroupVersionResource{Group: "shipstream.io", Version: "v1alpha1", Resource: "mysqldatabases"}).Namespace(r.namespace)
	_, err := databases.Patch(t.Context(), r.instance, types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.org/wait"]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, databases.Delete(t.Context(), r.instance, metav1.DeleteOptions{}))
	for _, a := range r.calls(r.group) {
		a.refused(t, http.StatusForbidden, "forbidden")
	}
	r.renew(migration, operation, token, 60).refused(t, http.StatusForbidden, "forbidden")
}

// A group that went while its database stayed is not the caller's fault.
func TestAGroupThatIsGone(t *testing.T) {
	t.Parallel()
	r := enter(t)
	require.NoError(t, all.groups(r.namespace).Delete(t.Context(), r.group, metav1.DeleteOptions{}))
	for _, a := range r.calls(r.group) {
		a.refused(t, http.StatusServiceUnavailable, "unavailable")
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	r := enter(t)
	grant := func(members string) string {
		return `{"kind":"migration","operationId":"a","instance":"orders-app"` + members + `}`
	}
	good := grant(`,"ttlSeconds":5`)
	padded := func(body string, size int) string {
		return body[:len(body)-1] + strings.Repeat(" ", size-len(body)) + "}"
	}
	const large = http.StatusRequestEntityTooLarge
	for name, c := range map[string]struct {
		body string
		want int // 0 is 400
	}{
		"4,096 bytes": {padded(good, 4096), http.StatusCreated}, "4,097 bytes": {padded(good, 4097), large}, "a megabyte": {padded(good, 1<<20), large},
		"trailing object": {body: good + "{}"}, "trailing null": {body: good + "null"}, "two newlines": {good + "\n\n", http.StatusOK},
		"empty": {}, "null": {body: "null"}, "array": {body: "[" + good + "]"}, "text": {body: `"a"`}, "not UTF-8": {body: grant(`,"ttlSeconds":5,"x":"` + "\xff" + `"`)},
		"unknown member": {body: grant(`,"ttlSeconds":5,"token":"x"`)}, "member twice": {body: grant(`,"ttlSeconds":5,"ttlSeconds":5`)},
		"member in upper case": {body: strings.Replace(good, "kind", "Kind", 1)},
		"no ttl":               {body: grant("")}, "ttl null": {body: grant(`,"ttlSeconds":null`)}, "ttl as text": {body: grant(`,"ttlSeconds":"30"`)},
		"ttl as float": {body: grant(`,"ttlSeconds":30.5`)}, "ttl true": {body: grant(`,"ttlSeconds":true`)}, "ttl in an array": {body: grant(`,"ttlSeconds":[30]`)},
		"no kind":                {body: `{"operationId":"a","instance":"orders-app","ttlSeconds":30}`},
		"no operation":           {body: `{"kind":"migration","instance":"orders-app","ttlSeconds":30}`},
		"no instance":            {body: `{"kind":"migration","operationId":"a","ttlSeconds":30}`},
		"unknown kind":           {body: strings.Replace(good, "migration", "Migration", 1)},
		"empty operation":        {body: strings.Replace(good, `"a"`, `""`, 1)},
		"operation of 129 bytes": {body: strings.Replace(good, `"a"`, `"`+strings.Repeat("a", 129)+`"`, 1)},
		"operation with NUL":     {body: strings.Replace(good, `"a"`, `"a\u0000"`, 1)},
		"operation as a number":  {body: strings.Replace(good, `"a"`, `1`, 1)},
		"instance no name":       {body: strings.Replace(good, "orders-app", "Orders_App", 1)},
		"instance empty":         {body: strings.Replace(good, "orders-app", "", 1)},
	} {
		a := r.call(http.MethodPost, "/groups/"+r.group+"/leases", c.body, nil)
		switch c.want {
		case 0:
			require.Equal(t, `400 {"error":"invalid_request"}`, fmt.Sprint(a.status, " ", a.body), name)
		case large:
			require.Equal(t, `413 {"error":"request_too_large"}`, fmt.Sprint(a.status, " ", a.body), name)
		default:
			require.Less(t, a.status, 300, "%s: %s", name, a.body)
		}
	}
	token := r.grant(migration, "a", 60).text(t, "token")
	renew := fmt.Sprintf(`{"token":%q,"ttlSeconds":30}`, token)
	for name, c := range map[string]struct {
		body string
		want string
	}{
		"good": {renew, ""}, "4,096 bytes": {padded(renew, 4096), ""}, "4,097 bytes": {padded(renew, 4097), `413 {"error":"request_too_large"}`},
		"trailing object": {renew + "{}", `400 {"error":"invalid_request"}`}, "no token": {`{"ttlSeconds":30}`, `400 {"error":"invalid_request"}`},
		"unknown member": {renew[:len(renew)-1] + `,"kind":"migration"}`, `400 {"error":"invalid_request"}`},
		"token null":     {`{"token":null,"ttlSeconds":30}`, `400 {"error":"invalid_request"}`},
		"token empty":    {`{"token":"","ttlSeconds":30}`, `403 {"error":"token_mismatch"}`},
		"upper case":     {strings.Replace(renew, token, strings.ToUpper(token), 1), `403 {"error":"token_mismatch"}`},
		"ttl as text":    {fmt.Sprintf(`{"token":%q,"ttlSeconds":"30"}`, token), `400 {"error":"invalid_request"}`},
	} {
		a := r.call(http.MethodPut, r.path(migration, "a"), c.body, nil)
		if c.want == "" {
			require.Equal(t, http.StatusOK, a.status, "%s: %s", name, a.body)
			continue
		}
		require.Equal(t, c.want, fmt.Sprint(a.status, " ", a.body), name)
	}
	all.secrets.add(strings.ToUpper(token))
}

func TestOperations(t *testing.T) {
	t.Parallel()
	r := enter(t)
	for _, id := range []string{
		"a b", "../../x", "a%2fb 100%", `ünïcode ✓ "?#&=+"`, ".", "..", strings.Repeat("a", 128), strings.Repeat("é", 64),
	} {
		a := r.grant(migration, id, 30)
		require.Equal(t, http.StatusCreated, a.status, "%q: %s", id, a.body)
		require.Equal(t, id, a.text(t, "operationId"))
		token := a.text(t, "token")
		// As any client might escape it: "." and ".." have to be, or they are no paths.
		path := strings.NewReplacer(".", "%2E", "+", "%2B", "&", "%26", "=", "%3D").Replace(url.PathEscape(id))
		status, body := r.raw("PUT", "/deploy/v1/groups/"+r.group+"/leases/migration/"+path, fmt.Sprintf(`{"token":%q,"ttlSeconds":30}`, token))
		require.Equal(t, http.StatusOK, status, "%q: %s", id, body)
		require.Equal(t, http.StatusNoContent, r.release(migration, id, token).status, id)
	}
	for path, status := range map[string]int{
		"migration/" + strings.Repeat("a", 129):   http.StatusBadRequest,
		"migration/%00":                           http.StatusBadRequest,
		"migration/%0a":                           http.StatusBadRequest,
		"migration/%C2%85":                        http.StatusBadRequest, // a control character of two bytes
		"migration/%ff":                           http.StatusBadRequest,
		"Migration/a":                             http.StatusBadRequest,
		"migration%2Fa":                           http.StatusNotFound,
		"failover_hold/a":                         http.StatusBadRequest,
		"migration/" + strings.Repeat("%41", 129): http.StatusBadRequest,
	} {
		for _, method := range []string{http.MethodPut, http.MethodDelete} {
			got, body := r.raw(method, "/deploy/v1/groups/"+r.group+"/leases/"+path, `{"token":"x","ttlSeconds":30}`)
			require.Equal(t, status, got, "%s %s: %s", method, path, body)
		}
	}
}

// raw sends a request whose path nobody cleans.
func (r *room) raw(method, path, body string) (int, string) {
	r.t.Helper()
	address, err := url.Parse(all.LeaseURL(r.piece))
	require.NoError(r.t, err)
	conn, err := tls.Dial("tcp", address.Host, &tls.Config{RootCAs: all.roots})
	require.NoError(r.t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		method, path, address.Host, r.token, len(body), body)
	require.NoError(r.t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(r.t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(r.t, err)
	require.NoError(r.t, response.Body.Close())
	return response.StatusCode, string(text)
}

func TestPaths(t *testing.T) {
	t.Parallel()
	r := enter(t)
	group := "/deploy/v1/groups/" + r.group
	status, body := r.raw(http.MethodGet, group, "")
	require.Equal(t, http.StatusOK, status, body)
	status, body = r.raw(http.MethodGet, "/deploy/v1/groups/"+strings.Replace(r.group, "-", "%2d", 1), "")
	require.Equal(t, http.StatusOK, status, body)
	for _, path := range []string{
		"/", "/deploy", "/deploy/v1", "/deploy/v1/", "/deploy/v1/groups", "/deploy/v1/groups/", "/deploy/v2/groups/" + r.group,
		group + "/", "/" + group, "/deploy//v1/groups/" + r.group, "/deploy/v1/groups//" + r.group, "/deploy/./v1/groups/" + r.group,
		"/x/.." + group, group + "/..", "/deploy/v1/groups/x/../" + r.group, group + "/../" + r.group, group + "/leases/", group + "/leases/migration",
		group + "/leases/migration/", group + "/leases/migration/a/b", group + "/leases//a", strings.ToUpper(group), "/DEPLOY/v1/groups/" + r.group,
		"/deploy/v1/groups/" + strings.ToUpper(r.group), "/deploy%2fv1/groups/" + r.group, "/deploy/v1/groups%2F" + r.group, "/deploy/v1/groups/%2e%2e",
		"/deploy/v1/groups/..%2f" + r.group, "/deploy/v1/groups/" + strings.Repeat("a", 254), "/deploy/v1/groups/-a", "/deploy/v1/groups/a_b",
		"/deploy/v1/groups/" + r.group + "%00", "/deploy/v1/groups/" + r.group + ";x", "/metrics", "/keyring/escrow", "/healthz", "/debug/pprof/",
	} {
		status, body := r.raw(http.MethodGet, path, "")
		require.Equal(t, `404 {"error":"not_found"}`, fmt.Sprint(status, " ", body), path)
	}
	for path, methods := range map[string]string{
		"/groups/" + r.group: "GET", "/groups/" + r.group + "/leases": "POST", r.path(migration, "a"): "PUT, DELETE",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get", "INVENTED"} {
			if strings.Contains(methods, method) {
				continue
			}
			a := r.call(method, path, "", nil)
			require.Equal(t, http.StatusMethodNotAllowed, a.status, "%s %s", method, path)
			require.Equal(t, []string{methods}, a.header["Allow"])
			if method != "HEAD" {
				require.Equal(t, `{"error":"method_not_allowed"}`, a.body)
			}
		}
	}
}

// The deployments API has none of this.
func TestThePlainPortServesNoLeases(t *testing.T) {
	t.Parallel()
	r := enter(t)
	a, err := all.send(t.Context(), http.DefaultClient, http.MethodGet, all.URL+"/deploy/v1/groups/"+r.group, authorization("Bearer "+r.token), "")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, a.status)
	require.NotContains(t, a.body, "activeSite")
	// And the TLS port no plain HTTP: a 400, or the connection is broken off.
	address := strings.Replace(all.LeaseURL(stand.API), "https://", "http://", 1)
	a, err = all.send(t.Context(), http.DefaultClient, http.MethodGet, address+"/groups/"+r.group, authorization("Bearer "+r.token), "")
	if err == nil {
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Contains(t, a.body, "HTTP request to an HTTPS server")
	}
}
