package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/cmd/slipway/config"
	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/configuration"
)

const (
	exitBroken  = exit.Failed
	exitNotDone = 3
)

// Command is "slipway source". environ is as os.Environ gives it; nixEnv are the
// variables that Nix needs to find its store, as NAME=value.
func Command(environ, nixEnv func() []string) *cobra.Command {
	c := &cobra.Command{
		Use:   "source",
		Short: "Check a module source",
	}
	c.AddCommand(checkCommand(environ, nixEnv))
	return c
}

func checkCommand(environ, nixEnv func() []string) *cobra.Command {
	var file string
	var asJSON bool
	c := &cobra.Command{
		Use:   "check <folder | git+https://…?rev=<commit>>",
		Short: "Evaluate every attribute of a module source against the contract",
		Long: `Evaluates every attribute of a module source as a worker would, and says of each
whether it keeps the contract (docs/module-source.md) and what to do if not. With
a configuration it also evaluates the names and the system of each node. Values
of secrets in the configuration are dropped, as they are at a submit.

It needs Nix, and git for a git URL; no database and no Temporal. Nothing is
deployed; the deployer is built if it is a derivation.

Exit codes:
  0  the source keeps the contract; notes are advice
  1  something is missing or wrong
  2  the command was not used right
  3  it could not be checked: Nix, git or the server of the source is away`,
		Example: `  slipway source check deploy/source --configuration deploy/source/example.json
  slipway source check 'git+https://git.example.org/source?rev=0123456789abcdef0123456789abcdef01234567' --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Misuse("source check takes one folder or git+https URL, and got %d arguments", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			cfg, _, err := config.Read(environ(), c.Flags())
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			ck := checker{source: args[0], entry: cfg.SourceEntry, systemsTimeout: cfg.SystemsTimeout}
			if file != "" {
				if ck.configuration, err = readConfiguration(c.InOrStdin(), file); err != nil {
					return err
				}
			}
			report, err := check(c.Context(), ck, nix.Config{
				Timeout: cfg.NixTimeout, MemoryBytes: cfg.NixMemory, Slots: 1, CAFile: cfg.SourceCAFile, Env: nixEnv(),
			})
			if err != nil {
				return exit.With(exitNotDone, err)
			}
			if err := report.print(c.OutOrStdout(), asJSON); err != nil {
				return err
			}
			if !report.OK {
				return &exit.Error{Code: exitBroken}
			}
			return nil
		},
	}
	c.Flags().StringVarP(&file, "configuration", "c", "", "JSON file with a configuration to evaluate, - for standard input")
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	config.AddFlags(c.Flags(), "SLIPWAY_SOURCE_ENTRY", "SLIPWAY_SOURCE_CA_FILE", "SLIPWAY_NIX_TIMEOUT", "SLIPWAY_NIX_MEMORY", "SLIPWAY_NIX_SYSTEMS_TIMEOUT")
	return c
}

// readConfiguration reads a configuration as it would stand in a submit.
func readConfiguration(stdin io.Reader, file string) (map[string]any, error) {
	from := stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, exit.Misuse("configuration: %w", err)
		}
		defer func() { _ = opened.Close() }()
		from = opened
	}
	text, err := io.ReadAll(io.LimitReader(from, configuration.MaxBytes+1))
	if err == nil && len(text) > configuration.MaxBytes {
		err = fmt.Errorf("it has more than %d bytes", configuration.MaxBytes)
	}
	if err != nil {
		return nil, exit.Misuse("configuration: %w", err)
	}
	value, err := configuration.Decode(text)
	if err != nil {
		return nil, exit.Misuse("configuration: %w", err)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, exit.Misuse("configuration: it is not a JSON object")
	}
	return object, nil
}

// check runs a checker with an evaluator and a state folder of its own.
func check(ctx context.Context, c checker, with nix.Config) (report, error) {
	folder, err := os.MkdirTemp("", "slipway-source-check-")
	if err != nil {
		return report{}, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	with.StateDir = filepath.Join(folder, "nix")
	if c.evaluator, err = nix.New(with); err != nil {
		return report{}, err
	}
	defer c.evaluator.Close()
	c.roots = filepath.Join(folder, "roots")
	return c.run(ctx)
}

// Status is what a check found.
type Status string

// What a check finds. Skipped: it needs something that is missing or wrong, or a
// configuration. A note is advice.
const (
	OK      Status = "ok"
	Missing Status = "missing"
	Wrong   Status = "wrong"
	Note    Status = "note"
	Skipped Status = "skipped"
)

// Finding is the result of one check.
type Finding struct {
	// What is an attribute of the source, or what else was checked.
	What   string `json:"what"`
	Status Status `json:"status"`
	// Message says what was found, Advice what to do.
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"`
}

type report struct {
	Source   string    `json:"source"`
	Snapshot string    `json:"snapshot,omitempty"`
	OK       bool      `json:"ok"`
	Findings []Finding `json:"findings"`
}

func (r *report) add(what string, status Status, message, advice string) {
	r.Findings = append(r.Findings, Finding{what, status, message, advice})
	if status == Missing || status == Wrong {
		r.OK = false
	}
}

func (r report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	const indent = "                         "
	for _, f := range r.Findings {
		text := strings.ReplaceAll(f.Message, "\n", "\n"+indent)
		if f.Advice != "" {
			text += "\n" + indent + "→ " + f.Advice
		}
		if _, err := fmt.Fprintf(out, "%-14s %-8s  %s\n", f.What, f.Status, text); err != nil {
			return err
		}
	}
	verdict := "The source keeps the contract."
	if !r.OK {
		verdict = "The source does not keep the contract."
	}
	_, err := fmt.Fprintf(out, "\n%s\n", verdict)
	return err
}

// found sorts the error of an evaluation: what is wrong with the source is a
// finding, what is wrong with the machine an error.
func found(err error) (status Status, message string, other error) {
	var failure *nix.Failure
	var source *nix.SourceError
	switch {
	case errors.As(err, &failure) && failure.Kind == nix.KindNoSuchAttribute:
		return Missing, failure.Message, nil
	case errors.As(err, &failure):
		return Wrong, failure.Message, nil
	case errors.As(err, &source) && !source.MayPass:
		return Wrong, source.Reason, nil
	}
	return "", "", err
}
