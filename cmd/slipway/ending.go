package main

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/cmd/slipway/config"
)

// stages makes the contexts of a process that is asked to stop by the end of ctx:
//
//	asked     ends first: the process is not ready, answers close their
//	          connection, and a leader lets go
//	parts     ends drain later, or when a part of group fails: nothing new is
//	          accepted, streams end, a worker takes no more tasks
//
// In between load balancers find out. Until they have, they send new
// connections here, which nobody but this process would answer. asked ends with
// parts at the latest.
func stages(ctx context.Context, drain time.Duration) (group *errgroup.Group, parts, asked context.Context) {
	drained, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(drain, end) })
	group, parts = errgroup.WithContext(drained)
	asked, ask := context.WithCancel(ctx)
	context.AfterFunc(parts, ask)
	return group, parts, asked
}

// drain is for how long the parts go on. Nobody connects to a worker.
func (p parts) drain(cfg config.Config) time.Duration {
	if !p.api {
		return 0
	}
	return cfg.DrainTimeout
}

// closing makes the answers of a process that was asked to stop the last ones of
// their connections. Connections without a request stay until the end: one that
// is closed may have a request on its way.
func closing(asked context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
