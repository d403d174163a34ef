package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
)

// refusal is the answer of the API that an error is.
func refusal(t *testing.T, err error) *client.Error {
	t.Helper()
	var refused *client.Error
	require.ErrorAs(t, err, &refused)
	return refused
}

// statuses are those of the builds of a deployment, oldest first.
func (s *site) statuses(t *testing.T, id string) []deployment.Status {
	t.Helper()
	builds, err := s.api(t).Builds(t.Context(), id, 0, 0)
	require.NoError(t, err)
	statuses := make([]deployment.Status, len(builds))
	for i, b := range builds {
		require.EqualValues(t, len(builds)-i, b.Number, "newest first, without gaps")
		statuses[b.Number-1] = b.Status
	}
	return statuses
}

func TestOneBuildAtATime(t *testing.T) {
	t.Parallel()
	const id = "one-at-a-time"
	slipway.submit(t, id, `"deploy":"gate"`)
	slipway.started(t, id, "deploy", 1)
	require.EqualValues(t, 2, slipway.submit(t, id, `"note":2`))
	d, err := slipway.api(t).Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, deployment.StateBuilding, d.State)
	require.Equal(t, "build 2 waits for build 1", d.Reason)
	require.Nil(t, d.Live)

	require.EqualValues(t, 3, slipway.submit(t, id, `"note":3`))
	superseded := slipway.build(t, id, 2, deployment.StatusSuperseded)
	require.Equal(t, "superseded by build 3", superseded.Reason)
	require.Nil(t, superseded.StartedAt)
	require.NotNil(t, superseded.FinishedAt)
	require.Equal(t, []deployment.Status{deployment.StatusRunning, deployment.StatusSuperseded, deployment.StatusQueued}, slipway.statuses(t, id))
	require.Empty(t, slipway.logOf(t, id, 2))

	slipway.open(t, id)
	d = slipway.settled(t, id)
	require.Equal(t, deployment.StateActive, d.State)
	require.EqualValues(t, 3, *d.Live)
	require.JSONEq(t, string(configuration(`"note":3`)), string(d.Configuration))
	require.Equal(t, []string{"start deploy 1", "end deploy 1", "start deploy 3", "end deploy 3"}, slipway.runs(t, id))
	first, third := slipway.build(t, id, 1, deployment.StatusSucceeded), slipway.build(t, id, 3, deployment.StatusSucceeded)
	require.False(t, third.StartedAt.Before(*first.FinishedAt))
	require.JSONEq(t, string(configuration(`"deploy":"gate"`)), string(first.Configuration), "a build keeps its snapshot")
}

func TestDestroySupersedesAndJoins(t *testing.T) {
	t.Parallel()
	const id = "supersedes"
	slipway.submit(t, id, `"deploy":"gate"`)
	slipway.started(t, id, "deploy", 1)
	slipway.submit(t, id, `"note":2`)
	destroyed, err := slipway.api(t).Destroy(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, client.Destroyed{DeploymentID: id, Build: 3, Callback: "none"}, destroyed)
	require.Equal(t, "superseded by build 3", slipway.build(t, id, 2, deployment.StatusSuperseded).Reason)
	d, err := slipway.api(t).Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, deployment.StateDestroying, d.State)

	again, err := slipway.api(t).Destroy(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, destroyed, again)
	require.EqualValues(t, 4, slipway.submit(t, id, `"note":4`))
	again, err = slipway.api(t).Destroy(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, destroyed, again, "the submit behind it does not make another one")
	require.Equal(t, "superseded by build 3", slipway.build(t, id, 4, deployment.StatusSuperseded).Reason)
	require.EqualValues(t, 5, slipway.submit(t, id, `"note":5`))

	slipway.open(t, id)
	d = slipway.settled(t, id)
	require.Equal(t, deployment.StateActive, d.State)
	require.EqualValues(t, 5, *d.Live)
	require.Equal(t, []string{
		"start deploy 1", "end deploy 1", "start destroy 3", "end destroy 3", "start deploy 5", "end deploy 5",
	}, slipway.runs(t, id))
}

