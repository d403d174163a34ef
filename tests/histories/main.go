// Command histories fetches the history of one run of each kind from a
// Temporal server that has seen them, as the replay test of package workflows
// reads it:
//
//	go run ./tests/histories -address 127.0.0.1:7233 -out workflows/testdata/histories
//
// It takes the newest run of a kind and keeps a file that exists, because old
// histories are what the replay test is for; -replace overwrites them. It
// fails when the server has no run of some kind, after it has written the
// others.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"go.temporal.io/sdk/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "histories:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("histories", flag.ContinueOnError)
	address := flags.String("address", client.DefaultHostPort, "`host:port` of the Temporal frontend")
	namespace := flags.String("namespace", client.DefaultNamespace, "Temporal namespace")
	folder := flags.String("out", "workflows/testdata/histories", "`folder` to write to")
	replace := flags.Bool("replace", false, "overwrite the files that exist")
	if err := flags.Parse(args); err != nil {
		return err
	}
	temporal, err := client.DialContext(ctx, client.Options{HostPort: *address, Namespace: *namespace})
	if err != nil {
		return fmt.Errorf("reach Temporal: %w", err)
	}
	defer temporal.Close()
	if err := os.MkdirAll(*folder, 0o755); err != nil {
		return err
	}
	var problems []error
	for _, k := range kinds() {
		did, err := k.save(ctx, temporal, *folder, *replace)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", k.name, err))
			continue
		}
		_, _ = fmt.Fprintf(out, "%s: %s\n", k.name, did)
	}
	return errors.Join(problems...)
}
