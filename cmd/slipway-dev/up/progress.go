package up

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// progress tells a person what happens, one line a step, with its time. A step
// that takes longer says so while it lasts.
type progress struct {
	out io.Writer
	// quiet is how long a step may take before the first line about it.
	quiet time.Duration
}

// waitsFor is what a step waits for, as a step last learned it.
type waitsFor struct {
	mu   sync.Mutex
	text string
}

func (w *waitsFor) set(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = text
}

func (w *waitsFor) get() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text
}

// step runs f and prints its name and time when it has succeeded. While f
// lasts, there is a line after the quiet time, after twice and four times that
// and so on, and whenever what it waits for changes.
func (p progress) step(ctx context.Context, name string, f func(ctx context.Context, waits *waitsFor) error) error {
	start := time.Now()
	var waits waitsFor
	done := make(chan error, 1)
	go func() { done <- f(ctx, &waits) }()
	next, said := p.quiet, ""
	look := time.NewTicker(min(p.quiet, 200*time.Millisecond))
	defer look.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "  %-58s %6.1f s\n", name, time.Since(start).Seconds())
			return nil
		case <-look.C:
			passed, now := time.Since(start), waits.get()
			if passed < p.quiet || passed < next && now == said {
				continue
			}
			line := "  … " + name
			if now != "" {
				line += ", waits for: " + now
			}
			fmt.Fprintf(p.out, "%s (%.0f s)\n", line, passed.Seconds())
			said = now
			for next <= passed {
				next *= 2
			}
		}
	}
}
