package secrets

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/alerts"
	"slipway.dev/slipway/tests/stand"
)

// The deployment of the canary has a title that is no secret: where the search
// does not find it, it has not searched.
const canary = "canary"

// traces are what is known of it afterwards.
type traces struct{ title, channel string }

// live takes the canary through a life, with its channel open.
func (s *site) live(t *testing.T) (left traces) {
	left.title = "title." + rand.Text()
	with := func(more members) members {
		more["title"] = left.title
		return forum(members{key: s.secret(canary), "mail": mail(s.secret(canary))}, more)
	}
	s.submit(t, canary, "one", with(members{"deploy": "gate"}))
	heard := s.listen(t, canary)
	s.atGate(t, canary, "deploy")
	s.open(t, canary)
	s.ended(t, canary, "one")
	s.submit(t, canary, "fails", with(members{"deploy": "fail"}))
	s.ended(t, canary, "fails")
	require.Equal(t, deployment.StateFailed, s.settled(t, canary).State)
	a := s.do(t, http.MethodPost, "/deployments/"+canary+"/preview", "", members{"configuration": with(members{})})
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	a = s.put(t, canary, "refused", with(members{"refuse": true}))
	require.Equal(t, "invalid_configuration", a.Error, a.Body)
	require.Equal(t, http.StatusBadRequest, s.put(t, canary, "invalid", with(members{"unknown": s.secret(canary)})).Status)
	a = s.destroy(t, canary)
	s.hauledOut(t, canary, a.Build)
	left.channel = heard()
	return left
}

// listen opens a channel; heard is what it sent.
func (s *site) listen(t *testing.T, id string) (heard func() string) {
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/deployments/"+id+"/events?log=true", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+s.Token(issuer.Claims{}))
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	var text bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&text, response.Body) // until it is cancelled
		_ = response.Body.Close()
	}()
	return func() string {
		cancel()
		<-done
		return text.String()
	}
}

// forms are how a word may be written: as it is, and as columns and payloads of
// bytes are.
func forms(word string) [][]byte {
	forms := [][]byte{[]byte(word), []byte(hex.EncodeToString([]byte(word)))}
	for before := range 3 {
		// Both ends depend on what is around the word.
		encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), word...))
		forms = append(forms, []byte(encoded[(before*8+5)/6:len(encoded)-2]))
	}
	return forms
}

func contains(text []byte, word string) bool {
	return slices.ContainsFunc(forms(word), func(form []byte) bool { return bytes.Contains(text, form) })
}

// place is a text in which no secret may be, and words that must be in it.
type place struct {
	text  []byte
	words []string
}

// search looks for every value that any step used wherever slipway writes.
func (s *site) search(t *testing.T, left traces, processes *watch) {
	s.mu.Lock()
	values, answers := slices.Clone(s.values), slices.Clone(s.answers.Bytes())
	s.mu.Unlock()
	title := []string{left.title}
	histories := s.histories(t)
	places := map[string]place{
		"answers":   {answers, title},
		"events":    {[]byte(left.channel), []string{"event: state", "event: build", "event: log", left.title}},
		"histories": {histories, title},
		"metrics":   {append(s.get(t, s.Metrics(stand.API)), s.get(t, s.Metrics(stand.Worker))...), []string{"slipway_"}},
		"store":     {s.newInStore(t), title},
		"processes": {processes.text(), []string{inArguments, inEnvironment}},
	}
	words := map[string][]string{"builds": title, "build_log": title, "deployments": {canary}}
	for table, text := range s.tables(t) {
		places["table "+table] = place{text, words[table]}
	}
	words = map[string][]string{stand.API: {"requestId", "wrap the secrets"}, stand.Worker: {canary}}
	for _, piece := range []string{stand.API, stand.Worker, stand.Postgres, stand.Temporal} {
		text, err := os.ReadFile(filepath.Join(s.Dir, "logs", piece+".log"))
		require.NoError(t, err)
		places["log of "+piece] = place{text, words[piece]}
	}
	for number := range 2 {
		text := s.get(t, fmt.Sprintf("%s/deployments/%s/builds/%d/log", s.URL, canary, number+1))
		places[fmt.Sprintf("log of build %d", number+1)] = place{text, title}
	}
	for name, p := range places {
		for _, word := range p.words {
			if !contains(p.text, word) {
				t.Errorf("%s: %q is not there: what was searched?", name, word)
			}
		}
		s.clean(t, name, p.text, values)
	}
	missing, err := alerts.Missing(string(places["metrics"].text), "slipway_openbao_")
	require.NoError(t, err)
	require.Empty(t, missing, "what alerts and dashboard ask for")
	s.searchFiles(t, left.title, values)
	s.wrappingIsOver(t, histories)
}

// clean says that no value is in a text, nor a token for the server.
func (s *site) clean(t *testing.T, name string, text []byte, values []string) {
	t.Helper()
	for _, value := range slices.Concat(values, s.tokens) {
		if contains(text, value) {
			t.Errorf("%s: a secret of %.8s… is there", name, value)
		}
	}
}

