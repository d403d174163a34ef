package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"slipway.dev/slipway/tests/stand"
)

// slipway is the stand that the tests of this package share. Its tests run in
// parallel, so it has slots for all of them.
var slipway *site

func TestMain(m *testing.M) {
	// The tests mostly wait, so more of them run at once than there are cores.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	panel = newFrontEnd()
	var err error
	if spans, err = newSpanCollector(); err != nil {
		panic(err)
	}
	started, err := stand.New(stand.Options{Env: []string{
		"SLIPWAY_CORS_ORIGINS=https://panel.example," + panel.URL,
		"SLIPWAY_NIX_MEMORY=768MiB", "SLIPWAY_NIX_SLOTS=100", "SLIPWAY_DEPLOYER_GRACE=1s", "SLIPWAY_DEPLOY_SLOTS=100",
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL, "OTEL_BSP_SCHEDULE_DELAY=200",
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s, err := newSite(started)
	if err != nil {
		fmt.Fprintln(os.Stderr, err, started.Close())
		os.Exit(1)
	}
	slipway = s
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, s.Logs())
	}
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
