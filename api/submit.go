package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// giveUpTime is how long a workflow may take to hear that its secrets do not
// come.
const giveUpTime = 5 * time.Second

// checked is a configuration that the schema accepts.
type checked struct {
	source current
	// value is the configuration without secrets, and configuration the same as
	// canonical JSON.
	value         any
	configuration json.RawMessage
	// secrets are what it says about the secrets of its applications, and given
	// those that it gives a value.
	secrets []configuration.ApplicationSecrets
	given   []configuration.Secret
}

// check reads the body of a submit or preview and makes the checks that need no
// evaluation ("Order of a submit", 1 to 3).
func (a *api) check(w http.ResponseWriter, r *http.Request) (checked, error) {
	value, err := a.readBody(w, r, "configuration")
	if err != nil {
		return checked{}, err
	}
	return a.checkConfiguration(r.Context(), value)
}

func (a *api) checkConfiguration(ctx context.Context, value any) (checked, error) {
	if _, ok := value.(map[string]any); !ok {
		return checked{}, refuse(codeInvalidRequest, `the member "configuration" is not an object`)
	}
	source, err := a.current(ctx)
	if err != nil {
		return checked{}, err
	}
	ok := checked{source: source}
	rest, given := source.Schema.Split(value)
	var problems []configuration.Problem
	ok.value, ok.secrets, problems = source.Schema.Secrets(rest, given, source.renames)
	ok.given = given
	if a.Sealer == nil {
		for _, secret := range given {
			problems = append(problems, configuration.Problem{Path: secret.Path,
				Message: "this installation keeps no secrets (OPENBAO_ADDR is not set)"})
		}
	}
	if problems = append(problems, source.Schema.ValidateWith(ok.value, given)...); len(problems) > 0 {
		return checked{}, &failure{code: codeInvalidConfiguration, message: "the configuration is not valid", details: detailsOf(problems)}
	}
	if ok.configuration, err = configuration.Canonical(ok.value); err != nil {
		return checked{}, err
	}
	return ok, nil
}

// source reads the module source that submits are checked against, which there
// is from its first successful evaluation on.
func (a *api) source(ctx context.Context) (deployment.Source, error) {
	source, err := a.Reader.Source(ctx)
	switch {
	case err != nil:
		return source, fromStore(err)
	case source.Snapshot == "":
		return source, notEvaluated(fmt.Errorf("the module source cannot be used: %s", source.Problem))
	}
	return source, nil
}

func notEvaluated(cause error) *failure {
	return &failure{code: codeServiceUnavailable, retryAfter: 10 * time.Second, cause: cause,
		message: "the module source has not been evaluated yet, so that nothing can be checked against it; try again later"}
}

// schemas keeps the schema that was compiled last: there is one source.
type schemas struct {
	mu       sync.Mutex
	document []byte
	compiled *configuration.Schema
}

func (s *schemas) compile(document []byte) (*configuration.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compiled != nil && bytes.Equal(s.document, document) {
		return s.compiled, nil
	}
	compiled, err := configuration.Compile(document)
	if err != nil {
		return nil, err
	}
	s.document, s.compiled = bytes.Clone(document), compiled
	return compiled, nil
}

// requestOf is what makes a submit unique for its deployment, and what to do
// when it is not known whether it was recorded.
func requestOf(r *http.Request) (request, advice string, err error) {
	const maxKey = 255
	key, err := headerOnce(r, "Idempotency-Key", maxKey)
	if err != nil {
		return "", "", err
	}
	if key == "" {
		return uuid.NewString(), "slipway could not finish this now, and the build may be recorded all the same; " +
			"look at the deployment, or send the submit again (with an Idempotency-Key, a repeat never makes a second build)", nil
	}
	return wire.HashRequest(key), "slipway could not finish this now; send it again with the same Idempotency-Key", nil
}

type submitted struct {
	DeploymentID string                `json:"deploymentId"`
	Build        int64                 `json:"build"`
	Evaluation   deployment.Evaluation `json:"evaluation"`
	Nodes        []deployment.Node     `json:"nodes"`
}

