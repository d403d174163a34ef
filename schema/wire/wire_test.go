package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/wire"
)

func TestWorkflowIDs(t *testing.T) {
	require.Equal(t, "submit/shop/abc", wire.SubmitID("shop", "abc"))
	require.Equal(t, "destroy/shop/a%2Fb%20%C3%A9", wire.DestroyID("shop", "a/b é"))
	require.Equal(t, "import/shop/abc", wire.ImportID("shop", "abc"))
	require.Equal(t, "preview/x", wire.PreviewID("x"))
	require.Equal(t, "schema/abc-slipway-source", wire.SchemaBuildID("/nix/store/abc-slipway-source"))
}

func TestLongWorkflowIDsStayApart(t *testing.T) {
	long := strings.Repeat("x", 300)
	a, b := wire.SubmitID("d", long+"a"), wire.SubmitID("d", long+"b")
	require.Len(t, a, 200)
	require.NotEqual(t, a, b)
	require.True(t, strings.HasPrefix(a, "submit/d/xxx"))
	require.Len(t, wire.HashRequest("any key"), 64)
}
