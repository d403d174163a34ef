package e2e

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadyTellsOfEachDependencyWhereItIsAsked(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"":         `{"ready":true}`,
		"?verbose": `{"ready":true,"dependencies":{"PostgreSQL":"ok","Temporal":"ok","module source":"ok"}}`,
	} {
		response, err := http.Get(slipway.Health + query)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.JSONEq(t, want, string(body))
	}
}
