package up

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAStepThatTakesLongSaysWhatItWaitsFor(t *testing.T) {
	out := reasonSeen{done: make(chan struct{})}
	p := progress{&out, 10 * time.Millisecond}
	err := p.step(context.Background(), "slipway", func(_ context.Context, waits *waitsFor) error {
		waits.set("the schema")
		<-out.done
		return nil
	})
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(`(?m)^  … slipway, waits for: the schema \(\d+ s\)$`), out.String())
	require.Regexp(t, regexp.MustCompile(`(?m)^  slipway +\d+\.\d s$`), out.String())
}

// reasonSeen closes done when it says what a step waits for.
type reasonSeen struct {
	strings.Builder
	once sync.Once
	done chan struct{}
}

func (w *reasonSeen) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "waits for") {
		w.once.Do(func() { close(w.done) })
	}
	return w.Builder.Write(b)
}

func TestAStepThatFailsIsNotReportedAsDone(t *testing.T) {
	var out strings.Builder
	err := progress{&out, time.Hour}.step(context.Background(), "slipway", func(context.Context, *waitsFor) error { return errors.New("no") })
	require.EqualError(t, err, "no")
	require.Empty(t, out.String())
}

func TestAskReadyTellsWhatTheServiceWaitsFor(t *testing.T) {
	status := http.StatusServiceUnavailable
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"ready": false, "waitsFor": ["Temporal", "the schema of the source"]}`))
	}))
	defer server.Close()
	var waits waitsFor
	require.EqualError(t, askReady(context.Background(), server.URL, &waits), "it waits for: Temporal; the schema of the source")
	require.Equal(t, "Temporal; the schema of the source", waits.get())
	status = http.StatusOK
	require.NoError(t, askReady(context.Background(), server.URL, &waits))
}
