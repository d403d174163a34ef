package auth

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTickets(t *testing.T) {
	now := time.Unix(1_700_000_000, 5e8)
	tickets, err := NewTickets([]byte(strings.Repeat("k", 32)))
	require.NoError(t, err)
	replica, err := NewTickets([]byte(strings.Repeat("k", 32)))
	require.NoError(t, err)
	other, err := NewTickets([]byte(strings.Repeat("o", 32)))
	require.NoError(t, err)

	ticket, expires := tickets.Issue("one", now, now.Add(10*time.Minute))
	require.True(t, expires.Equal(time.Unix(1_700_000_600, 0)))
	for range 2 { // it may be used again
		until, err := replica.Check(ticket, "one", now)
		require.NoError(t, err)
		require.True(t, until.Equal(expires))
	}
	_, err = replica.Check(ticket, "one", expires.Add(-time.Nanosecond))
	require.NoError(t, err)
	_, err = replica.Check(ticket, "one", expires)
	require.ErrorContains(t, err, "expired")

	_, expires = tickets.Issue("one", now, now.Add(24*time.Hour))
	require.True(t, expires.Equal(time.Unix(1_700_003_600, 0)), "an hour at most")

	statement, signature, _ := strings.Cut(ticket, ".")
	decoded, err := base64.RawURLEncoding.DecodeString(statement)
	require.NoError(t, err)
	later := append([]byte{}, decoded...)
	later[0]++
	longer, _ := tickets.Issue("one-more", now, now.Add(time.Minute))
	for name, c := range map[string]struct {
		tickets            Tickets
		ticket, deployment string
	}{
		"another deployment":   {tickets, ticket, "two"},
		"a prefix":             {tickets, longer, "one"},
		"no deployment":        {tickets, ticket, ""},
		"another key":          {other, ticket, "one"},
		"empty":                {tickets, "", "one"},
		"dot":                  {tickets, ".", "one"},
		"no signature":         {tickets, statement + ".", "one"},
		"cut signature":        {tickets, ticket[:len(ticket)-2], "one"},
		"another statement":    {tickets, base64.RawURLEncoding.EncodeToString(later) + "." + signature, "one"},
		"more behind":          {tickets, ticket + ".", "one"},
		"not base64":           {tickets, "é." + signature, "one"},
		"signed but too short": {tickets, base64.RawURLEncoding.EncodeToString([]byte("x")) + "." + base64.RawURLEncoding.EncodeToString(tickets.sign([]byte("x"))), "one"},
	} {
		_, err := c.tickets.Check(c.ticket, c.deployment, now)
		require.ErrorContains(t, err, "not valid", name)
	}
	_, err = NewTickets(make([]byte, 31))
	require.ErrorContains(t, err, "31 bytes")
}
