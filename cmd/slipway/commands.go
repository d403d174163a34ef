package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/cmd/slipway/config"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/worker/codec"
)

// codecKeysVariable names the file with the keys of payloads, also for commands
// that read no other setting.
const codecKeysVariable = "SLIPWAY_CODEC_KEYS_FILE"

// setupRetry is how often the set-up commands try to reach what they set up.
const setupRetry = 2 * time.Second

func migrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the schema of the database up to date",
		Long: `Brings the schema of the database (SLIPWAY_DATABASE_URL) up to date. It may be
run at any time and by several at once; they wait for each other. Run it before
a new version of slipway serves.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, values, err := config.Read(os.Environ(), c.Flags())
			if err := errors.Join(err, config.Require(values, "SLIPWAY_DATABASE_URL")); err != nil {
				return err
			}
			s, err := store.Open(c.Context(), cfg.DatabaseURL, 2)
			if err != nil {
				return err
			}
			defer s.Close()
			version, err := s.Migrate(c.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "The database is at migration %d.\n", version)
			return err
		},
	}
	config.AddFlags(c.Flags())
	return c
}

func temporalSetupCommand() *cobra.Command {
	wait := time.Minute
	c := &cobra.Command{
		Use:   "temporal-setup",
		Short: "Register the search attributes of slipway with Temporal",
		Long: `Registers the search attributes that slipway's workflows carry, and waits until
Temporal accepts workflows that have them. It may be run at any time. The address
and the credentials of Temporal come from its own variables (TEMPORAL_ADDRESS,
TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_…) and
SLIPWAY_TEMPORAL_API_KEY_FILE.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), wait)
			defer cancel()
			t, namespace, err := temporalClient(&codec.Codec{}, os.Getenv(apiKeyFileVariable), zap.NewNop())
			if err != nil {
				return err
			}
			defer t.Close()
			for {
				err := registerAttributes(ctx, t, namespace)
				if err == nil {
					_, err = fmt.Fprintf(c.OutOrStdout(), "The namespace %s has the search attributes of slipway.\n", namespace)
					return err
				}
				_, _ = fmt.Fprintf(c.ErrOrStderr(), "waiting for Temporal: %v\n", err)
				select {
				case <-ctx.Done():
					return fmt.Errorf("register the search attributes: %w", err)
				case <-time.After(setupRetry):
				}
			}
		},
	}
	c.Flags().DurationVar(&wait, "wait", wait, "how long to wait for Temporal")
	return c
}

// registerAttributes adds what is missing and asks the namespace whether it
// has all.
func registerAttributes(ctx context.Context, t client.Client, namespace string) error {
	wanted := map[string]enums.IndexedValueType{
		wire.AttributeDeployment: enums.INDEXED_VALUE_TYPE_KEYWORD,
		wire.AttributeBuild:      enums.INDEXED_VALUE_TYPE_INT,
		wire.AttributeGroup:      enums.INDEXED_VALUE_TYPE_KEYWORD,
		wire.AttributeLeaseKind:  enums.INDEXED_VALUE_TYPE_KEYWORD,
	}
	operator := t.OperatorService()
	list := &operatorservice.ListSearchAttributesRequest{Namespace: namespace}
	have, err := operator.ListSearchAttributes(ctx, list)
	if err != nil {
		return err
	}
	for name, kind := range wanted {
		existing, ok := have.GetCustomAttributes()[name]
		if ok && existing != kind {
			return fmt.Errorf("the search attribute %s exists with the type %s, slipway needs %s", name, existing, kind)
		}
		if ok {
			continue
		}
		_, err := operator.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
			Namespace: namespace, SearchAttributes: map[string]enums.IndexedValueType{name: kind},
		})
		var exists *serviceerror.AlreadyExists
		if err != nil && !errors.As(err, &exists) {
			return err
		}
	}
	// What was added is seen by each of Temporal's processes a little later; a
	// query that names an attribute is refused until then.
	_, err = t.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: namespace,
		Query:     wire.AttributeDeployment + " = '' OR " + wire.AttributeGroup + " = ''",
	})
	return err
}

func configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration and where each value is from",
		Long: `Prints every setting with its value and whether that is the default, from the
environment or from a flag. Secrets are masked. Temporal has variables of its
own: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY and TEMPORAL_TLS_….`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, values, err := config.Read(os.Environ(), c.Flags())
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
			for _, v := range values {
				_, _ = fmt.Fprintf(w, "%s\t%s\t(%s)\t%s\n", v.Env, v.Shown(), v.From, v.Help)
			}
			return errors.Join(w.Flush(), err)
		},
	}
	config.AddFlags(c.Flags())
	return c
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program, its commit, and the date of that",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			_, err := fmt.Fprintln(c.OutOrStdout(), versionLine(info))
			return err
		},
	}
}

// versionLine is what the Go command has put into the program: the tag of the
// commit, or a version made of its date and hash, and the commit.
func versionLine(info *debug.BuildInfo) string {
	version, commit, date := "development", "unknown", "unknown"
	if info == nil {
		info = &debug.BuildInfo{}
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		version = v
	}
	changed := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.time":
			date = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return fmt.Sprintf("slipway %s (commit %s%s, date %s, %s)", version, commit, changed, date, runtime.Version())
}

// readCodec reads the keys of Temporal's payloads; without a file there are none.
func readCodec(path string) (*codec.Codec, error) {
	if path == "" {
		return &codec.Codec{}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", codecKeysVariable, err)
	}
	defer func() { _ = f.Close() }()
	c, err := codec.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", codecKeysVariable, path, err)
	}
	return c, nil
}