func (a *api) submit(w http.ResponseWriter, r *http.Request, c caller) error {
	request, advice, err := requestOf(r)
	if err != nil {
		return err
	}
	ok, err := a.check(w, r)
	if err != nil {
		return err
	}
	answer, err := a.take(r.Context(), c.deployment, ok, wire.SubmitID(c.deployment, request), func(submit wire.SubmitRequest) (wire.SubmitAnswer, error) {
		return a.Workflows.Submit(r.Context(), c.deployment, request, submit)
	})
	if err != nil {
		return fromWorkflow(err, advice)
	}
	out := submitted{c.deployment, answer.Build, answer.Evaluation, a.nodes(r, deployment.Ref{Deployment: c.deployment, Build: answer.Build})}
	w.Header().Set("Location", buildPath(c.deployment, answer.Build))
	return respondJSON(w, http.StatusAccepted, out)
}

// take gives a configuration that passed the checks to a workflow by its first
// update, which do sends, and brings it the secrets when it is ready for them.
func (a *api) take(ctx context.Context, id string, ok checked, workflowID string,
	do func(wire.SubmitRequest) (wire.SubmitAnswer, error)) (wire.SubmitAnswer, error) {
	submit := wire.SubmitRequest{Snapshot: ok.source.snapshot, Configuration: ok.configuration}
	values := ok.given
	if a.Sealer != nil && len(ok.secrets) > 0 {
		stored, build, err := a.stored(ctx, id, ok)
		if err != nil {
			return wire.SubmitAnswer{}, err
		}
		if len(stored) > 0 {
			submit.StoredBuild = &build
		}
		if len(values)+len(stored) > configuration.MaxSecrets {
			return wire.SubmitAnswer{}, refuse(codeInvalidConfiguration, "the submit gives %d secrets, and the stored configuration of the deployment "+
				"holds %d more that are to be moved to OpenBao; together at most %d can be: clear some (secretsClear), and give them with the next submit",
				len(values), len(stored), configuration.MaxSecrets)
		}
		values = append(values, stored...)
		submit.Secrets = ok.secrets
	}
	answer, err := do(submit)
	if err == nil && answer.Ready {
		return a.commit(ctx, workflowID, values)
	}
	return answer, err
}

// stored finds the secrets that the stored configuration still holds as values,
// because it is older than the secret, and the newest build of then.
func (a *api) stored(ctx context.Context, id string, ok checked) (values []configuration.Secret, newest int64, err error) {
	before, err := a.Reader.Deployment(ctx, id)
	if errors.Is(err, deployment.ErrUnknown) || err == nil && len(before.Configuration) == 0 {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fromStore(err)
	}
	value, err := configuration.Decode(before.Configuration)
	if err != nil {
		return nil, 0, fmt.Errorf("read the stored configuration: %w", err)
	}
	if before.LatestBuild != nil {
		newest = before.LatestBuild.Number
	}
	return ok.source.Schema.Stored(value, ok.secrets), newest, nil
}

// commit brings the secrets of a submit that passed all checks. From here to
// OpenBao they have no other form than a token that can be used once.
func (a *api) commit(ctx context.Context, workflowID string, values []configuration.Secret) (wire.SubmitAnswer, error) {
	wrapped, err := a.Sealer.Wrap(ctx, values)
	if err != nil {
		// The workflow need not wait for them, unless those of the same request
		// have come another way. It is told so too where the client has left, and
		// lets go of the secrets of the deployment at once.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTime)
		defer cancel()
		answer, giveUp := a.Workflows.Commit(ctx, workflowID, wire.CommitRequest{})
		if giveUp == nil {
			return answer, nil
		}
		return wire.SubmitAnswer{}, fmt.Errorf("hand the secrets to OpenBao: %w", errors.Join(err, giveUp))
	}
	return a.Workflows.Commit(ctx, workflowID, wire.CommitRequest{Wrapped: wrapped})
}

// nodes reads the nodes of a build that was just recorded. An error must not
// become the answer: the client would submit again what is recorded.
func (a *api) nodes(r *http.Request, ref deployment.Ref) []deployment.Node {
	build, err := a.Reader.Build(r.Context(), ref)
	if err != nil {
		a.Log.Warn("the nodes of a new build could not be read",
			zap.String("requestId", exchangeOf(r).id), zap.Stringer("build", ref), zap.Error(err))
	}
	if build.Nodes == nil {
		return []deployment.Node{}
	}
	return build.Nodes
}

func buildPath(id string, build int64) string {
	return fmt.Sprintf("/deployments/%s/builds/%d", id, build)
}