// searchFiles reads what was written to temporary folders and the stand's own,
// in which PostgreSQL and Temporal keep their files too.
func (s *site) searchFiles(t *testing.T, title string, values []string) {
	const largest = 64 << 20
	found, looked := false, 0
	for _, root := range []string{s.Dir, os.TempDir(), "/nix/var", "/var/tmp"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil // it is gone, or somebody else's
			}
			if entry.IsDir() && root != s.Dir && (path == s.Dir || strings.HasPrefix(entry.Name(), "go-build")) {
				return fs.SkipDir
			}
			info, err := entry.Info()
			if err != nil || !entry.Type().IsRegular() || info.ModTime().Before(s.begin) || info.Size() > largest {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			looked++
			found = found || contains(text, title)
			for _, value := range values {
				if contains(text, value) {
					t.Errorf("%s: a secret of %.8s… is there", path, value)
				}
			}
			return nil
		}))
	}
	require.True(t, found, "%d files have not even the title", looked)
}

// tables are all of PostgreSQL that is not its own, as text.
func (s *site) tables(t *testing.T) map[string][]byte {
	rows, err := s.database.Query(t.Context(), `
		SELECT format('%I.%I', table_schema, table_name), table_name FROM information_schema.tables
		WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')`)
	require.NoError(t, err)
	defer rows.Close()
	names := map[string]string{}
	for rows.Next() {
		var full, name string
		require.NoError(t, rows.Scan(&full, &name))
		names[name] = full
	}
	require.NoError(t, rows.Err())
	tables := map[string][]byte{}
	for name, full := range names {
		var text string
		require.NoError(t, s.database.QueryRow(t.Context(), `SELECT coalesce(string_agg(t::text, E'\n'), '') FROM `+full+` AS t`).Scan(&text))
		tables[name] = []byte(text)
	}
	require.Contains(t, tables, "preparing")
	return tables
}

// histories are all events of all runs. Payloads are JSON, which protobuf
// leaves as it is.
func (s *site) histories(t *testing.T) []byte {
	var text bytes.Buffer
	in := &workflowservice.ListWorkflowExecutionsRequest{}
	for {
		page, err := s.temporal.ListWorkflow(t.Context(), in)
		require.NoError(t, err)
		for _, run := range page.GetExecutions() {
			text.WriteString(run.String())
			id := run.GetExecution()
			events := s.temporal.GetWorkflowHistory(t.Context(), id.GetWorkflowId(), id.GetRunId(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
			for events.HasNext() {
				event, err := events.Next()
				require.NoError(t, err)
				raw, err := proto.Marshal(event)
				require.NoError(t, err)
				text.Write(raw)
			}
		}
		if in.NextPageToken = page.GetNextPageToken(); len(in.NextPageToken) == 0 {
			return text.Bytes()
		}
	}
}

var wrappedToken = regexp.MustCompile(`"wrapped":"([^"]+)"`)

// wrappingIsOver: no token in the histories is of use to anybody. One whose submit
// was given up before it was unwrapped has a minute to expire.
func (s *site) wrappingIsOver(t *testing.T, histories []byte) {
	tokens := wrappedToken.FindAllSubmatch(histories, -1)
	require.NotEmpty(t, tokens)
	anonymous, err := server.Root().Clone()
	require.NoError(t, err)
	anonymous.ClearToken()
	spent := 0
	for _, token := range tokens {
		first := true
		await(t, func() error {
			_, err := anonymous.Logical().WriteWithContext(t.Context(), "sys/wrapping/lookup", map[string]any{"token": string(token[1])})
			if err == nil {
				first = false
				return errors.New("it can still be unwrapped")
			}
			if first {
				spent++
			}
			return nil
		})
	}
	require.Greater(t, 2*spent, len(tokens), "hardly any was used")
}

// get reads what a client may read.
func (s *site) get(t *testing.T, url string) []byte {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+s.Token(issuer.Claims{}))
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", text)
	return text
}

const store = "/nix/store"

// newInStore is all in the Nix store that was not there before.
func (s *site) newInStore(t *testing.T) []byte {
	var text bytes.Buffer
	for name := range storePaths(t) {
		if s.storeBefore[name] {
			continue
		}
		require.NoError(t, filepath.WalkDir(filepath.Join(store, name), func(path string, entry fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil // collected meanwhile
			}
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			text.WriteString(path)
			text.Write(content)
			return err
		}))
	}
	return text.Bytes()
}

func storePaths(t *testing.T) map[string]bool {
	entries, err := os.ReadDir(store)
	require.NoError(t, err)
	paths := map[string]bool{}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			paths[entry.Name()] = true
		}
	}
	return paths
}

// What a process has that the watch must have seen.
const inArguments, inEnvironment = "planted-in-arguments", "planted-in-environment"

// watch keeps the arguments and environments of all processes.
type watch struct {
	mu   sync.Mutex
	seen map[string]bool
	end  context.CancelFunc
	done chan struct{}
}

// watchProcesses looks at all processes again and again, until the test ends.
func watchProcesses(t *testing.T) *watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{seen: map[string]bool{}, end: cancel, done: make(chan struct{})}
	child := exec.Command("sleep", "600")
	child.Args[0], child.Env = inArguments, []string{"PLANTED=" + inEnvironment}
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		require.NoError(t, child.Process.Kill())
		_ = child.Wait()
	})
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			w.look()
			time.Sleep(60 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { w.end(); <-w.done })
	return w
}

func (w *watch) look() {
	for _, name := range []string{"cmdline", "environ"} {
		files, _ := filepath.Glob("/proc/[0-9]*/" + name)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // it has ended
			}
			w.mu.Lock()
			w.seen[string(text)] = true
			w.mu.Unlock()
		}
	}
}

func (w *watch) text() []byte {
	w.end()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	var text bytes.Buffer
	for one := range w.seen {
		text.WriteString(one)
		text.WriteByte('\n')
	}
	return text.Bytes()
}