func TestDestroyOfWhatIsNotUp(t *testing.T) {
	t.Parallel()
	const id = "not-up"
	a := slipway.call(t, http.MethodDelete, "/deployments/"+id, nil, "")
	require.Equal(t, http.StatusNotFound, a.Status, a.Body)
	require.Equal(t, "unknown_deployment", a.Error)
	slipway.noRows(t, id)

	slipway.deploy(t, id, "")
	a = slipway.call(t, http.MethodDelete, "/deployments/"+id, nil, "")
	require.Equal(t, http.StatusAccepted, a.Status, a.Body)
	require.JSONEq(t, `{"deploymentId":"`+id+`","build":2,"callback":"none"}`, a.Body)
	require.Equal(t, "/deployments/"+id+"/builds/2", a.Header.Get("Location"))
	d := slipway.settled(t, id)
	require.Equal(t, deployment.StateIdle, d.State)
	require.Nil(t, d.Live)
	require.JSONEq(t, string(configuration("")), string(d.Configuration), "the last submit is kept")
	a = slipway.call(t, http.MethodDelete, "/deployments/"+id, nil, "")
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	require.JSONEq(t, `{"deploymentId":"`+id+`","state":"idle"}`, a.Body)
	require.Len(t, slipway.statuses(t, id), 2)

	// It lives again.
	slipway.deploy(t, id, "")
	require.EqualValues(t, 3, *slipway.settled(t, id).Live)
}

func TestDestroyThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	const id = "destroy-fails"
	slipway.deploy(t, id, `"destroy":"fail"`)
	d := slipway.destroy(t, id)
	require.Equal(t, deployment.StateFailed, d.State)
	require.EqualValues(t, 1, *d.Live, "it is up as far as anybody knows")
	slipway.deploy(t, id, "")
	require.Equal(t, deployment.StateIdle, slipway.destroy(t, id).State)
	require.Equal(t, []string{
		"start deploy 1", "end deploy 1", "start destroy 2", "end destroy 2", "start deploy 3", "end deploy 3", "start destroy 4", "end destroy 4",
	}, slipway.runs(t, id))
}

func TestCancel(t *testing.T) {
	t.Parallel()
	const id = "cancels"
	slipway.submit(t, id, `"deploy":"gate"`)
	pid := slipway.started(t, id, "deploy", 1)
	slipway.submit(t, id, "")
	cancel := func(build int) answer {
		return slipway.call(t, http.MethodPost, fmt.Sprintf("/deployments/%s/builds/%d/cancel", id, build), nil, "")
	}
	statusOf := func(a answer) deployment.Build {
		var b deployment.Build
		require.NoError(t, json.Unmarshal([]byte(a.Body), &b), a.Body)
		return b
	}

	a := cancel(2) // queued
	require.Equal(t, http.StatusAccepted, a.Status, a.Body)
	require.Equal(t, deployment.StatusCancelled, statusOf(a).Status)
	require.Equal(t, "cancelled while queued", slipway.build(t, id, 2, deployment.StatusCancelled).Reason)
	d, err := slipway.api(t).Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, deployment.StateBuilding, d.State)
	a = cancel(2) // cancelled: what was asked for is so
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	require.Equal(t, deployment.StatusCancelled, statusOf(a).Status)

	a = cancel(1) // running
	require.Equal(t, http.StatusAccepted, a.Status, a.Body)
	slipway.build(t, id, 1, deployment.StatusCancelled)
	gone(t, pid)
	d = slipway.settled(t, id)
	require.Equal(t, deployment.StateFailed, d.State)
	require.True(t, strings.HasPrefix(d.Reason, "build 1 cancelled"), d.Reason)
	require.Nil(t, d.Live)
	require.Contains(t, slipway.logOf(t, id, 1), "[cancelled: the deployer was asked to stop]\n")
	require.Equal(t, []string{"start deploy 1"}, slipway.runs(t, id), "the second never ran")

	slipway.deploy(t, id, "")
	a = cancel(3) // ended
	require.Equal(t, http.StatusConflict, a.Status, a.Body)
	require.Equal(t, "build_ended", a.Error)
	require.Equal(t, deployment.StateActive, slipway.settled(t, id).State)
	require.Equal(t, http.StatusNotFound, cancel(4).Status)
	for _, build := range []string{"0", "-1", "x", "1.0", "01", "9223372036854775808"} {
		a := slipway.call(t, http.MethodPost, "/deployments/"+id+"/builds/"+build+"/cancel", nil, "")
		require.Equal(t, http.StatusBadRequest, a.Status, "%s: %s", build, a.Body)
	}
	a = slipway.call(t, http.MethodPost, "/deployments/never-seen/builds/1/cancel", nil, "")
	require.Equal(t, http.StatusNotFound, a.Status, a.Body)
}

