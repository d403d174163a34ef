package api

import (
	"net/http"

	"slipway.dev/slipway/api/channel"
)

// events opens the channel of a deployment. The header wins over the query: an
// EventSource that connects again sends it with the URL that it began with.
func (a *api) events(w http.ResponseWriter, r *http.Request, c caller) error {
	withLog, err := flag(r, "log")
	if err != nil {
		return err
	}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = r.URL.Query().Get("lastEventId")
	}
	defer a.streaming(r)()
	err = a.hub.Serve(w, r, channel.Request{Deployment: c.deployment, Log: withLog, Last: last, Until: c.until})
	if err != nil {
		return fromStore(err)
	}
	return nil
}
