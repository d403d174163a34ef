package deployment_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

func TestCheckID(t *testing.T) {
	for _, id := range []string{"a", "0", "a-b", "550e8400-e29b-41d4-a716-446655440000", strings.Repeat("a", 40)} {
		require.NoError(t, deployment.CheckID(id), id)
	}
	for id, want := range map[string]string{
		"": "not empty", strings.Repeat("a", 41): "at most 40", "A": "character 1", "a.b": "character 2", "a/b": "character 2",
		"a_b": "character 2", "-a": "character 1", "a-": "character 2", "é": "character 1", "a%20": "character 2", "a\x00": "character 2",
	} {
		require.ErrorContains(t, deployment.CheckID(id), want, id)
	}
}
