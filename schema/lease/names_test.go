package lease

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 41)
	for name, test := range map[string]struct{ got, want string }{
		"mutex":                           {MutexName("orders"), "bloodraven-deploy-orders-migration"},
		"mutex of 63":                     {MutexName(strings.Repeat("a", 35)), "bloodraven-deploy-" + strings.Repeat("a", 35) + "-migration"},
		"mutex of 64":                     {MutexName(strings.Repeat("a", 36)), "bloodraven-deploy-" + strings.Repeat("a", 20) + "-5dd29b4894588deae1973681"},
		"cut in front of a dash":          {MutexName(strings.Repeat("a", 18) + "-." + long), "bloodraven-deploy-" + strings.Repeat("a", 18) + "-ea6264653a91e38aca921cf4"},
		"hold":                            {OperationName("orders", KindHold, "op-1"), "bloodraven-deploy-orders-failover-hold-a3f179a06eddbd0a1ce658c0"},
		"tombstone within the limit":      {OperationName("ab", KindMigration, "op-1"), "bloodraven-deploy-ab-migration-71a0ef7195df486543f63f0cb1dff83e"},
		"operation with slash and umlaut": {OperationName("o", KindMigration, "a/ü"), "bloodraven-deploy-o-migration-39c94a96f11154568c1faa0b77f6f8a8"},
	} {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(test.got), 63)
			require.True(t, ValidName(test.got), test.got)
			require.Equal(t, test.want, test.got)
		})
	}
}

func TestValidName(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "orders": true, "orders-app.v2": true, "0": true, strings.Repeat("a", 253): true,
		"": false, strings.Repeat("a", 254): false, "A": false, "a_b": false, "-a": false, "a-": false,
		".a": false, "a.": false, "a..b": false, "a.-b": false, "a/b": false, "ä": false, "a b": false, "a\n": false, "..": false,
	} {
		require.Equal(t, want, ValidName(text), "%q", text)
	}
	require.True(t, ValidNamespace(strings.Repeat("a", 63)))
	require.False(t, ValidNamespace(strings.Repeat("a", 64)))
	require.False(t, ValidNamespace("a.b"))
}

func TestParseServiceAccount(t *testing.T) {
	namespace, name, ok := ParseServiceAccount("system:serviceaccount:application:deploy.v1")
	require.True(t, ok)
	require.Equal(t, "application", namespace)
	require.Equal(t, "deploy.v1", name)
	for _, user := range []string{
		"", "admin", "system:serviceaccount:", "system:serviceaccount:a", "system:serviceaccount:a:", "system:serviceaccount::a",
		"system:serviceaccount:a:b:c", "system:serviceaccount:a.b:c", "system:serviceaccount:A:b", "System:serviceaccount:a:b",
		" system:serviceaccount:a:b", "system:serviceaccount:a:b ", "system:serviceaccounts:a:b",
	} {
		_, _, ok := ParseServiceAccount(user)
		require.False(t, ok, "%q", user)
	}
}

func TestValidOperation(t *testing.T) {
	for text, want := range map[string]bool{
		"11111111-1111-4111-8111-111111111111": true, "a/b c": true, "größe": true, " ": true, strings.Repeat("a", 128): true,
		strings.Repeat("ä", 64): true, strings.Repeat("ä", 64) + "a": false,
		"": false, strings.Repeat("a", 129): false, "a\n": false, "\x00": false, "\x7f": false, "\u0085": false, "\xff": false,
	} {
		require.Equal(t, want, ValidOperation(text), "%q", text)
	}
}

func TestClampTTL(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{
		math.MinInt64: MinTTL, -1: MinTTL, 0: MinTTL, 4: MinTTL, 5: 5 * time.Second, 30: 30 * time.Second,
		120: 120 * time.Second, 121: MaxTTL, math.MaxInt64: MaxTTL,
	} {
		require.Equal(t, want, ClampTTL(seconds), "%d", seconds)
	}
}

func TestTokens(t *testing.T) {
	token, err := NewToken(bytes.NewReader(bytes.Repeat([]byte{0xab}, 32)))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("ab", 32), token)
	require.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", HashToken("abc"))

	_, err = NewToken(bytes.NewReader(make([]byte, 31)))
	require.Error(t, err)
	broken := errors.New("no entropy")
	_, err = NewToken(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

func TestParseKind(t *testing.T) {
	for text, want := range map[string]bool{"migration": true, "failover-hold": true, "": false, "Migration": false, "hold": false, "migration ": false} {
		kind, ok := ParseKind(text)
		require.Equal(t, want, ok, "%q", text)
		require.Equal(t, Kind(text), kind)
	}
}

func TestRevokeReason(t *testing.T) {
	for text, want := range map[string]Reason{
		"topology_changed": ReasonTopologyChanged, "operator_revoked": ReasonOperatorRevoked, "": ReasonOperatorRevoked, "because": ReasonOperatorRevoked,
	} {
		require.Equal(t, want, RevokeReason(text), "%q", text)
	}
}