func TestCancelledDestroyLeavesItUp(t *testing.T) {
	t.Parallel()
	const id = "cancelled-destroy"
	slipway.deploy(t, id, `"destroy":"gate"`)
	destroyed, err := slipway.api(t).Destroy(t.Context(), id)
	require.NoError(t, err)
	pid := slipway.started(t, id, "destroy", destroyed.Build)
	_, err = slipway.api(t).Cancel(t.Context(), deployment.Ref{Deployment: id, Build: destroyed.Build})
	require.NoError(t, err)
	slipway.build(t, id, destroyed.Build, deployment.StatusCancelled)
	gone(t, pid)
	d := slipway.settled(t, id)
	require.Equal(t, deployment.StateFailed, d.State)
	require.EqualValues(t, 1, *d.Live)
	require.Equal(t, []string{"start deploy 1", "end deploy 1", "start destroy 2"}, slipway.runs(t, id), "a cancelled destroy is not repeated")
	slipway.open(t, id)
	require.Equal(t, deployment.StateIdle, slipway.destroy(t, id).State)
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	const id, key = "idempotent", "release 42"
	submit := func(key string, members string) answer {
		header := asJSON()
		header.Set("Idempotency-Key", key)
		return slipway.call(t, http.MethodPut, "/deployments/"+id, header, body(configuration(members)))
	}
	require.Equal(t, http.StatusBadRequest, submit(key, "").Status, "a space is not visible")
	const good = "release-42"

	// A refusal is not remembered: of the schema, and of the module.
	require.Equal(t, "invalid_configuration", submit(good, `"work":0`).Error)
	require.Equal(t, "invalid_configuration", submit(good, `"evaluate":"refuse"`).Error)
	slipway.noRows(t, id)

	// Ten at once, while the build runs, are one.
	answers := make([]answer, 10)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() { answers[i] = submit(good, `"deploy":"gate","count":2`) })
	}
	group.Wait()
	for _, a := range answers {
		require.Equal(t, http.StatusAccepted, a.Status, a.Body)
		require.JSONEq(t, `{"deploymentId":"`+id+`","build":1,"evaluation":"evaluated","nodes":[{"name":"web","names":["example.org"]}]}`, a.Body)
	}
	slipway.started(t, id, "deploy", 1)
	same := submit(good, `"count": 2, "deploy":"gate"`) // written in another way
	require.Equal(t, answers[0].Body, same.Body)
	other := submit(good, `"deploy":"gate","count":4`)
	require.Equal(t, http.StatusConflict, other.Status, other.Body)
	require.Equal(t, "idempotency_conflict", other.Error)

	// It is superseded by nothing, and the same after the end and after others.
	slipway.open(t, id)
	require.Equal(t, deployment.StateActive, slipway.settled(t, id).State)
	require.Equal(t, answers[0].Body, submit(good, `"deploy":"gate","count":2`).Body)
	require.EqualValues(t, 2, slipway.submit(t, id, ""))
	slipway.settled(t, id)
	require.Equal(t, answers[0].Body, submit(good, `"deploy":"gate","count":2`).Body)
	require.Equal(t, "idempotency_conflict", submit(good, `"deploy":"gate","count":4`).Error)
	require.Equal(t, "idempotency_conflict", submit(good, "").Error)
	require.Equal(t, []deployment.Status{deployment.StatusSucceeded, deployment.StatusSucceeded}, slipway.statuses(t, id))
	require.Equal(t, []string{"start deploy 1", "end deploy 1", "start deploy 2", "end deploy 2"}, slipway.runs(t, id))

	// The key is of the deployment.
	header := asJSON()
	header.Set("Idempotency-Key", good)
	a := slipway.call(t, http.MethodPut, "/deployments/idempotent-2", header, body(configuration("")))
	require.Equal(t, http.StatusAccepted, a.Status, a.Body)
	// Keys of all lengths and characters make workflows of their own.
	for i, key := range []string{strings.Repeat("k", 255), strings.Repeat("k", 254) + "/", "a/b%2F'\"~", good + "~"} {
		a := submit(key, "")
		require.Equal(t, http.StatusAccepted, a.Status, a.Body)
		require.Contains(t, a.Body, fmt.Sprintf(`"build":%d,`, i+3))
	}
	for _, key := range []string{"", strings.Repeat("k", 256), "ä"} {
		require.Equal(t, http.StatusBadRequest, submit(key, "").Status, key)
	}
	slipway.settled(t, id)
}

