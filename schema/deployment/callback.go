package deployment

// CallbackState is what became of the call to a front-end.
type CallbackState string

// The states of a callback. Only pending changes.
const (
	// CallbackNone: nobody asked for one.
	CallbackNone CallbackState = "none"
	// CallbackRefused: it is not allowed, and was not made.
	CallbackRefused CallbackState = "refused"
	// CallbackPending: it is made when the destroy reaches idle.
	CallbackPending CallbackState = "pending"
	// CallbackSkipped: it was not made, because the destroy did not succeed or
	// a later build was there.
	CallbackSkipped CallbackState = "skipped"
	// CallbackDelivered: the front-end answered a success.
	CallbackDelivered CallbackState = "delivered"
	// CallbackFailed: it failed, and is not tried again. It may have arrived.
	CallbackFailed CallbackState = "failed"
)

// Callback is the call to a front-end when a destroy has reached idle (seed B,
// "Durability of the intent record"). Neither its URL nor its token is shown.
type Callback struct {
	State CallbackState `json:"state"`
	// Status is the HTTP status of the answer, 0 without one.
	Status int `json:"status,omitempty"`
	// Reason is for a person.
	Reason string `json:"reason,omitempty"`
}

// Claim is the right to make a callback, which is given once.
type Claim struct {
	URL, Token string
	// Instead is what became of it where there is nothing to call.
	Instead *Callback
}
