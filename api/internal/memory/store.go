package memory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"slipway.dev/slipway/schema/deployment"
)

// Store is empty at first. Its methods may be called from several goroutines.
type Store struct {
	// Kept is how many events of a deployment are kept; 0 for all. Set it
	// before use.
	Kept int

	mu          sync.Mutex
	deployments map[string]*record
	waiting     map[string]map[chan struct{}]struct{}
	names       map[string]deployment.Names
	source      deployment.Source
	snapshots   map[string]deployment.SourceSnapshot
	fail        error
	failBehind  int
	reads       map[string]int
	offers      [][3]string
}

type record struct {
	created time.Time
	builds  []*build // by number - 1
	events  []deployment.Event
	newest  int64
	said    deployment.State
	sboms   map[string]SBOM
}

// SBOM is what the store has of a node.
type SBOM struct {
	deployment.NodeSBOM
	// Text is the document of a ready one.
	Text string
	// Diff is the comparison with the earlier one; nil where there is none.
	Diff *deployment.SBOMDiff
	// Components are what ComponentUses finds.
	Components []deployment.SBOMComponent

	document deployment.SBOMDocument
}

type build struct {
	deployment.Build
	log      []byte
	snapshot string // of the module source
}

// New makes a store.
func New() *Store {
	return &Store{
		deployments: map[string]*record{},
		waiting:     map[string]map[chan struct{}]struct{}{},
		names:       map[string]deployment.Names{},
		snapshots:   map[string]deployment.SourceSnapshot{},
		reads:       map[string]int{},
	}
}

// Fail makes every read fail with err; nil ends that.
func (s *Store) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// FailBehind makes a list of deployments fail after it gave so many.
func (s *Store) FailBehind(given int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failBehind, s.fail = given, err
}

// Reads says how often a method of the Reader was called.
func (s *Store) Reads(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[method]
}

// SetSource sets the module source. Its snapshot stays when another one comes.
func (s *Store) SetSource(source deployment.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.source = source
	s.snapshots[source.Snapshot] = deployment.SourceSnapshot{
		StorePath: source.Snapshot, Schema: source.Schema, Method: source.Method, Methods: source.Methods, Renames: source.Renames,
	}
	for _, r := range s.deployments {
		for _, b := range r.builds {
			b.Older = b.snapshot != source.Snapshot
		}
	}
}

// SetSBOM sets the SBOM of a node of a deployment that has a build.
func (s *Store) SetSBOM(id string, sbom SBOM) {
	if sbom.Status == deployment.SBOMReady {
		sbom.document = deployment.SBOMDocument{Node: sbom.Node, Build: *sbom.Build, SpecVersion: sbom.SpecVersion,
			SHA256: sha256.Sum256([]byte(sbom.Text)), Size: int64(len(sbom.Text))}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.deployments[id]
	if r.sboms == nil {
		r.sboms = map[string]SBOM{}
	}
	r.sboms[sbom.Node] = sbom
}

// SetNames sets the result of an evaluation.
func (s *Store) SetNames(key string, names deployment.Names) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[key] = names
}

// Record records a build as queued, and supersedes the queued deploys.
func (s *Store) Record(id string, action deployment.Action, configuration string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.deployments[id]
	if !ok {
		r = &record{created: now()}
		s.deployments[id] = r
	}
	var changed []*build
	for _, b := range r.builds {
		if b.Status == deployment.StatusQueued && b.Action == deployment.ActionDeploy {
			b.Status, b.FinishedAt = deployment.StatusSuperseded, at(now())
			changed = append(changed, b)
		}
	}
	b := &build{Build: deployment.Build{
		Number: int64(len(r.builds) + 1), Action: action, Status: deployment.StatusQueued, CreatedAt: now(),
		WorkflowID: fmt.Sprintf("%s/%s/%d", action, id, len(r.builds)+1),
	}}
	if action == deployment.ActionDeploy {
		b.Evaluation = deployment.EvaluationEvaluated
		b.Nodes = []deployment.Node{{Name: "web", Names: []string{"www.example.org"}}}
		b.Configuration = json.RawMessage(configuration)
		b.snapshot = s.source.Snapshot
	}
	if action == deployment.ActionDestroy {
		b.Callback = &deployment.Callback{State: deployment.CallbackNone}
	}
	r.builds = append(r.builds, b)
	s.publish(id, append(changed, b)...)
	return b.Number
}

