package coordination

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCallersForget(t *testing.T) {
	for name, test := range map[string]struct {
		later time.Duration
		known bool
	}{
		"at once":                  {0, true},
		"just before":              {15*time.Second - 1, true},
		"after 15 s":               {15 * time.Second, false},
		"clock an hour ahead":      {time.Hour, false},
		"clock a moment behind":    {-1, false},
		"clock behind by an hour":  {-time.Hour, false},
		"an hour and 5 s too late": {time.Hour + 5*time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			c := newCallers(func() time.Time { return now })
			c.add(keyOf("a"), account{"application", "deploy"})
			now = now.Add(test.later)
			found, ok := c.find(keyOf("a"))
			require.Equal(t, test.known, ok)
			if ok {
				require.Equal(t, account{"application", "deploy"}, found)
			}
			_, ok = c.find(keyOf("b"))
			require.False(t, ok)
		})
	}
}

func TestCallersFull(t *testing.T) {
	now := start
	c := newCallers(func() time.Time { return now })
	fill := func(prefix string, n int) {
		for i := range n {
			c.add(keyOf(fmt.Sprint(prefix, i)), account{prefix, "deploy"})
		}
	}
	known := func(prefix string, n int) (known int) {
		for i := range n {
			if _, ok := c.find(keyOf(fmt.Sprint(prefix, i))); ok {
				known++
			}
		}
		return known
	}
	fill("old", 24)
	now = now.Add(10 * time.Second)
	fill("young", 1000)
	fill("late", 10)
	require.Equal(t, []int{24, 1000, 0}, []int{known("old", 24), known("young", 1000), known("late", 10)}, "nobody valid makes way")
	require.Len(t, c.known, maxCallers)

	c.add(keyOf("young0"), account{"renewed", "deploy"})
	found, _ := c.find(keyOf("young0"))
	require.Equal(t, "renewed", found.namespace, "one that is there already takes no other's place")

	now = now.Add(5 * time.Second)
	fill("late", 30)
	require.Equal(t, []int{0, 1000, 24}, []int{known("old", 24), known("young", 1000), known("late", 30)}, "what is over makes way")
	require.Len(t, c.known, maxCallers)
}

func TestCallersTogether(t *testing.T) {
	c := newCallers(time.Now)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for i := range 400 {
				name := fmt.Sprint(n%2, i)
				c.add(keyOf(name), account{name, "deploy"})
				if found, ok := c.find(keyOf(name)); ok && found.namespace != name {
					t.Errorf("%s was taken for %s", name, found.namespace)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, c.known, 800)
}
