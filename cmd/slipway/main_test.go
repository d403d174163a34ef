package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway/exit"
)

func TestEveryMisuseExitsWithTwo(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"srve"}, {"serve", "extra"}, {"serve", "--nonsense"}, {"migrate", "extra"}, {"version", "extra"},
		{"lease", "rnu", "--", "./migrate.sh"}, {"lease", "status", "extra"}, {"lease", "revoke"},
		{"planned", "rquest"}, {"planned", "request"}, {"source", "chek"}, {"source", "check"}, {"deployments", "sumbit"},
	} {
		c := root()
		c.SetOut(io.Discard)
		c.SetArgs(args)
		require.Equal(t, exit.Usage, exit.Code(c.ExecuteContext(t.Context())), args)
	}
}
