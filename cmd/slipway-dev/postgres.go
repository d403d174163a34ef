package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/cmd/slipway-dev/postgres"
)

func postgresCommand(env lookup) *cobra.Command {
	options := postgres.Options{Output: os.Stderr}
	var urlPath string
	command := &cobra.Command{
		Use:   "postgres",
		Short: "Run a private PostgreSQL in the foreground",
		Long: `Runs a private PostgreSQL in the foreground: the machine's own binaries, on a
data folder of its own, with a database slipway. Other clusters of the machine
are not touched. Started as root, PostgreSQL runs as the user postgres or nobody.

When it accepts connections it prints the URL of the database and writes it, with
the password, to --url-file (mode 0600). That file is removed at the start, so
waiting for it to appear is waiting for the server.

Ctrl-C or SIGTERM stops it within seconds. It may also be killed at any moment,
and so may PostgreSQL itself: started again on the same folder it recovers.`,
		Args: cobra.NoArgs,
	}
	flags := command.Flags()
	flags.StringVar(&options.Folder, "data-dir", ".slipway/postgres", "folder of the data and the password")
	port := newPortFlag(flags, "PostgreSQL server", "port", "DEV_POSTGRES_PORT", 5433)
	flags.StringVar(&urlPath, "url-file", "", "file for the URL of the database (default: url, in the data folder)")
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := port.resolve(command.Flags(), env); err != nil {
			return err
		}
		options.Port = port.use()
		if urlPath == "" {
			urlPath = filepath.Join(options.Folder, "url")
		}
		url := readyFile{urlPath}
		if err := url.remove(); err != nil {
			return err
		}
		ctx, cancel := untilStopped(command.Context())
		defer cancel()
		return postgres.Run(ctx, options, func(databaseURL string) error {
			fmt.Fprintln(command.OutOrStdout(), databaseURL)
			return url.write(databaseURL + "\n")
		})
	}
	return command
}
