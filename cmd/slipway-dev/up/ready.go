package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// poll tries f until it succeeds; after a limit it returns f's last error.
func poll(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not ready after %s", limit))
	defer cancel()
	var last error
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// askReady asks /readyz of slipway. Any answer but 200 says what it waits for:
// {"waitsFor": ["…"]}.
func askReady(ctx context.Context, url string, waits *waitsFor) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return err
	}
	var answer struct {
		WaitsFor []string `json:"waitsFor"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.WaitsFor) == 0 {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	text := strings.Join(answer.WaitsFor, "; ")
	waits.set(text)
	return fmt.Errorf("it waits for: %s", text)
}