type previewed struct {
	Nodes                []deployment.Node   `json:"nodes"`
	DisabledApplications []string            `json:"disabledApplications"`
	SecretsSet           map[string][]string `json:"secretsSet"`
	// Instances are those that the deployment would have.
	Instances []deployment.Instance `json:"instances"`
}

func (a *api) preview(w http.ResponseWriter, r *http.Request, c caller) error {
	ok, err := a.check(w, r)
	if err != nil {
		return err
	}
	const advice = "slipway could not evaluate the configuration now; try again later"
	// What OpenBao has is not looked at: only what the body sets is set.
	set := map[string][]string{}
	for _, application := range ok.secrets {
		set[application.Path] = application.Decide(nil).Set
	}
	canonical, err := configuration.Canonical(configuration.WithSecretsSet(ok.value, ok.secrets, set))
	if err != nil {
		return err
	}
	evaluated, err := a.Workflows.Preview(r.Context(),
		wire.PreviewInput{Deployment: c.deployment, Snapshot: ok.source.snapshot, Configuration: canonical})
	switch {
	case err != nil:
		return fromWorkflow(err, advice)
	case evaluated.NoSlot:
		return &failure{code: codeServiceUnavailable, message: noSlot, retryAfter: soon}
	case evaluated.Refusal != nil:
		return refuse(codeOf(evaluated.Refusal.Type), "%s", evaluated.Refusal.Message)
	}
	names, err := a.Reader.Names(r.Context(), evaluated.Key)
	if err != nil {
		// Also where the result is unknown: it left the cache meanwhile.
		return &failure{code: codeServiceUnavailable, message: advice, retryAfter: soon, cause: err}
	}
	out := previewed{Nodes: names.Nodes, DisabledApplications: names.DisabledApplications, SecretsSet: map[string][]string{},
		Instances: ok.source.Facts(ok.value).Instances}
	if out.Nodes == nil {
		out.Nodes = []deployment.Node{}
	}
	if out.DisabledApplications == nil {
		out.DisabledApplications = []string{}
	}
	for _, application := range ok.secrets {
		if fields := set[application.Path]; len(fields) > 0 {
			out.SecretsSet[application.Application] = append(out.SecretsSet[application.Application], fields...)
		}
	}
	return respondJSON(w, http.StatusOK, out)
}

func (a *api) cancel(w http.ResponseWriter, r *http.Request, c caller) error {
	ref, err := buildOf(r, c)
	if err != nil {
		return err
	}
	build, err := a.Reader.Build(r.Context(), ref)
	if err != nil {
		return fromStore(err)
	}
	status := http.StatusAccepted
	if build.Status.Ended() {
		status = http.StatusOK
	} else if build, err = a.cancelPending(r.Context(), ref, build.WorkflowID); err != nil {
		return err
	}
	if build.Status.Ended() && build.Status != deployment.StatusCancelled {
		return refuse(codeBuildEnded, "the build has ended: it %s", ended(build.Status))
	}
	build.Configuration = nil
	return respondJSON(w, status, build)
}

// cancelPending asks the workflow of a build that has not ended, and reads the
// build as it is then.
func (a *api) cancelPending(ctx context.Context, ref deployment.Ref, workflowID string) (deployment.Build, error) {
	answer, asked := a.Workflows.Cancel(ctx, workflowID)
	if asked != nil && !errors.Is(asked, errWorkflowGone) {
		return deployment.Build{}, fromWorkflow(asked, "slipway could not finish this now; cancel again, which is safe")
	}
	build, err := a.Reader.Build(ctx, ref)
	switch {
	case err != nil:
		return build, fromStore(err)
	case build.Status.Ended():
		return build, nil
	case errors.Is(asked, errWorkflowGone):
		return build, &failure{code: codeServiceUnavailable, retryAfter: 20 * time.Second, cause: asked,
			message: "the workflow of the build has ended without it; slipway fails the build by itself within a minute"}
	}
	if asked == nil && answer.Status != "" {
		build.Status = answer.Status // the newest of the two reads
	}
	return build, nil
}

// ended says a final status as the verb of a sentence.
func ended(s deployment.Status) string {
	switch s {
	case deployment.StatusSuperseded:
		return "was superseded"
	case deployment.StatusCancelled:
		return "was cancelled"
	default:
		return string(s)
	}
}
