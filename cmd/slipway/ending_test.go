package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway/config"
)

func TestStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ask := context.WithCancel(t.Context())
		_, parts, asked := stages(ctx, 5*time.Second)
		synctest.Wait()
		require.NoError(t, errors.Join(parts.Err(), asked.Err()))
		ask()
		synctest.Wait()
		require.Error(t, asked.Err())
		time.Sleep(4 * time.Second)
		require.NoError(t, parts.Err())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Error(t, parts.Err())
	})
}

func TestStagesOfAProcessWhosePartFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, parts, asked := stages(t.Context(), time.Hour)
		group.Go(func() error { return errors.New("it fails") })
		require.EqualError(t, group.Wait(), "it fails")
		synctest.Wait()
		require.Error(t, parts.Err())
		require.Error(t, asked.Err(), "it would lead for ever")
	})
}

func TestOnlyAnAPIDrains(t *testing.T) {
	cfg := config.Config{DrainTimeout: time.Second}
	for p, want := range map[parts]time.Duration{
		{api: true}: time.Second, {api: true, worker: true}: time.Second, {worker: true}: 0,
	} {
		require.Equal(t, want, p.drain(cfg), "%+v", p)
	}
}

func TestAnswersOfAProcessThatStopsCloseTheirConnection(t *testing.T) {
	asked, ask := context.WithCancel(t.Context())
	handler := closing(asked, http.NotFoundHandler())
	answer := func() http.Header {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, http.StatusNotFound, w.Code)
		return w.Header()
	}
	require.Empty(t, answer().Get("Connection"))
	ask()
	require.Equal(t, "close", answer().Get("Connection"))
}

func TestWhatStartsIsWaitedFor(t *testing.T) {
	h := &health{}
	api, worker := h.starts("the deployments API"), h.starts("the worker")
	require.Equal(t, []string{"the deployments API: it starts", "the worker: it starts"}, h.waits())
	api()
	require.Equal(t, []string{"the worker: it starts"}, h.waits())
	worker()
	require.Empty(t, h.waits())
}
