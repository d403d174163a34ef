package stand

import (
	"fmt"
	"os/exec"
)

// Command is a run of the slipway program with the environment of the stand's
// API, such as a second API whose flags give it addresses of its own.
func (s *Stand) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(Bin("slipway"), args...)
	cmd.Env, cmd.Dir = s.env(API), Root()
	return cmd
}

// Address is where a replica of the API listens for the deployments API, and
// LeaseAddress where it does for the deployment coordination API.
func (s *Stand) Address(piece string) string { return fmt.Sprintf("127.0.0.1:%d", s.ports[piece]) }

// LeaseAddress: see Address.
func (s *Stand) LeaseAddress(piece string) string {
	return fmt.Sprintf("127.0.0.1:%d", s.ports[piece+"Lease"])
}

// Readyz is the /readyz of a replica of the API or a worker.
func (s *Stand) Readyz(piece string) string {
	port := s.ports["health"]
	if piece != API {
		port = s.ports[piece+"Health"]
	}
	return fmt.Sprintf("http://127.0.0.1:%d/readyz", port)
}

// Metrics is the URL of the metrics of the API or a worker.
func (s *Stand) Metrics(piece string) string {
	port := s.ports["metrics"]
	if piece != API {
		port = s.ports[piece+"Metrics"]
	}
	return fmt.Sprintf("http://127.0.0.1:%d/metrics", port)
}