// Start gives a build its turn.
func (s *Store) Start(id string, n int64) { s.become(id, n, deployment.StatusRunning) }

// End ends a build.
func (s *Store) End(id string, n int64, status deployment.Status) { s.become(id, n, status) }

// Print adds to the log of a build.
func (s *Store) Print(id string, n int64, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.deployments[id].builds[n-1]
	b.log = append(b.log, text...)
	s.signal(id)
}

// PrintAndEnd does both in one step, as it may look to who was not signalled in
// between.
func (s *Store) PrintAndEnd(id string, n int64, text string, status deployment.Status) {
	s.mu.Lock()
	b := s.deployments[id].builds[n-1]
	b.log = append(b.log, text...)
	s.mu.Unlock()
	s.become(id, n, status)
}

// Change publishes a build once more, with another reason.
func (s *Store) Change(id string, n int64, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.deployments[id].builds[n-1]
	b.Reason = reason
	s.publish(id, b)
}

// SignalAll signals every subscriber, as after a reconnect.
func (s *Store) SignalAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.waiting {
		s.signal(id)
	}
}

func (s *Store) become(id string, n int64, status deployment.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.deployments[id].builds[n-1]
	b.Status = status
	if status == deployment.StatusRunning {
		b.StartedAt = at(now())
	} else {
		b.FinishedAt = at(now())
	}
	s.publish(id, b)
}

func (s *Store) publish(id string, changed ...*build) {
	r := s.deployments[id]
	add := func(e deployment.Event, data any) {
		text, err := json.Marshal(data)
		if err != nil {
			panic(err) // shapes of the schema
		}
		r.newest++
		e.Sequence, e.Data = r.newest, text
		r.events = append(r.events, e)
		if s.Kept > 0 && len(r.events) > s.Kept {
			r.events = r.events[len(r.events)-s.Kept:]
		}
	}
	for _, b := range changed {
		shown := b.Build
		shown.Configuration = nil
		add(deployment.Event{Kind: deployment.EventBuild, Build: b.Number, Status: b.Status}, shown)
	}
	if standing := r.standing(); standing.State != r.said {
		r.said = standing.State
		add(deployment.Event{Kind: deployment.EventState}, standing)
	}
	s.signal(id)
}

func (s *Store) signal(id string) {
	for c := range s.waiting[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// standing is the rule of schema/deployment.
func (r *record) standing() deployment.Standing {
	out := deployment.Standing{State: deployment.StateIdle, Since: r.created}
	for _, b := range r.builds {
		switch {
		case b.Status == deployment.StatusSucceeded && b.Action == deployment.ActionDeploy:
			out.State, out.Live = deployment.StateActive, &b.Number
		case b.Status == deployment.StatusSucceeded:
			out.State, out.Live = deployment.StateIdle, nil
		case b.Status == deployment.StatusFailed, b.Status == deployment.StatusCancelled && b.StartedAt != nil:
			out.State = deployment.StateFailed
		}
	}
	for _, b := range r.builds {
		switch {
		case b.Status.Ended():
		case b.Action == deployment.ActionDeploy:
			out.State = deployment.StateBuilding
		default:
			out.State = deployment.StateDestroying
		}
	}
	return out
}

func (r *record) deployment(id string) deployment.Deployment {
	d := deployment.Deployment{ID: id, Standing: r.standing()}
	for _, b := range r.builds {
		shown := b.Build
		if b.Configuration != nil {
			d.Configuration, d.Nodes, d.Older, d.Snapshot = b.Configuration, b.Nodes, b.Older, b.snapshot
		}
		if d.Live != nil && b.Number == *d.Live {
			d.Deployed = &deployment.Recorded{Configuration: b.Configuration, Snapshot: b.snapshot}
		}
		shown.Configuration = nil
		d.LatestBuild = &shown
	}
	return d
}

func now() time.Time { return time.Now().UTC() }

func at(t time.Time) *time.Time { return &t }

// read counts a read and finds its deployment.
func (s *Store) read(method, id string) (*record, error) {
	s.reads[method]++
	if s.fail != nil {
		return nil, s.fail
	}
	r, ok := s.deployments[id]
	if !ok {
		return nil, fmt.Errorf("%s: %w", id, deployment.ErrUnknown)
	}
	return r, nil
}

// Subscribe is that of the API's Listener.
func (s *Store) Subscribe(id string) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[id] == nil {
		s.waiting[id] = map[chan struct{}]struct{}{}
	}
	s.waiting[id][c] = struct{}{}
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting[id], c)
	}
}

