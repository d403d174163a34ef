package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
)

// Host is the only address that the programs of slipway-dev listen on.
const Host = "127.0.0.1"

// Use is a port that a program is going to listen on.
type Use struct {
	// For names the listener for a person: "deployments API".
	For string
	// Port is the number, 1 to 65535.
	Port int
	// Choose says how to choose another one: "--api-port or DEV_API_PORT".
	Choose string
}

// Address is where the listener of a port is reached, as host:port.
func Address(port int) string { return net.JoinHostPort(Host, strconv.Itoa(port)) }

// Check reports every port of uses that cannot be listened on, all of them in
// one error: taken by another program, wanted twice, or no port number.
func Check(uses []Use) error {
	var problems []string
	first := make(map[int]Use, len(uses))
	for _, use := range uses {
		if other, twice := first[use.Port]; twice {
			problems = append(problems, fmt.Sprintf("port %d is wanted twice, for the %s (%s) and for the %s (%s)",
				use.Port, other.For, other.Choose, use.For, use.Choose))
			continue
		}
		first[use.Port] = use
		if err := try(use.Port); err != nil {
			problems = append(problems, fmt.Sprintf("port %d for the %s: %v; choose another with %s",
				use.Port, use.For, err, use.Choose))
		}
	}
	if problems == nil {
		return nil
	}
	return errors.New("nothing was started:\n  " + strings.Join(problems, "\n  "))
}

func try(port int) error {
	if port < 1 || port > 65535 {
		return errors.New("is not a port number (1 to 65535)")
	}
	listener, err := net.Listen("tcp", Address(port))
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return fmt.Errorf("cannot listen on it (%w)", err)
	}
	return listener.Close()
}

// The ports that Free picks from: above the well-known ones and below those
// that the kernel hands out for port 0 and for outgoing connections (32768 and
// up), so that what is free now is still free when the program gets to it.
const (
	lowest  = 20000
	highest = 31999
)

// Free returns n different ports that nobody listens on.
func Free(n int) ([]int, error) {
	var found []int
	listeners := make([]net.Listener, 0, n)
	defer func() {
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}()
	for range 100 * (n + 1) {
		if len(found) == n {
			return found, nil
		}
		port := lowest + rand.IntN(highest-lowest+1)
		// Held open until all are found, so that none is found twice.
		listener, err := net.Listen("tcp", Address(port))
		if err != nil {
			continue
		}
		listeners = append(listeners, listener)
		found = append(found, port)
	}
	return nil, fmt.Errorf("no %d free ports between %d and %d", n, lowest, highest)
}
