package panel

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// shown is a draft as a page gets it.
type shown struct {
	ID            string          `json:"id"`
	Name          string          `json:"name"`
	Configuration json.RawMessage `json:"configuration,omitempty"`
	Revision      int             `json:"revision"`
	Created       time.Time       `json:"created"`
	Updated       time.Time       `json:"updated"`
}

func show(d Draft) shown {
	return shown{d.ID, d.Name, d.Configuration, d.Revision, d.Created, d.Updated}
}

func (p *Panel) list(w http.ResponseWriter, _ *http.Request, u User) error {
	drafts := []shown{}
	for _, d := range p.store.draftsOf(u.ID) {
		s := show(d)
		s.Configuration = nil
		drafts = append(drafts, s)
	}
	p.answer(w, http.StatusOK, map[string]any{"drafts": drafts})
	return nil
}

func (p *Panel) show(w http.ResponseWriter, r *http.Request, u User) error {
	d, err := p.store.draft(u.ID, r.PathValue("id"))
	if err != nil {
		return err
	}
	p.answer(w, http.StatusOK, show(d))
	return nil
}

func (p *Panel) create(w http.ResponseWriter, r *http.Request, u User) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := decode(r, &body); err != nil {
		return err
	}
	name, err := nameOf(body.Name)
	if err != nil {
		return err
	}
	d, err := p.store.create(u.ID, name, p.now().UTC())
	if err != nil {
		return err
	}
	p.answer(w, http.StatusCreated, show(d))
	return nil
}

func (p *Panel) save(w http.ResponseWriter, r *http.Request, u User) error {
	var body struct {
		Name          string                     `json:"name"`
		Configuration map[string]json.RawMessage `json:"configuration"`
		Revision      int                        `json:"revision"`
	}
	if err := decode(r, &body); err != nil {
		return err
	}
	name, err := nameOf(body.Name)
	if err != nil {
		return err
	}
	if body.Configuration == nil {
		return problem{http.StatusBadRequest, "invalid_request", "there is no configuration"}
	}
	configuration, err := json.Marshal(body.Configuration)
	if err != nil {
		return err
	}
	d, err := p.store.save(u.ID, r.PathValue("id"), name, configuration, body.Revision, p.now().UTC())
	if err != nil {
		return err
	}
	p.answer(w, http.StatusOK, show(d))
	return nil
}

func nameOf(text string) (string, error) {
	name := strings.TrimSpace(text)
	if name == "" || utf8.RuneCountInString(name) > 80 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return "", problem{http.StatusBadRequest, "invalid_request", "a name has 1 to 80 characters"}
	}
	return name, nil
}

// begin makes what a destroy tells slipway: whom to call when it is done, with
// a token that is good for this one draft.
func (p *Panel) begin(w http.ResponseWriter, r *http.Request, u User) error {
	id, token, now := r.PathValue("id"), rand.Text(), p.now().UTC()
	if err := p.store.begin(u.ID, id, token, now, now.Add(deletionLife)); err != nil {
		return err
	}
	p.answer(w, http.StatusCreated, map[string]string{
		"callbackUrl": p.Origin + "/reconcile/" + id, "callbackToken": token,
	})
	return nil
}

// confirm removes the draft after the browser has seen the deployment gone.
func (p *Panel) confirm(w http.ResponseWriter, r *http.Request, u User) error {
	if err := p.store.confirm(u.ID, r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// reconcile removes the draft when slipway says that the deployment is gone.
func (p *Panel) reconcile(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return errToken
	}
	// The token is all that is needed to believe it; what the body says must not
	// contradict.
	var body struct {
		DeploymentID string `json:"deploymentId"`
		State        string `json:"state"`
	}
	if err := decodeKnown(r, &body); err != nil {
		return err
	}
	if body.DeploymentID != id || body.State != "idle" {
		return problem{http.StatusBadRequest, "invalid_request", "only what is idle is removed"}
	}
	if err := p.store.reconcile(id, token, p.now()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
