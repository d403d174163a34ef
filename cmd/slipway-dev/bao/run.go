package bao

import (
	"context"
	"fmt"
)

// Run starts a server, applies Setup, writes the files with credentials (see
// the package) and calls ready. It returns nil after ctx is done and the server
// has stopped, and an error when something could not start or ended by itself.
func Run(ctx context.Context, options Options, kubernetes *Kubernetes, ready func() error) error {
	s, err := Start(ctx, options)
	if err == nil {
		defer s.Close()
		err = s.run(ctx, kubernetes, ready)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *Server) run(ctx context.Context, kubernetes *Kubernetes, ready func() error) error {
	if err := s.Setup(ctx, kubernetes); err != nil {
		return err
	}
	if err := s.writeCredentials(ctx); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	if err := s.wait(ctx); err != nil {
		return fmt.Errorf("bao: %w", err)
	}
	return nil
}

func (s *Server) writeCredentials(ctx context.Context) error {
	root, err := s.Root()
	if err != nil {
		return err
	}
	token, err := Token(ctx, root, TokenOptions{Policies: []string{Name}, Period: TokenTime})
	if err != nil {
		return err
	}
	nodes, err := Token(ctx, root, TokenOptions{Policies: []string{NodesName}, TTL: NodesTokenTime})
	if err != nil {
		return err
	}
	roleID, secretID, err := AppRole(ctx, root, Name)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"token": token, "nodes-token": nodes, "role-id": roleID, "secret-id": secretID} {
		if err := write(s.File(name), text+"\n"); err != nil {
			return fmt.Errorf("bao: %w", err)
		}
	}
	return nil
}
