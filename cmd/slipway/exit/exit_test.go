package exit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
)

func TestCode(t *testing.T) {
	require.Equal(t, 0, Code(nil))
	require.Equal(t, 1, Code(errors.New("any")))
	require.Equal(t, 75, Code(fmt.Errorf("behind: %w", &Error{Code: 75})))
	cause := errors.New("cause")
	require.ErrorIs(t, Misuse("configuration: %w", cause), cause)
}

func TestTemporalAway(t *testing.T) {
	for _, err := range []error{serviceerror.NewUnavailable("refused"), serviceerror.NewDeadlineExceeded("late"), context.DeadlineExceeded} {
		require.True(t, TemporalAway(fmt.Errorf("ask: %w", err)), err)
	}
	for _, err := range []error{nil, errors.New("any"), context.Canceled, serviceerror.NewPermissionDenied("no", "")} {
		require.False(t, TemporalAway(err), err)
	}
}

func TestAMisusedCommandIsNeverASuccess(t *testing.T) {
	refused := errors.New("nothing like that")
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{}, 0, ""},
		{[]string{"group"}, 0, ""},
		{[]string{"group", "run"}, 0, ""},
		{[]string{"group", "rnu"}, 2, `"slipway group" has no command "rnu"; did you mean run?`},
		{[]string{"group", "x"}, 2, `"slipway group" has no command "x"`},
		{[]string{"group", "run", "extra"}, 2, "see: slipway group run --help"},
		{[]string{"group", "run", "--nonsense"}, 2, "unknown flag: --nonsense\nsee: slipway group run --help"},
		{[]string{"group", "own", "extra"}, 4, "nothing like that"},
		{[]string{"gruop", "run"}, 2, `"slipway" has no command "gruop"; did you mean group?`},
		{[]string{"completion", "bsh"}, 2, `has no command "bsh"; did you mean bash or`},
		{[]string{"--nonsense"}, 2, "unknown flag: --nonsense\nsee: slipway --help"},
	} {
		t.Run(fmt.Sprint(test.args), func(t *testing.T) {
			done := func(*cobra.Command, []string) error { return nil }
			group := &cobra.Command{Use: "group"}
			group.AddCommand(&cobra.Command{Use: "run", Args: cobra.NoArgs, RunE: done},
				&cobra.Command{Use: "own", RunE: done, Args: func(*cobra.Command, []string) error { return With(4, refused) }})
			root := &cobra.Command{Use: "slipway", SilenceErrors: true, SilenceUsage: true}
			root.AddCommand(group)
			root.SetOut(io.Discard)
			root.SetArgs(test.args)
			err := Strict(root).Execute()
			require.Equal(t, test.code, Code(err))
			if test.code != 0 {
				require.ErrorContains(t, err, test.says)
			}
		})
	}
}