// Without a key every submit is one of its own.
func TestSubmitsAtOnce(t *testing.T) {
	t.Parallel()
	const id, count = "at-once", 10
	builds := make([]int64, count)
	var group sync.WaitGroup
	for i := range builds {
		group.Go(func() {
			submitted, err := slipway.api(t).Submit(t.Context(), id, configuration(fmt.Sprintf(`"note":%d`, i)), "")
			if err == nil {
				builds[i] = submitted.Build
			}
		})
	}
	group.Wait()
	require.ElementsMatch(t, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, builds)
	d := slipway.settled(t, id)
	require.Equal(t, deployment.StateActive, d.State)
	require.EqualValues(t, count, *d.Live, "the newest")
	require.NotContains(t, slipway.record(t, id), "OVERLAP")
	for _, status := range slipway.statuses(t, id) {
		require.Contains(t, []deployment.Status{deployment.StatusSucceeded, deployment.StatusSuperseded}, status)
	}
}

func TestPreviewStoresNothing(t *testing.T) {
	t.Parallel()
	const id = "previewed"
	a := slipway.preview(t, id, body(configuration("")))
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	require.JSONEq(t, `{"nodes":[{"name":"web","names":["example.org"]}],"disabledApplications":[],"secretsSet":{},"instances":[]}`, a.Body)
	slipway.nothingStored(t, id)
	require.Empty(t, slipway.record(t, id))

	// Of what is up, too.
	slipway.deploy(t, id, "")
	before := slipway.settled(t, id)
	a = slipway.preview(t, id, body(configuration(`"note":"another"`)))
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	require.Equal(t, before, slipway.settled(t, id))
	require.Len(t, slipway.statuses(t, id), 1)
}

func TestLists(t *testing.T) {
	t.Parallel()
	slipway.deploy(t, "listed-a", "")
	slipway.deploy(t, "listed-b", "")
	found, err := slipway.api(t).List(t.Context(), []string{"listed-b", "listed-none", "listed-a", "listed-b"})
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.Equal(t, "listed-b", found[0].ID, "in the order first asked")
	require.Equal(t, "listed-a", found[1].ID)
	require.Equal(t, slipway.settled(t, "listed-a"), found[1])

	a := slipway.call(t, http.MethodGet, "/deployments", nil, "")
	require.Equal(t, http.StatusBadRequest, a.Status, a.Body)
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprintf("id=listed-%d", i)
	}
	a = slipway.call(t, http.MethodGet, "/deployments?"+strings.Join(many, "&"), nil, "")
	require.Equal(t, http.StatusBadRequest, a.Status, a.Body)
	require.Contains(t, a.Message, "POST /deployments/list")
	ids := make([]string, 10_001)
	for i := range ids {
		ids[i] = fmt.Sprintf("listed-%d", i)
	}
	_, err = slipway.api(t).List(t.Context(), ids)
	require.Equal(t, http.StatusBadRequest, refusal(t, err).Status)
	found, err = slipway.api(t).List(t.Context(), append(ids[:9_999], "listed-a"))
	require.NoError(t, err)
	require.Len(t, found, 1)

	for path, status := range map[string]int{
		"/deployments/listed-a/builds?limit=0":        http.StatusBadRequest,
		"/deployments/listed-a/builds?limit=x":        http.StatusBadRequest,
		"/deployments/listed-a/builds?before=0":       http.StatusBadRequest,
		"/deployments/listed-a/builds?before=1":       http.StatusOK,
		"/deployments/listed-a/builds/2":              http.StatusNotFound,
		"/deployments/listed-a/builds/2/log":          http.StatusNotFound,
		"/deployments/listed-a/builds/1/log?from=-1":  http.StatusBadRequest,
		"/deployments/listed-a/builds/1/log?follow=1": http.StatusBadRequest,
		"/deployments/listed-none/builds":             http.StatusNotFound,
		"/deployments/listed-none":                    http.StatusNotFound,
		"/elsewhere":                                  http.StatusNotFound,
	} {
		require.Equal(t, status, slipway.call(t, http.MethodGet, path, nil, "").Status, path)
	}
	a = slipway.call(t, http.MethodPatch, "/deployments/listed-a", nil, "")
	require.Equal(t, http.StatusMethodNotAllowed, a.Status)
	require.Equal(t, "PUT, GET, HEAD, DELETE", reorder(a.Header.Get("Allow")))
}

// reorder brings the methods of an Allow into one order.
func reorder(allow string) string {
	var ordered []string
	for _, method := range []string{"PUT", "GET", "HEAD", "POST", "DELETE"} {
		if strings.Contains(allow, method) {
			ordered = append(ordered, method)
		}
	}
	return strings.Join(ordered, ", ")
}
