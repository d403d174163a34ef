// Command histories records the histories that the replay test of package
// workflows replays: one run of each kind of each workflow. By itself it runs
// a whole slipway and plays every kind on it (after `make build`):
//
//	go run ./tests/histories
//
// With -address it takes them from a Temporal server that has seen them. It
// takes the newest run of a kind and keeps a file that exists, because old
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
	address := flags.String("address", "", "`host:port` of a Temporal frontend; empty plays on a slipway of its own")
	namespace := flags.String("namespace", client.DefaultNamespace, "Temporal namespace")
	folder := flags.String("out", "workflows/testdata/histories", "`folder` to write to")
	replace := flags.Bool("replace", false, "overwrite the files that exist")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(*folder, 0o755); err != nil {
		return err
	}
	save := func(address string) error { return saveAll(ctx, address, *namespace, *folder, *replace, out) }
	if *address == "" {
		return record(ctx, save)
	}
	return save(*address)
}

func saveAll(ctx context.Context, address, namespace, folder string, replace bool, out io.Writer) error {
	temporal, err := client.DialContext(ctx, client.Options{HostPort: address, Namespace: namespace})
	if err != nil {
		return fmt.Errorf("reach Temporal: %w", err)
	}
	defer temporal.Close()
	var problems []error
	for _, k := range kinds() {
		did, err := k.save(ctx, temporal, folder, replace)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", k.name, err))
			continue
		}
		_, _ = fmt.Fprintf(out, "%s: %s\n", k.name, did)
	}
	return errors.Join(problems...)
}
