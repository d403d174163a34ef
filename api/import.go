package api

import (
	"fmt"
	"net/http"

	"go.uber.org/zap"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

type imported struct {
	DeploymentID string `json:"deploymentId"`
	// Build is null where nothing is deployed.
	Build      *int64                `json:"build"`
	Evaluation deployment.Evaluation `json:"evaluation"`
	Nodes      []deployment.Node     `json:"nodes"`
}

// importDeployment takes over a deployment that slipway does not know. It is a
// submit with more checks, and may take minutes.
func (a *api) importDeployment(w http.ResponseWriter, r *http.Request, c caller) error {
	request, advice, err := requestOf(r)
	if err != nil {
		return err
	}
	body, err := a.readObject(w, r, "configuration", "deploy")
	if err != nil {
		return err
	}
	deploy := true
	if value, given := body["deploy"]; given {
		var ok bool
		if deploy, ok = value.(bool); !ok {
			return refuse(codeInvalidRequest, `the member "deploy" is neither true nor false`)
		}
	}
	ok, err := a.checkConfiguration(r.Context(), body["configuration"])
	if err != nil {
		return err
	}
	answer, err := a.take(r.Context(), c.deployment, ok, wire.ImportID(c.deployment, request), func(submit wire.SubmitRequest) (wire.SubmitAnswer, error) {
		return a.Workflows.Import(r.Context(), c.deployment, request, wire.ImportRequest{SubmitRequest: submit, Deploy: deploy})
	})
	if err != nil {
		return fromWorkflow(err, advice)
	}
	out := imported{DeploymentID: c.deployment, Evaluation: answer.Evaluation}
	if answer.Build != 0 {
		out.Build = &answer.Build
		out.Nodes = a.nodes(r, deployment.Ref{Deployment: c.deployment, Build: answer.Build})
		w.Header().Set("Location", buildPath(c.deployment, answer.Build))
		return respondJSON(w, http.StatusAccepted, out)
	}
	stored, err := a.Reader.Deployment(r.Context(), c.deployment)
	if err != nil {
		// As with the nodes of a build: what is stored is not refused.
		a.Log.Warn("the nodes of an imported deployment could not be read",
			zap.String("requestId", exchangeOf(r).id), zap.String("deploymentId", c.deployment), zap.Error(err))
	}
	if out.Nodes = stored.Nodes; out.Nodes == nil {
		out.Nodes = []deployment.Node{}
	}
	w.Header().Set("Location", fmt.Sprintf("/deployments/%s", c.deployment))
	return respondJSON(w, http.StatusCreated, out)
}
