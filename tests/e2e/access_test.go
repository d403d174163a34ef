package e2e

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/schema/deployment"
)

// all are the claims of a token that may do everything.
var all = issuer.Claims{}

func bearer(token string) http.Header {
	header := asJSON()
	header.Set("Authorization", "Bearer "+token)
	return header
}

func TestTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	const id = "tokens"
	other, err := issuer.Open(t.TempDir())
	require.NoError(t, err)
	forged, err := other.Token(issuer.Claims{
		Issuer: issuer.DefaultIssuer, Audience: issuer.DefaultAudience, Subject: "x", Scope: issuer.DefaultScope,
		IssuedAt: time.Now(), Expires: time.Now().Add(time.Hour),
	})
	require.NoError(t, err)
	good := slipway.Token(all)
	parts := strings.Split(good, ".")
	require.Len(t, parts, 3)
	none := func(alg string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"`+alg+`","typ":"JWT"}`)) + "." + parts[1] + "."
	}
	last := parts[2][len(parts[2])-10:]
	changed := strings.ToUpper(last)
	if changed == last {
		changed = strings.ToLower(last)
	}

	tokens := map[string]http.Header{
		"missing":              {"Authorization": nil},
		"empty":                bearer(""),
		"another scheme":       {"Authorization": {"Basic " + good}},
		"twice":                {"Authorization": {"Bearer " + good, "Bearer " + good}},
		"no JWT":               bearer("abc"),
		"expired":              bearer(slipway.Token(issuer.Claims{IssuedAt: time.Now().Add(-time.Hour), Expires: time.Now().Add(-2 * time.Minute)})),
		"of another issuer":    bearer(slipway.Token(issuer.Claims{Issuer: "https://login.example.org"})),
		"of another audience":  bearer(slipway.Token(issuer.Claims{Audience: "another"})),
		"of another key":       bearer(forged),
		"changed signature":    bearer(strings.TrimSuffix(good, last) + changed),
		"without signature":    bearer(parts[0] + "." + parts[1] + "."),
		"alg none":             bearer(none("none")),
		"alg None":             bearer(none("None")),
		"from the future":      bearer(slipway.Token(issuer.Claims{IssuedAt: time.Now().Add(time.Hour), Expires: time.Now().Add(2 * time.Hour)})),
		"HS256 with JWKS file": bearer(symmetric(t, parts[1], mustRead(t, slipway.Issuer.JWKSFile))),
		"HS256 with PEM":       bearer(symmetric(t, parts[1], publicPEM(t))),
	}
	for name, header := range tokens {
		for _, call := range append(routes(id), route{http.MethodGet, "/deployments?id=" + id, ""}, route{http.MethodPost, "/deployments/list", `{"ids":["` + id + `"]}`}) {
			header.Set("Content-Type", "application/json")
			a := slipway.call(t, call.method, call.path, header, call.body)
			require.Equal(t, http.StatusUnauthorized, a.Status, "%s: %s %s: %s", name, call.method, call.path, a.Body)
			require.Equal(t, "unauthorized", a.Error)
			require.Contains(t, a.Header.Get("WWW-Authenticate"), "Bearer")
		}
	}
	slipway.nothingStored(t, id)
	require.Equal(t, http.StatusOK, slipway.call(t, http.MethodPost, "/deployments/"+id+"/preview", bearer(good), body(configuration(""))).Status,
		"the token that the others were made of")
}

// symmetric signs a payload with HS256, as if the public key was a secret.
func symmetric(t *testing.T, payload string, key []byte) string {
	t.Helper()
	claims, err := base64.RawURLEncoding.DecodeString(payload)
	require.NoError(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: key, KeyID: slipway.Issuer.KeyID}}, nil)
	require.NoError(t, err)
	signed, err := signer.Sign(claims)
	require.NoError(t, err)
	token, err := signed.CompactSerialize()
	require.NoError(t, err)
	return token
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return text
}

func publicPEM(t *testing.T) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	require.NoError(t, json.Unmarshal(mustRead(t, slipway.Issuer.JWKSFile), &set))
	require.Len(t, set.Keys, 1)
	der, err := x509.MarshalPKIXPublicKey(set.Keys[0].Key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func TestScopes(t *testing.T) {
	t.Parallel()
	const id = "scopes"
	slipway.deploy(t, id, "")
	for name, c := range map[string]struct {
		scope         string
		reads, writes bool
	}{
		"read":         {"deployments:read", true, false},
		"write":        {"deployments:write", false, true},
		"another":      {"sboms:read", false, false},
		"a prefix":     {"deployments:reader deployments", false, false},
		"another case": {"DEPLOYMENTS:READ DEPLOYMENTS:WRITE", false, false},
	} {
		header := bearer(slipway.Token(issuer.Claims{Scope: c.scope}))
		for _, call := range []route{
			{http.MethodGet, "/deployments/" + id, ""}, {http.MethodGet, "/deployments?id=" + id, ""},
			{http.MethodGet, "/deployments/" + id + "/builds/1/log", ""}, {http.MethodPost, "/deployments/" + id + "/events/ticket", ""},
			{http.MethodGet, "/sbom-list/" + id, ""}, {http.MethodGet, "/sbom/" + id, ""}, {http.MethodGet, "/components?name=a", ""},
		} {
			checkScope(t, name, c.reads, slipway.call(t, call.method, call.path, header, call.body))
		}
		for _, call := range []route{
			{http.MethodPost, "/deployments/" + id + "/preview", body(configuration(""))},
			{http.MethodPost, "/deployments/" + id + "/builds/1/cancel", ""}, // which has ended: 409
		} {
			checkScope(t, name, c.writes, slipway.call(t, call.method, call.path, header, call.body))
		}
		if !c.writes {
			checkScope(t, name, false, slipway.call(t, http.MethodPut, "/deployments/"+id, header, body(configuration(""))))
			checkScope(t, name, false, slipway.call(t, http.MethodDelete, "/deployments/"+id, header, ""))
		}
	}
	d := slipway.settled(t, id)
	require.EqualValues(t, 1, d.LatestBuild.Number, "nothing was queued")
	require.Equal(t, deployment.StateActive, d.State)
}

func checkScope(t *testing.T, name string, allowed bool, a answer) {
	t.Helper()
	if allowed {
		require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, a.Status, "%s: %s", name, a.Body)
		return
	}
	require.Equal(t, http.StatusForbidden, a.Status, "%s: %s", name, a.Body)
	require.Equal(t, "forbidden", a.Error)
	require.Contains(t, a.Header.Get("WWW-Authenticate"), `error="insufficient_scope"`)
}

// Who may not read a deployment cannot tell whether it exists.
func TestTokenForOtherDeployments(t *testing.T) {
	t.Parallel()
	const existing, unknown, own = "someone-elses", "no-ones", "my-own"
	slipway.deploy(t, existing, "")
	slipway.deploy(t, own, "")
	header := bearer(slipway.Token(issuer.Claims{Deployments: []string{own, "other"}}))
	here, there := routes(existing), routes(unknown)
	for i := range here {
		a := slipway.call(t, here[i].method, here[i].path, header, here[i].body)
		b := slipway.call(t, there[i].method, there[i].path, header, there[i].body)
		require.Equal(t, http.StatusForbidden, a.Status, "%s %s: %s", here[i].method, here[i].path, a.Body)
		require.Equal(t, "forbidden", a.Error)
		require.Equal(t, strings.ReplaceAll(a.Body, a.RequestID, ""), strings.ReplaceAll(b.Body, b.RequestID, ""))
		require.Equal(t, a.Status, b.Status)
		for name := range a.Header {
			if name != "X-Request-Id" && name != "Date" {
				require.Equal(t, a.Header[name], b.Header[name])
			}
		}
	}
	slipway.nothingStored(t, unknown)
	require.EqualValues(t, 1, slipway.settled(t, existing).LatestBuild.Number, "nothing was queued")

	require.Equal(t, http.StatusOK, slipway.call(t, http.MethodGet, "/deployments/"+own, header, "").Status)
	require.Equal(t, http.StatusNotFound, slipway.call(t, http.MethodGet, "/deployments/other", header, "").Status)
	var listed struct{ Deployments []deployment.Deployment }
	a := slipway.call(t, http.MethodGet, fmt.Sprintf("/deployments?id=%s&id=%s&id=%s", existing, own, unknown), header, "")
	require.NoError(t, json.Unmarshal([]byte(a.Body), &listed))
	require.Len(t, listed.Deployments, 1)
	require.Equal(t, own, listed.Deployments[0].ID)
	for _, nobody := range []http.Header{bearer(slipway.Token(issuer.Claims{Deployments: []string{""}}))} {
		require.Equal(t, http.StatusForbidden, slipway.call(t, http.MethodGet, "/deployments/"+own, nobody, "").Status)
	}
}

// Without OpenBao a secret is refused, and its value is nowhere afterwards.
func TestSecretsAreRefusedAndNowhere(t *testing.T) {
	t.Parallel()
	const id, secret = "secrets", "correct-horse-battery-staple"
	given := configuration(`"applications":{"shop":{"password":"` + secret + `"},"forum":{"password":""},"wiki":{"secretsClear":["password"]}}`)
	a := slipway.put(t, id, body(given))
	require.Equal(t, http.StatusBadRequest, a.Status, a.Body)
	require.Equal(t, "invalid_configuration", a.Error)
	require.Equal(t, []string{"/test/applications/shop/password"}, a.paths())
	require.Contains(t, a.Details[0].Message, "keeps no secrets")
	require.NotContains(t, a.Body, secret)
	slipway.nothingStored(t, id)

	// Beside other errors it is not told either.
	a = slipway.put(t, id, body(configuration(`"work":0,"applications":{"shop":{"password":"`+secret+`","else":"`+secret+`"}}`)))
	require.Equal(t, http.StatusBadRequest, a.Status, a.Body)
	require.ElementsMatch(t, []string{"/test/work", "/test/applications/shop/password", "/test/applications/shop/else"}, a.paths())
	require.NotContains(t, a.Body, secret)
	slipway.nothingStored(t, id)

	// A preview makes the same checks.
	a = slipway.preview(t, id, body(given))
	require.Equal(t, http.StatusBadRequest, a.Status, a.Body)
	require.Equal(t, []string{"/test/applications/shop/password"}, a.paths())
	require.NotContains(t, a.Body, secret)

	// What is not a secret passes, without what only looks like one.
	slipway.deploy(t, id, `"applications":{"shop":{"password":"","secretsSet":["password"]}},"note":"`+id+`"`)
	require.JSONEq(t, string(configuration(`"applications":{"shop":{}},"note":"`+id+`"`)), string(slipway.settled(t, id).Configuration))

	require.NotZero(t, inTables(t, id), "the search works")
	require.Zero(t, inTables(t, secret))
	logs, err := filepath.Glob(filepath.Join(slipway.Dir, "logs", "*.log"))
	require.NoError(t, err)
	require.NotEmpty(t, logs)
	for _, log := range logs {
		require.NotContains(t, string(mustRead(t, log)), secret, log)
	}
}

// inTables counts the rows of PostgreSQL that hold a text.
func inTables(t *testing.T, text string) (rows int) {
	t.Helper()
	names, err := slipway.database.Query(t.Context(), `
		SELECT table_name, column_name, data_type FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name IN (SELECT tablename FROM pg_tables WHERE schemaname = 'public')`)
	require.NoError(t, err)
	columns, err := pgx.CollectRows(names, pgx.RowToStructByPos[struct{ Table, Column, Type string }])
	require.NoError(t, err)
	require.NotEmpty(t, columns)
	for _, c := range columns {
		value := pgx.Identifier{c.Column}.Sanitize() + "::text"
		needle := "$1::text"
		if c.Type == "bytea" {
			value, needle = pgx.Identifier{c.Column}.Sanitize(), "convert_to($1, 'UTF8')"
		}
		var n int
		err := slipway.database.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FROM %s WHERE position(%s IN %s) > 0`,
			pgx.Identifier{c.Table}.Sanitize(), needle, value), text).Scan(&n)
		require.NoError(t, err, c)
		rows += n
	}
	return rows
}

// events are the history of a run of a workflow, the newest for an empty run.
func events(t *testing.T, workflowID, runID string) []*history.HistoryEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var found []*history.HistoryEvent
	for all := slipway.temporal.GetWorkflowHistory(ctx, workflowID, runID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); all.HasNext(); {
		event, err := all.Next()
		require.NoError(t, err)
		found = append(found, event)
	}
	return found
}
