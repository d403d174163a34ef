package api

import (
	"net/http"

	"github.com/google/uuid"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/origin"
	"slipway.dev/slipway/schema/wire"
)

// maxCallbackToken is the longest token that a front-end may give along, in
// bytes.
const maxCallbackToken = 4096

// What the answer to a destroy says about its callback.
const (
	callbackAccepted = "accepted"
	callbackRefused  = "refused"
	callbackNone     = "none"
)

type destroyed struct {
	DeploymentID string           `json:"deploymentId"`
	Build        int64            `json:"build,omitempty"`
	State        deployment.State `json:"state,omitempty"`
	Callback     string           `json:"callback,omitempty"`
	// CallbackReason is why the callback is refused.
	CallbackReason string `json:"callbackReason,omitempty"`
}

func (a *api) destroy(w http.ResponseWriter, r *http.Request, c caller) error {
	in := wire.DestroyInput{Deployment: c.deployment, Request: uuid.NewString(), Secrets: a.Sealer != nil}
	out := destroyed{DeploymentID: c.deployment, Callback: callbackNone}
	callback, token, err := callbackOf(r)
	if err != nil {
		return err
	}
	if callback != "" {
		if _, err := a.Origins.Target(callback); err != nil {
			out.Callback, out.CallbackReason, in.CallbackRefused = callbackRefused, err.Error(), err.Error()
		} else if in.Callback, err = a.Callbacks.OfferCallback(r.Context(), c.deployment, callback, token); err != nil {
			return fromStore(err)
		}
	}
	answer, err := a.Workflows.Destroy(r.Context(), in)
	if err != nil {
		return fromWorkflow(err, "slipway could not finish this now; send the delete again, which is safe")
	}
	if answer.Idle {
		return respondJSON(w, http.StatusOK, destroyed{DeploymentID: c.deployment, State: deployment.StateIdle})
	}
	out.Build = answer.Build
	switch {
	case answer.Callback:
		out.Callback = callbackAccepted
	case in.Callback != "":
		out.Callback, out.CallbackReason = callbackRefused, "the destroy has just ended"
	}
	w.Header().Set("Location", buildPath(c.deployment, answer.Build))
	return respondJSON(w, http.StatusAccepted, out)
}

// callbackOf reads the headers of a callback: both or none. Whether it is
// allowed is another question, which does not hold up a destroy.
func callbackOf(r *http.Request) (url, token string, err error) {
	if url, err = headerOnce(r, headerCallbackURL, origin.MaxURL); err != nil {
		return "", "", err
	}
	if token, err = headerOnce(r, headerCallbackToken, maxCallbackToken); err != nil {
		return "", "", err
	}
	if (url == "") != (token == "") {
		return "", "", refuse(codeInvalidRequest, "the headers %s and %s come together or not at all", headerCallbackURL, headerCallbackToken)
	}
	return url, token, nil
}