// Subscribers says how many wait for changes of a deployment.
func (s *Store) Subscribers(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting[id])
}

// Deployment is that of the API's Reader, as are the methods below.
func (s *Store) Deployment(_ context.Context, id string) (deployment.Deployment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.read("Deployment", id)
	if err != nil {
		return deployment.Deployment{}, err
	}
	return r.deployment(id), nil
}

// Deployments gives those that exist.
func (s *Store) Deployments(_ context.Context, ids []string, yield func(deployment.Deployment) error) error {
	s.mu.Lock()
	s.reads["Deployments"]++
	fail, behind := s.fail, s.failBehind
	s.mu.Unlock()
	for i, id := range ids {
		if fail != nil && i >= behind {
			return fail
		}
		s.mu.Lock()
		r, ok := s.deployments[id]
		var d deployment.Deployment
		if ok {
			d = r.deployment(id)
		}
		s.mu.Unlock()
		if !ok {
			continue
		}
		if err := yield(d); err != nil {
			return err
		}
	}
	return nil
}

// Builds gives the newest first.
func (s *Store) Builds(_ context.Context, id string, limit int, before int64) ([]deployment.Build, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.read("Builds", id)
	if err != nil {
		return nil, err
	}
	var out []deployment.Build
	for _, b := range slices.Backward(r.builds) {
		if (before == 0 || b.Number < before) && len(out) < limit {
			shown := b.Build
			shown.Configuration = nil
			out = append(out, shown)
		}
	}
	return out, nil
}

// Build gives one with its configuration.
func (s *Store) Build(_ context.Context, ref deployment.Ref) (deployment.Build, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.read("Build", ref.Deployment)
	if err != nil {
		return deployment.Build{}, err
	}
	if ref.Build < 1 || ref.Build > int64(len(r.builds)) {
		return deployment.Build{}, fmt.Errorf("%s: %w", ref, deployment.ErrUnknown)
	}
	return r.builds[ref.Build-1].Build, nil
}

// Log gives a part of a log.
func (s *Store) Log(_ context.Context, ref deployment.Ref, from int64, limit int) (deployment.LogPiece, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.read("Log", ref.Deployment)
	if err != nil {
		return deployment.LogPiece{}, err
	}
	if ref.Build < 1 || ref.Build > int64(len(r.builds)) {
		return deployment.LogPiece{}, fmt.Errorf("%s: %w", ref, deployment.ErrUnknown)
	}
	b := r.builds[ref.Build-1]
	rest := b.log[min(from, int64(len(b.log))):]
	piece := rest[:min(limit, len(rest))]
	return deployment.LogPiece{Data: slices.Clone(piece), Ended: b.Status.Ended() && len(piece) == len(rest)}, nil
}

// OfferCallback is that of the API's Callbacks.
func (s *Store) OfferCallback(_ context.Context, id, url, token string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return "", s.fail
	}
	s.offers = append(s.offers, [3]string{id, url, token})
	return fmt.Sprintf("offer-%d", len(s.offers)), nil
}

// Offers are the deployments, URLs and tokens of all offers.
func (s *Store) Offers() [][3]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.offers)
}

// Snapshot gives a deployment and the place of its channel.
func (s *Store) Snapshot(_ context.Context, id string) (deployment.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.read("Snapshot", id)
	if err != nil {
		return deployment.Snapshot{}, err
	}
	return deployment.Snapshot{Deployment: r.deployment(id), Sequence: r.newest}, nil
}

// Events gives those behind a sequence that are kept.
func (s *Store) Events(_ context.Context, id string, after int64, limit int) (deployment.Events, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.read("Events", id)
	if err != nil {
		return deployment.Events{}, err
	}
	out := deployment.Events{Newest: r.newest}
	if len(r.events) > 0 {
		out.Oldest = r.events[0].Sequence
	}
	for _, e := range r.events {
		if e.Sequence > after && len(out.Events) < limit {
			out.Events = append(out.Events, e)
		}
	}
	return out, nil
}

