package kvpolicy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/kvpolicy"
)

func TestPolicyOfOtherNames(t *testing.T) {
	policy := kvpolicy.Policy("kv/team", "a/b")
	require.Equal(t, 4, strings.Count(policy, `path "kv/team/`))
	require.Contains(t, policy, `path "kv/team/data/a/b/+/secret/+/+"`)
	require.Contains(t, policy, `path "kv/team/detailed-metadata/a/b/+/secret/*"`)
	require.NotContains(t, policy, `"secret/`)
	require.NotContains(t, policy, "sudo")
	require.Contains(t, kvpolicy.NodePolicy("kv/team", "a/b"), `path "kv/team/data/a/b/+/secret/*"`)
}

func TestTheDocumentationShowsThesePolicies(t *testing.T) {
	page, err := os.ReadFile("../../docs/secrets.md")
	require.NoError(t, err)
	require.Contains(t, string(page), kvpolicy.Policy(kvpolicy.Mount, kvpolicy.Root))
	require.Contains(t, string(page), kvpolicy.NodePolicy(kvpolicy.Mount, kvpolicy.Root))
}
