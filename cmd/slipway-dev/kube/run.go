package kube

import (
	"context"
	"fmt"
	"sync"
)

// Run starts a server, applies Setup and Example, writes the files with
// credentials (see the package) and calls ready. It keeps the tokens fresh
// until ctx is done, stops the server and returns nil. It returns an error when
// something could not start or ended by itself.
func Run(ctx context.Context, options Options, ready func() error) error {
	s, err := Start(ctx, options)
	if err == nil {
		defer s.Close()
		err = s.run(ctx, ready)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *Server) run(ctx context.Context, ready func() error) error {
	if err := s.Setup(ctx); err != nil {
		return err
	}
	if err := s.Example(ctx); err != nil {
		return err
	}
	if _, err := s.WriteKubeconfig(ctx); err != nil {
		return err
	}
	if err := s.writeToken(ctx, exampleToken()); err != nil {
		return err
	}
	var fresh sync.WaitGroup
	defer fresh.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, file := range []tokenFile{ownToken(), exampleToken()} {
		fresh.Go(func() { s.keepFresh(ctx, file) })
	}
	if err := ready(); err != nil {
		return err
	}
	if err := s.wait(ctx); err != nil {
		return fmt.Errorf("kube: %w", err)
	}
	return nil
}
