package exit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
)

// The exit codes that mean the same in every command that has them. A command
// says in its help which those are, and which others it has.
const (
	Failed  = 1 // something unexpected happened
	Usage   = 2 // the command was not used right
	Refused = 4 // an answer, and not what was asked for
	Away    = 5 // no answer, or one that says that something is away
)

// Error is an error with the exit code for it. Its text is what the user is
// told, and empty where all was said.
type Error struct {
	Code int
	Text string
	Err  error // the cause, or nil
}

func (e *Error) Error() string { return e.Text }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Code is what the program exits with after a command returned err: 0 for nil,
// and Failed for an error without a code.
func Code(err error) int {
	if err == nil {
		return 0
	}
	if known, ok := errors.AsType[*Error](err); ok {
		return known.Code
	}
	return Failed
}

// Misuse is the error of a command that was not used right.
func Misuse(format string, args ...any) error {
	return With(Usage, fmt.Errorf(format, args...))
}

// With gives an error an exit code.
func With(code int, err error) error { return &Error{Code: code, Text: err.Error(), Err: err} }

// TemporalAway reports whether Temporal could not be reached, or did not answer
// in time.
func TemporalAway(err error) bool {
	_, unreachable := errors.AsType[*serviceerror.Unavailable](err)
	_, late := errors.AsType[*serviceerror.DeadlineExceeded](err)
	return unreachable || late || errors.Is(err, context.DeadlineExceeded)
}

// Strict makes every wrong flag, argument and subcommand of a command and of all
// below it a Misuse. By itself a command with subcommands prints its help and
// succeeds where the subcommand is misspelled, which a script takes for done.
func Strict(c *cobra.Command) *cobra.Command {
	c.InitDefaultCompletionCmd() // which cobra adds later by itself
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return misuse(c, err) })
	harden(c)
	return c
}

func harden(c *cobra.Command) {
	for _, sub := range c.Commands() {
		harden(sub)
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.Args, c.RunE = cobra.ArbitraryArgs, group
		return
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if _, known := errors.AsType[*Error](err); err == nil || known {
				return err
			}
			return misuse(c, err)
		}
	}
}

func misuse(c *cobra.Command, err error) error {
	return Misuse("%w\nsee: %s --help", err, c.CommandPath())
}

// group runs a command that has only subcommands.
func group(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	c.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("%q has no command %q", c.CommandPath(), args[0])
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return Misuse("%s", text)
}
