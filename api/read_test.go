package api

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/api/auth"
	"slipway.dev/slipway/schema"
	"slipway.dev/slipway/schema/deployment"
)

type deploymentList struct {
	Deployments []deployment.Deployment `json:"deployments"`
}

func (l deploymentList) ids() []string {
	ids := []string{}
	for _, d := range l.Deployments {
		ids = append(ids, d.ID)
	}
	return ids
}

func TestList(t *testing.T) {
	b := start(t, nil)
	for _, id := range []string{"one", "two", "three"} {
		b.Record(id, deployment.ActionDeploy, `{}`)
	}
	list := func(header []string, asked ...string) []string {
		body, err := json.Marshal(map[string][]string{"ids": asked})
		require.NoError(t, err)
		var get, post deploymentList
		a := b.do("GET", "/deployments?id="+strings.Join(asked, "&id="), "", header...)
		require.Equal(t, http.StatusOK, a.status, a.body)
		a.json(t, &get)
		a = b.do("POST", "/deployments/list", string(body), header...)
		require.Equal(t, http.StatusOK, a.status, a.body)
		a.json(t, &post)
		require.Equal(t, get, post)
		return get.ids()
	}
	require.Equal(t, []string{"three", "one", "two"}, list(nil, "three", "one", "three", "unknown", "two", "one"))
	require.Equal(t, []string{}, list(nil, "unknown"))
	limited := []string{"Authorization", "Bearer " + b.token(both, claims{"deployments": []string{"two", "unknown"}})}
	require.Equal(t, []string{"two"}, list(limited, "one", "two", "unknown"))
	require.Equal(t, []string{}, list(limited, "one"))

	hundred := strings.TrimSuffix(strings.Repeat("id=one&", 100), "&")
	require.Equal(t, http.StatusOK, b.do("GET", "/deployments?"+hundred, "").status)
	many := func(n int) string { return `{"ids":["one"` + strings.Repeat(`,"one"`, n-1) + `]}` }
	require.Equal(t, http.StatusOK, b.do("POST", "/deployments/list", many(10_000)).status)

	for _, c := range []struct {
		method, path, body string
		code               code
		says               string
	}{
		{"GET", "/deployments", "", codeInvalidRequest, "no identifier"},
		{"GET", "/deployments?ID=one", "", codeInvalidRequest, "no identifier"},
		{"GET", "/deployments?id=", "", codeInvalidDeploymentID, "not empty"},
		{"GET", "/deployments?id=one&id=Two", "", codeInvalidDeploymentID, "identifier 2"},
		{"GET", "/deployments?id=one;id=two", "", codeInvalidRequest, "query"},
		{"GET", "/deployments?id=%zz", "", codeInvalidRequest, "query"},
		{"GET", "/deployments?" + hundred + "&id=one", "", codeInvalidRequest, "POST /deployments/list"},
		{"POST", "/deployments/list", `{"ids":[]}`, codeInvalidRequest, "no identifier"},
		{"POST", "/deployments/list", `{"ids":"one"}`, codeInvalidRequest, "not an array"},
		{"POST", "/deployments/list", `{"ids":null}`, codeInvalidRequest, "not an array"},
		{"POST", "/deployments/list", `{"ids":["one",2]}`, codeInvalidRequest, "not a string"},
		{"POST", "/deployments/list", `{"ids":["one",null]}`, codeInvalidRequest, "not a string"},
		{"POST", "/deployments/list", `{"ids":["one","two."]}`, codeInvalidDeploymentID, "identifier 2"},
		{"POST", "/deployments/list", `{"ids":["one"],"more":1}`, codeInvalidRequest, `"more"`},
		{"POST", "/deployments/list", `["one"]`, codeInvalidRequest, "not a JSON object"},
		{"POST", "/deployments/list", many(10_001), codeInvalidRequest, "10000"},
	} {
		a := b.do(c.method, c.path, c.body)
		require.Equal(t, c.code, a.failure(t).Error, c.path+c.body)
		require.Contains(t, a.failure(t).Message, c.says)
	}
}