// Names gives what SetNames set.
func (s *Store) Names(_ context.Context, key string) (deployment.Names, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, ok := s.names[key]
	if s.fail != nil {
		return names, s.fail
	}
	if !ok {
		return names, deployment.ErrUnknown
	}
	return names, nil
}

// SourceSnapshot gives one that SetSource set, now or before.
func (s *Store) SourceSnapshot(_ context.Context, storePath string) (deployment.SourceSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads["SourceSnapshot"]++
	if s.fail != nil && s.failBehind == 0 {
		return deployment.SourceSnapshot{}, s.fail
	}
	snapshot, ok := s.snapshots[storePath]
	if !ok {
		return snapshot, deployment.ErrUnknown
	}
	return snapshot, nil
}

// Source gives what SetSource set.
func (s *Store) Source(context.Context) (deployment.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failBehind > 0 {
		return s.source, nil
	}
	return s.source, s.fail
}

// SBOMs gives what SetSBOM set, as do the methods below.
func (s *Store) SBOMs(_ context.Context, id string) ([]deployment.NodeSBOM, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.read("SBOMs", id)
	if err != nil {
		return nil, err
	}
	var out []deployment.NodeSBOM
	for _, node := range slices.Sorted(maps.Keys(r.sboms)) {
		out = append(out, r.sboms[node].NodeSBOM)
	}
	return out, nil
}

// sbom finds the SBOM of a node that is ready.
func (s *Store) sbom(method, id, node string) (SBOM, error) {
	r, err := s.read(method, id)
	if err != nil {
		return SBOM{}, err
	}
	sbom, ok := r.sboms[node]
	switch {
	case !ok:
		return sbom, fmt.Errorf("node %s: %w", node, deployment.ErrUnknown)
	case sbom.Status != deployment.SBOMReady:
		return sbom, deployment.NoSBOM{Reason: sbom.Reason}
	}
	return sbom, nil
}

// SBOM describes one.
func (s *Store) SBOM(_ context.Context, id, node string) (deployment.SBOMDocument, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sbom, err := s.sbom("SBOM", id, node)
	if err != nil {
		return deployment.SBOMDocument{}, err
	}
	return sbom.document, nil
}

// SBOMText gives one.
func (s *Store) SBOMText(_ context.Context, id, node string) (deployment.SBOMDocument, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sbom, err := s.sbom("SBOMText", id, node)
	if err != nil {
		return deployment.SBOMDocument{}, nil, err
	}
	return sbom.document, []byte(sbom.Text), nil
}

// SBOMDiff gives the comparison.
func (s *Store) SBOMDiff(_ context.Context, id, node string) (deployment.SBOMDiff, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sbom, err := s.sbom("SBOMDiff", id, node)
	if err != nil {
		return deployment.SBOMDiff{}, err
	}
	if sbom.Diff == nil {
		return deployment.SBOMDiff{}, deployment.NoSBOM{Reason: "there is no earlier SBOM of the node"}
	}
	return *sbom.Diff, nil
}

// ComponentUses looks through all.
func (s *Store) ComponentUses(_ context.Context, query deployment.ComponentQuery, ids []string, limit int) ([]deployment.ComponentUse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads["ComponentUses"]++
	if s.fail != nil {
		return nil, s.fail
	}
	var out []deployment.ComponentUse
	for _, id := range slices.Sorted(maps.Keys(s.deployments)) {
		if ids != nil && !slices.Contains(ids, id) {
			continue
		}
		sboms := s.deployments[id].sboms
		for _, node := range slices.Sorted(maps.Keys(sboms)) {
			for _, c := range sboms[node].Components {
				found := c.PURL == query.PURL
				if query.PURL == "" {
					found = c.Name == query.Name && (query.Version == "" || c.Version == query.Version)
				}
				if found && len(out) < limit {
					out = append(out, deployment.ComponentUse{Deployment: id, Node: node, Build: *sboms[node].Build, Component: c})
				}
			}
		}
	}
	return out, nil
}
