package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOthersAreAskedAllAtOnce(t *testing.T) {
	t.Parallel()
	first := make(chan struct{})
	h := &health{others: map[string]func(context.Context) error{
		"one":   func(context.Context) error { close(first); return nil },
		"two":   func(context.Context) error { <-first; return errors.New("sealed") },
		"three": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	}}
	states := map[string]string{temporal: fine}
	h.lookAtOthers(t.Context(), states)
	require.Equal(t, map[string]string{temporal: "ok", "one": "ok", "two": "sealed", "three": "context deadline exceeded"}, states)
}