func TestAListThatCannotBeCompleted(t *testing.T) {
	b := start(t, nil)
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("d%d", i))
		b.Record(ids[i], deployment.ActionDeploy, `{"name":"harbour"}`)
	}
	body, err := json.Marshal(map[string][]string{"ids": ids})
	require.NoError(t, err)
	b.FailBehind(0, errors.New("away"))
	require.Equal(t, codeServiceUnavailable, b.do("POST", "/deployments/list", string(body)).failure(t).Error)
	b.FailBehind(3, errors.New("away"))
	require.Equal(t, codeServiceUnavailable, b.do("POST", "/deployments/list", string(body)).failure(t).Error, "nothing was sent yet")

	b.FailBehind(900, errors.New("away"))
	response, err := b.http.Do(b.request("POST", "/deployments/list", string(body)))
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	_, err = io.ReadAll(response.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a part must not look like the whole")
	b.Fail(nil)
	var all deploymentList
	b.do("POST", "/deployments/list", string(body)).json(t, &all)
	require.Equal(t, ids, all.ids())
}

func TestShow(t *testing.T) {
	b := start(t, nil)
	require.Equal(t, codeNotFound, b.do("GET", "/deployments/one", "").failure(t).Error)
	n := b.Record("one", deployment.ActionDeploy, `{"name":"harbour","size":1.0}`)
	b.Start("one", n)
	b.End("one", n, deployment.StatusSucceeded)
	a := b.do("GET", "/deployments/one", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
	require.Contains(t, a.body, `"size":1.0`, "numbers stay as they were written")
	var d deployment.Deployment
	a.json(t, &d)
	require.Equal(t, deployment.StateActive, d.State)
	require.EqualValues(t, 1, *d.Live)

	// One that was only destroyed has no configuration.
	b.Record("bare", deployment.ActionDestroy, "")
	a = b.do("GET", "/deployments/bare", "")
	require.Contains(t, a.body, `"nodes":[]`)
	require.Contains(t, a.body, `"configuration":null`)
}

func TestBuilds(t *testing.T) {
	b := start(t, nil)
	require.Equal(t, codeNotFound, b.do("GET", "/deployments/one/builds", "").failure(t).Error)
	for range 25 {
		b.Record("one", deployment.ActionDeploy, `{"name":"harbour"}`)
	}
	numbers := func(query string) []int64 {
		var list struct{ Builds []deployment.Build }
		b.do("GET", "/deployments/one/builds"+query, "").json(t, &list)
		numbers := []int64{}
		for _, build := range list.Builds {
			require.Nil(t, build.Configuration)
			numbers = append(numbers, build.Number)
		}
		return numbers
	}
	require.Len(t, numbers(""), 20)
	require.Equal(t, []int64{25, 24}, numbers("?limit=2"))
	require.Equal(t, []int64{23, 22}, numbers("?limit=2&before=24"))
	require.Equal(t, []int64{}, numbers("?before=1"))
	require.Len(t, numbers("?limit=100"), 25)
	for _, query := range []string{"?limit=0", "?limit=101", "?limit=-1", "?limit=", "?limit=x", "?limit=01", "?limit=1e1", "?limit=1&limit=2",
		"?before=0", "?before=-1", "?before=9223372036854775808", "?before=x"} {
		require.Equal(t, codeInvalidRequest, b.do("GET", "/deployments/one/builds"+query, "").failure(t).Error, query)
	}

	a := b.do("GET", "/deployments/one/builds/25", "")
	var build deployment.Build
	a.json(t, &build)
	require.EqualValues(t, 25, build.Number)
	require.JSONEq(t, `{"name":"harbour"}`, string(build.Configuration))
	for path, want := range map[string]code{
		"26": codeNotFound, "9223372036854775807": codeNotFound, "0": codeInvalidRequest, "-1": codeInvalidRequest,
		"9223372036854775808": codeInvalidRequest, "x": codeInvalidRequest, "01": codeInvalidRequest, "1.0": codeInvalidRequest, "%31": codeInvalidRequest,
	} {
		require.Equal(t, want, b.do("GET", "/deployments/one/builds/"+path, "").failure(t).Error, path)
		require.Equal(t, want, b.do("GET", "/deployments/one/builds/"+path+"/log", "").failure(t).Error, path)
		require.Equal(t, want, b.do("POST", "/deployments/one/builds/"+path+"/cancel", "").failure(t).Error, path)
	}
	require.Equal(t, codeNotFound, b.do("GET", "/deployments/two/builds/1", "").failure(t).Error)
}

func TestTheStoreIsAway(t *testing.T) {
	b := start(t, nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	b.Fail(errors.New("no connection to secret-place"))
	for _, call := range [][3]string{
		{"GET", "/deployments?id=one", ""}, {"POST", "/deployments/list", `{"ids":["one"]}`}, {"PUT", "/deployments/one", good},
		{"GET", "/deployments/one", ""}, {"POST", "/deployments/one/preview", good}, {"GET", "/deployments/one/builds", ""},
		{"GET", "/deployments/one/builds/1", ""}, {"GET", "/deployments/one/builds/1/log", ""},
		{"GET", "/deployments/one/builds/1/log?follow=true", ""}, {"POST", "/deployments/one/builds/1/cancel", ""},
		{"GET", "/deployments/one/events", ""}, {"GET", "/sbom-list/one", ""}, {"GET", "/sbom/one", ""}, {"GET", "/sbom-diff/one", ""},
		{"GET", "/components?name=x", ""},
	} {
		a := b.do(call[0], call[1], call[2])
		require.Equal(t, codeServiceUnavailable, a.failure(t).Error, call)
		require.NotContains(t, a.body, "secret-place")
	}
	require.Zero(t, b.workflows.called())
	require.Equal(t, http.StatusOK, b.do("POST", "/deployments/one/events/ticket", "").status)
}

func TestLog(t *testing.T) {
	b := start(t, nil)
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	b.Start("one", n)
	path := "/deployments/one/builds/1/log"
	require.Empty(t, b.do("GET", path, "").body)
	text := strings.Repeat("grüße\n", 100_000) // more than one read
	b.Print("one", n, text)
	a := b.do("GET", path, "")
	require.Equal(t, text, a.body)
	require.Equal(t, "text/plain; charset=utf-8", a.header.Get("Content-Type"))
	require.Equal(t, text[10:], b.do("GET", path+"?from=10", "").body)
	require.Equal(t, text[10:], b.do("GET", path+"?from=10&follow=false", "").body)
	require.Empty(t, b.do("GET", path+"?from=9223372036854775807", "").body)
	head := b.do("HEAD", path, "")
	require.Equal(t, http.StatusOK, head.status)
	require.Equal(t, "text/plain; charset=utf-8", head.header.Get("Content-Type"))
	require.Equal(t, http.StatusOK, b.do("HEAD", path+"?follow=true", "").status)
	for _, query := range []string{"?from=-1", "?from=x", "?from=", "?from=1&from=2", "?follow=yes", "?follow=", "?follow=true&follow=true"} {
		require.Equal(t, codeInvalidRequest, b.do("GET", path+query, "").failure(t).Error, query)
	}
}

// opened is an answer that goes on.
func (b *bundle) opened(method, path string, header ...string) (*http.Response, *bufio.Reader) {
	b.t.Helper()
	response, err := b.http.Do(b.request(method, path, "", header...))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(b.t, http.StatusOK, response.StatusCode)
	return response, bufio.NewReader(response.Body)
}

func TestFollowALog(t *testing.T) {
	b := start(t, nil)
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	_, lines := b.opened("GET", "/deployments/one/builds/1/log?follow=true")
	b.Start("one", n)
	for i := range 3 {
		b.Print("one", n, fmt.Sprintf("line %d\n", i))
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("line %d\n", i), line)
	}
	b.PrintAndEnd("one", n, "last", deployment.StatusSucceeded)
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Equal(t, "last", string(rest))
	require.Equal(t, "line 2\nlast", b.do("GET", "/deployments/one/builds/1/log?follow=true&from=14", "").body, "it has ended")
	require.Eventually(t, func() bool { return b.Subscribers("one") == 0 }, patience, time.Millisecond)
}

func TestAFollowedLogThatIsNotWholeIsBrokenOff(t *testing.T) {
	b := start(t, func(c *Config) { c.Poll = time.Millisecond })
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	b.Start("one", n)
	b.Print("one", n, "text")
	follow := func(header ...string) error {
		_, body := b.opened("GET", "/deployments/one/builds/1/log?follow=true", header...)
		_, err := io.ReadFull(body, make([]byte, 4))
		require.NoError(t, err)
		if len(header) == 0 {
			b.Fail(errors.New("away"))
			defer b.Fail(nil)
		}
		_, err = io.ReadAll(body)
		return err
	}
	require.ErrorIs(t, follow(), io.ErrUnexpectedEOF, "the store is away")
	expires := "Bearer " + b.token(both, claims{"exp": float64(time.Now().Add(time.Second).UnixMilli()) / 1000})
	require.ErrorIs(t, follow("Authorization", expires), io.ErrUnexpectedEOF, "the token expires")
	_, body := b.opened("GET", "/deployments/one/builds/1/log?follow=true")
	b.stop()
	_, err := io.ReadAll(body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "the server ends")
}

func TestChannel(t *testing.T) {
	b := start(t, nil)
	require.Equal(t, codeNotFound, b.do("GET", "/deployments/one/events", "").failure(t).Error)
	n := b.Record("one", deployment.ActionDeploy, `{"name":"harbour"}`)
	b.Start("one", n)
	b.Print("one", n, "text\n")
	read := func(lines *bufio.Reader) string {
		var event strings.Builder
		for {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			if line == "\n" {
				return event.String()
			}
			event.WriteString(line)
		}
	}
	response, lines := b.opened("GET", "/deployments/one/events?log=true")
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	require.Equal(t, "no-store", response.Header.Get("Cache-Control"))
	require.Equal(t, "no", response.Header.Get("X-Accel-Buffering"))
	require.NotEmpty(t, response.Header.Get("X-Request-Id"))
	snapshot := read(lines)
	shown := b.do("GET", "/deployments/one", "").body
	require.Equal(t, "event: snapshot\nid: 3.1.0\ndata: "+shown+"\n", snapshot, "the snapshot is the deployment as it is read")
	require.Contains(t, read(lines), "event: log\nid: 3.1.5\n")

	_, lines = b.opened("GET", "/deployments/one/events?lastEventId=2")
	require.Contains(t, read(lines), "event: build\nid: 3\n")
	_, lines = b.opened("GET", "/deployments/one/events?lastEventId=1", "Last-Event-ID", "2")
	require.Contains(t, read(lines), "id: 3\n", "the header wins")
	_, lines = b.opened("GET", "/deployments/one/events", "Last-Event-ID", "99")
	require.Contains(t, read(lines), "event: reset\n")
	require.Contains(t, read(lines), "event: snapshot\n")
	require.Equal(t, codeInvalidRequest, b.do("GET", "/deployments/one/events?log=yes", "").failure(t).Error)

	expires := "Bearer " + b.token(both, claims{"exp": float64(time.Now().Add(time.Second).UnixMilli()) / 1000})
	_, lines = b.opened("GET", "/deployments/one/events", "Authorization", expires)
	_, err := io.ReadAll(lines)
	require.NoError(t, err, "it ends with the token")

	_, lines = b.opened("GET", "/deployments/one/events")
	b.stop()
	_, err = io.ReadAll(lines)
	require.NoError(t, err, "it ends with the server")
}

func TestTickets(t *testing.T) {
	b := start(t, nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	b.Record("two", deployment.ActionDeploy, `{}`)
	buy := func(token string) ticketAnswer {
		var ticket ticketAnswer
		a := b.do("POST", "/deployments/one/events/ticket", "", "Authorization", "Bearer "+token)
		require.Equal(t, http.StatusOK, a.status, a.body)
		a.json(t, &ticket)
		return ticket
	}
	ticket := buy(b.token(both, claims{"exp": time.Now().Add(24 * time.Hour).Unix()}))
	require.WithinDuration(t, time.Now().Add(time.Hour), ticket.ExpiresAt, time.Minute)
	open := func(path, ticket string) answer { return b.do("HEAD", path+"?ticket="+ticket, "", "Authorization", "") }
	for range 2 {
		require.Equal(t, http.StatusOK, open("/deployments/one/events", ticket.Ticket).status)
	}
	for path, want := range map[string]int{
		"/deployments/two/events":       http.StatusUnauthorized,
		"/deployments/ONE/events":       http.StatusUnauthorized,
		"/deployments/one":              http.StatusUnauthorized,
		"/deployments/one/builds":       http.StatusUnauthorized,
		"/deployments/one/builds/1/log": http.StatusUnauthorized,
	} {
		require.Equal(t, want, open(path, ticket.Ticket).status, path)
	}
	require.Equal(t, http.StatusUnauthorized, open("/deployments/one/events", "nonsense").status)
	require.Equal(t, http.StatusUnauthorized, open("/deployments/one/events", "").status)
	require.Equal(t, http.StatusUnauthorized, open("/deployments/one/events", ticket.Ticket+"&ticket="+ticket.Ticket).status)
	require.Equal(t, http.StatusUnauthorized,
		b.do("HEAD", "/deployments/one/events?ticket="+ticket.Ticket, "", "Authorization", "Bearer nonsense").status, "a token that is shown counts")

	// The stream of a ticket ends with the token that bought it.
	short := buy(b.token(auth.ScopeRead, claims{"exp": time.Now().Add(2 * time.Second).Unix()}))
	_, lines := b.opened("GET", "/deployments/one/events?ticket="+short.Ticket, "Authorization", "")
	_, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.False(t, time.Now().Before(short.ExpiresAt))
	require.Equal(t, http.StatusUnauthorized, open("/deployments/one/events", short.Ticket).status)
}

func TestNothingSecretIsLogged(t *testing.T) {
	b := start(t, nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	token := b.token(both, nil)
	header := []string{"Authorization", "Bearer " + token}
	var ticket ticketAnswer
	b.do("POST", "/deployments/one/events/ticket", "", header...).json(t, &ticket)
	b.do("HEAD", "/deployments/one/events?ticket="+ticket.Ticket, "", "Authorization", "")
	b.do("HEAD", "/deployments/two/events?ticket="+ticket.Ticket, "", "Authorization", "")
	b.do("GET", "/nonsense?ticket="+ticket.Ticket, "", header...)
	b.do("PUT", "/deployments/one", `{"configuration":{"name":"a","applications":{"wiki":{"key":"value-of-mine"}}}}`, header...)
	b.do("POST", "/deployments/one/preview", `{"configuration":{"name":"a","applications":{"wiki":{"key":"value-of-mine"}}}}`, header...)
	require.Eventually(t, func() bool { return b.logged.FilterMessage("request").Len() == 6 }, patience, time.Millisecond)
	for _, entry := range b.logged.All() {
		line, err := json.Marshal([]any{entry.Message, entry.ContextMap()})
		require.NoError(t, err)
		for _, secret := range []string{ticket.Ticket, token, "value-of-mine", "ticket="} {
			require.NotContains(t, string(line), secret)
		}
	}
	one := b.logged.FilterMessage("request").All()[1].ContextMap()
	require.Equal(t, "/deployments/{id}/events", one["route"])
	require.Equal(t, "HEAD", one["method"])
	require.EqualValues(t, 200, one["status"])
}

// panics is a Reader that has a mistake in it.
type panics struct{ Reader }

func (panics) Deployment(context.Context, string) (deployment.Deployment, error) {
	panic("secret-inside")
}

func TestAPanicIsAnErrorOfTheServer(t *testing.T) {
	b := start(t, func(c *Config) { c.Reader = panics{c.Reader} })
	request := b.request("GET", "/deployments/one", "")
	response, err := b.http.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, http.StatusInternalServerError, response.StatusCode)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NotContains(t, string(body), "secret-inside")
	entry := b.logged.FilterMessage("a request panicked").All()[0].ContextMap()
	require.Equal(t, response.Header.Get("X-Request-Id"), entry["requestId"])
	require.Contains(t, fmt.Sprint(entry["panic"]), "secret-inside")
}

func TestAClientThatLeavesIsNoError(t *testing.T) {
	b := start(t, nil)
	entered := make(chan struct{})
	b.workflows.set(func(w *workflows) {
		w.during = func(ctx context.Context) {
			close(entered)
			<-ctx.Done()
		}
		w.err = context.Canceled
	})
	request := b.request("PUT", "/deployments/one", good)
	ctx, leave := context.WithCancel(request.Context())
	go func() {
		<-entered
		leave()
	}()
	response, err := http.DefaultClient.Do(request.WithContext(ctx))
	if err == nil {
		_ = response.Body.Close()
	}
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() bool { return b.logged.FilterMessage("request").Len() == 1 }, patience, time.Millisecond)
	require.EqualValues(t, statusClientGone, b.logged.FilterMessage("request").All()[0].ContextMap()["status"])
	require.Zero(t, b.logged.FilterMessage("a request failed").Len())
}

func TestALimitOfTimeIs503(t *testing.T) {
	b := start(t, func(c *Config) { c.EvaluateTimeout = 10 * time.Millisecond })
	b.workflows.set(func(w *workflows) {
		w.during = func(ctx context.Context) { <-ctx.Done() }
		w.err = context.DeadlineExceeded
	})
	require.Equal(t, codeServiceUnavailable, b.do("PUT", "/deployments/one", good).failure(t).Error)
}

func TestABodyMayNotTakeForEver(t *testing.T) {
	b := start(t, func(c *Config) { c.BodyTimeout = 300 * time.Millisecond })
	request := b.request("PUT", "/deployments/one", good)
	body, send := io.Pipe()
	defer func() { _ = send.Close() }()
	go func() { _, _ = send.Write([]byte(good[:10])) }()
	request.Body, request.ContentLength = body, -1
	require.Contains(t, b.send(request).failure(t).Message, "slowly")

	// What is done with it may.
	b.workflows.set(func(w *workflows) {
		w.during = func(ctx context.Context) {
			select {
			case <-ctx.Done():
				t.Error("the time of the body ended the request")
			case <-time.After(time.Second):
			}
		}
	})
	require.Equal(t, http.StatusAccepted, b.do("PUT", "/deployments/one", good).status)
}

func TestRequestIDsAreOurs(t *testing.T) {
	b := start(t, nil)
	first := b.do("GET", "/docs", "", "X-Request-Id", "mine")
	second := b.do("GET", "/docs", "")
	require.Len(t, first.header.Get("X-Request-Id"), 36)
	require.NotEqual(t, first.header.Get("X-Request-Id"), second.header.Get("X-Request-Id"))
}

func TestMetrics(t *testing.T) {
	b := start(t, nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	b.do("GET", "/deployments/one", "")
	b.do("GET", "/deployments/unknown", "")
	b.do("GET", "/nonsense", "")
	b.do("INVENTED", "/deployments/one", "")
	_, lines := b.opened("GET", "/deployments/one/events")
	_, err := lines.ReadString('\n')
	require.NoError(t, err)
	want := `
# HELP slipway_api_requests_total Requests of the deployments API that were answered, by route, method and class of status.
# TYPE slipway_api_requests_total counter
slipway_api_requests_total{method="GET",route="/deployments/{id}",status="2xx"} 1
slipway_api_requests_total{method="GET",route="/deployments/{id}",status="4xx"} 1
slipway_api_requests_total{method="GET",route="none",status="4xx"} 1
slipway_api_requests_total{method="other",route="none",status="4xx"} 1
# HELP slipway_api_streams Streams that are open now, by route.
# TYPE slipway_api_streams gauge
slipway_api_streams{route="/deployments/{id}/events"} 1
`
	require.Eventually(t, func() bool {
		err = testutil.GatherAndCompare(b.metrics, strings.NewReader(want), "slipway_api_requests_total", "slipway_api_streams")
		return err == nil
	}, patience, 10*time.Millisecond)
	require.NoError(t, err)
}

func TestTheContractIsServed(t *testing.T) {
	b := start(t, nil)
	a := b.do("GET", "/openapi.yaml", "", "Authorization", "")
	require.Equal(t, string(schema.OpenAPI), a.body)
	require.Equal(t, http.StatusOK, a.status)
	response, err := b.http.Do(b.request("GET", "/openapi.yaml", "", "If-None-Match", a.header.Get("ETag")))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusNotModified, response.StatusCode)

	page := b.do("GET", "/docs", "", "Authorization", "")
	require.Contains(t, page.header.Get("Content-Security-Policy"), "default-src 'none'")
	require.NotContains(t, page.body, "http")
	for _, part := range strings.Split(page.body, `"docs/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		asset := b.do("GET", "/docs/"+name, "", "Authorization", "", "Accept-Encoding", "identity")
		require.Equal(t, http.StatusOK, asset.status, name)
		require.NotEmpty(t, asset.body)
		require.Contains(t, page.body, name)
		packed := b.do("GET", "/docs/"+name, "", "Authorization", "", "Accept-Encoding", "gzip")
		if packed.header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(bytes.NewReader([]byte(packed.body)))
			require.NoError(t, err)
			content, err := io.ReadAll(unpacked)
			require.NoError(t, err)
			require.Equal(t, asset.body, string(content), name)
		}
	}
}

func TestAnIncompleteConfigurationIsRefused(t *testing.T) {
	_, err := NewHandler(context.Background(), Config{})
	require.ErrorContains(t, err, "not complete")
	b := start(t, nil)
	c := b.api.Config
	c.TicketKey = []byte("short")
	_, err = NewHandler(context.Background(), c)
	require.ErrorContains(t, err, "5 bytes")
	_, err = NewHandler(context.Background(), b.api.Config)
	require.ErrorContains(t, err, "metrics", "registered twice")
}
