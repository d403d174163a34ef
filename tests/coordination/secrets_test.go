package coordination

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/tests/stand"
)

// secrets are the tokens that the tests saw or sent.
type secrets struct {
	mu    sync.Mutex
	known map[string]bool
}

func (s *secrets) add(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.known[token] = true
}

// addLeaseToken adds the token in the body of a grant.
func (s *secrets) addLeaseToken(body []byte) {
	var grant struct{ Token string }
	if json.Unmarshal(body, &grant) == nil && grant.Token != "" {
		s.add(grant.Token)
	}
}

func (s *secrets) all() (tokens, hashes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token := range s.known {
		sum := sha256.Sum256([]byte(token))
		tokens, hashes = append(tokens, token), append(hashes, hex.EncodeToString(sum[:]))
	}
	return tokens, hashes
}

// check is made after all tests.
func (s *shared) check(ctx context.Context) error {
	return errors.Join(s.checkSecrets(ctx), s.checkRights(ctx))
}

// checkSecrets looks for tokens where people and other programs look.
func (s *shared) checkSecrets(ctx context.Context) error {
	tokens, hashes := s.secrets.all()
	places, err := s.places(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for place, text := range places {
		if len(text) == 0 {
			errs = append(errs, fmt.Errorf("%s is empty: nothing was looked at", place))
		}
		if n := count(text, tokens); n > 0 {
			errs = append(errs, fmt.Errorf("%s holds %d tokens", place, n))
		}
		// The two that need the hash of a lease token show that this would find one.
		stored := place == "histories" || place == "leases"
		n := count(text, hashes)
		if stored && n == 0 && count(text, []string{"migration"}) > 0 {
			errs = append(errs, fmt.Errorf("%s holds no hash of a token: what was looked at?", place))
		}
		if !stored && n > 0 {
			errs = append(errs, fmt.Errorf("%s holds %d hashes of tokens", place, n))
		}
	}
	return errors.Join(errs...)
}

func count(text []byte, words []string) (n int) {
	for _, word := range words {
		if bytes.Contains(text, []byte(word)) {
			n++
		}
	}
	return n
}

// places are the texts in which no token may be.
func (s *shared) places(ctx context.Context) (map[string][]byte, error) {
	places := map[string][]byte{}
	logs, err := filepath.Glob(filepath.Join(s.Dir, "logs", "*.log"))
	if err != nil {
		return nil, err
	}
	for _, log := range logs {
		if places["log "+filepath.Base(log)], err = os.ReadFile(log); err != nil {
			return nil, err
		}
	}
	if places["metrics"], err = s.metrics(ctx, stand.API); err != nil {
		return nil, err
	}
	if places["histories"], err = s.histories(ctx); err != nil {
		return nil, err
	}
	core, coordination := s.admin.CoreV1(), s.admin.CoordinationV1()
	for name, list := range map[string]func() (any, error){
		"events":   func() (any, error) { return core.Events("").List(ctx, metav1.ListOptions{}) },
		"leases":   func() (any, error) { return coordination.Leases("").List(ctx, metav1.ListOptions{}) },
		"mfgroups": func() (any, error) { return s.groups("").List(ctx, metav1.ListOptions{}) },
	} {
		found, err := list()
		if err != nil {
			return nil, err
		}
		if places[name], err = json.Marshal(found); err != nil {
			return nil, err
		}
	}
	return places, nil
}

func (s *shared) metrics(ctx context.Context, piece string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Metrics(piece), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}

// histories are the events of all runs. The payloads are JSON, which protobuf
// leaves as it is.
func (s *shared) histories(ctx context.Context) ([]byte, error) {
	var text bytes.Buffer
	in := &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType IN ('%s', '%s')", wire.WorkflowLease, wire.WorkflowPlanned),
	}
	for {
		page, err := s.temporal.ListWorkflow(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, run := range page.GetExecutions() {
			id := run.GetExecution()
			text.WriteString(run.String())
			events := s.temporal.GetWorkflowHistory(ctx, id.GetWorkflowId(), id.GetRunId(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
			for events.HasNext() {
				event, err := events.Next()
				if err != nil {
					return nil, err
				}
				raw, err := proto.Marshal(event)
				if err != nil {
					return nil, err
				}
				text.Write(raw)
			}
		}
		if in.NextPageToken = page.GetNextPageToken(); len(in.NextPageToken) == 0 {
			return text.Bytes(), nil
		}
	}
}

var forbidden = regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*code="403"[^}]*\} .*$`)

// checkRights: the API server refused nothing to anybody, so slipway has the
// rights that it needs.
func (s *shared) checkRights(ctx context.Context) error {
	text, err := s.apiServerMetrics(ctx)
	if err != nil {
		return err
	}
	if refused := forbidden.FindAllString(text, -1); len(refused) > 0 {
		return fmt.Errorf("the API server refused calls:\n%s", strings.Join(refused, "\n"))
	}
	return nil
}

func (s *shared) apiServerMetrics(ctx context.Context) (string, error) {
	text, err := s.admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err == nil && !bytes.Contains(text, []byte("apiserver_request_total{")) {
		err = errors.New("the API server counts no requests")
	}
	return string(text), err
}
