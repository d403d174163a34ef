package leaseclient

import (
	"time"

	"golang.org/x/sys/unix"
)

// KillLead is how long before the deadline nothing may be running any more.
const KillLead = 500 * time.Millisecond

// Lead is how long before the deadline work under a lease is asked to end:
// a sixth of the TTL, and a second at least.
func Lead(ttl time.Duration) time.Duration { return max(time.Second, ttl/6) }

// Clock is what deadlines are judged by. The zero value is the machine's.
type Clock struct {
	// Wall is the time of day. It may be set, forwards and backwards.
	Wall func() time.Time
	// Boot is CLOCK_BOOTTIME: time since some start, with the time that the
	// machine slept. Processes of one machine have the same.
	Boot func() time.Duration
}

func (c Clock) wall() time.Time {
	if c.Wall == nil {
		return time.Now()
	}
	return c.Wall()
}

func (c Clock) boot() time.Duration {
	if c.Boot == nil {
		return bootTime()
	}
	return c.Boot()
}

func bootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux since 2.6.39 has it
	}
	return time.Duration(t.Nano())
}

// Deadline is when authority ends: at whichever of the two comes first. It may
// be handed to another process of the machine.
type Deadline struct {
	// Boot is a time of Clock.Boot, in nanoseconds.
	Boot time.Duration `json:"boot"`
	// Wall is expiresAt as the API has it.
	Wall time.Time `json:"wall"`
}

// Left is how long it is until the deadline; below 0 when it has passed.
func (d Deadline) Left(c Clock) time.Duration {
	return min(d.Boot-c.boot(), d.Wall.Sub(c.wall()))
}

// and is the deadline of both.
func (d Deadline) and(other Deadline) Deadline {
	d.Boot = min(d.Boot, other.Boot)
	if other.Wall.Before(d.Wall) {
		d.Wall = other.Wall
	}
	return d
}
