package openbao

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/wire"
)

// writeRetry is the time between two tries of bringing values to OpenBao: nobody
// else has them once they are unwrapped. writeMargin before the end of the
// activity no other try begins, so that the reason arrives and not a timeout.
const (
	writeRetry  = 300 * time.Millisecond
	writeMargin = time.Second
)

// Activities are the steps of workflows that happen in OpenBao. Their inputs
// and results have names of secrets and never a value.
type Activities struct {
	Client *Client
}

// Field is a secret of an application.
type Field struct {
	Application string `json:"application"`
	Field       string `json:"field"`
}

// Copied is a secret that gets the value of its former name.
type Copied struct {
	Field
	From string `json:"from"`
}

// ReadInput is the input of ReadSecrets.
type ReadInput struct {
	Deployment    string                             `json:"deployment"`
	Configuration json.RawMessage                    `json:"configuration"`
	Applications  []configuration.ApplicationSecrets `json:"applications"`
}

// Prepared is what a submit does to the secrets of its deployment.
type Prepared struct {
	// Configuration is the one that is evaluated, stored and deployed: its
	// secretsSet has what is given and what OpenBao has.
	Configuration json.RawMessage               `json:"configuration"`
	Write         []Field                       `json:"write,omitempty"`
	Copy          []Copied                      `json:"copy,omitempty"`
	Clear         []configuration.ClearedSecret `json:"clear,omitempty"`
}

// ReadSecrets looks at what OpenBao has, and decides what a submit does.
func (a *Activities) ReadSecrets(ctx context.Context, in ReadInput) (Prepared, error) {
	var out Prepared
	set := map[string][]string{}
	for _, application := range in.Applications {
		instance := Instance{Deployment: in.Deployment, Application: application.Application}
		entries, err := a.Client.Entries(ctx, instance, slices.Concat(application.Names(), application.Clear))
		if err != nil {
			return Prepared{}, typed(err)
		}
		var live []string
		for _, entry := range entries {
			if entry.Live && slices.Contains(application.Names(), entry.Field) {
				live = append(live, entry.Field)
			}
			if slices.Contains(application.Clear, entry.Field) {
				out.Clear = append(out.Clear, configuration.ClearedSecret{Application: application.Application, Entry: entry})
			}
		}
		decided := application.Decide(live)
		set[application.Path] = decided.Set
		for _, field := range decided.Write {
			out.Write = append(out.Write, Field{application.Application, field})
		}
		for _, field := range slices.Sorted(maps.Keys(decided.Copy)) {
			out.Copy = append(out.Copy, Copied{Field{application.Application, field}, decided.Copy[field]})
		}
	}
	value, err := configuration.Decode(in.Configuration)
	if err != nil {
		return Prepared{}, fmt.Errorf("read the configuration: %w", err)
	}
	out.Configuration, err = configuration.Canonical(configuration.WithSecretsSet(value, in.Applications, set))
	return out, err
}

// WriteInput is the input of WriteSecrets.
type WriteInput struct {
	Deployment string `json:"deployment"`
	// Wrapped is the token that the values come by; empty where Write is.
	Wrapped string   `json:"wrapped,omitempty"`
	Write   []Field  `json:"write,omitempty"`
	Copy    []Copied `json:"copy,omitempty"`
}

// WriteSecrets copies and writes the secrets of a submit. They can be unwrapped
// once, and after it they are gone, so it goes on while OpenBao may come back and
// its context lasts. It fails with wire.ErrorSecretsSpent where they are gone already.
func (a *Activities) WriteSecrets(ctx context.Context, in WriteInput) error {
	var values map[Field]any
	for {
		var err error
		if values == nil {
			values, err = a.unwrap(ctx, in)
		}
		if err == nil {
			err = a.write(ctx, in, values)
		}
		if err == nil || !mayPass(err) || len(in.Write) == 0 {
			return typed(err)
		}
		select {
		case <-ctx.Done():
			return typed(err)
		case <-time.After(writeRetry):
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < writeMargin {
			return typed(err)
		}
	}
}

// unwrap gives the values that are to be written.
func (a *Activities) unwrap(ctx context.Context, in WriteInput) (map[Field]any, error) {
	values := map[Field]any{}
	if len(in.Write) == 0 {
		return values, nil
	}
	given, err := a.Client.Unwrap(ctx, in.Wrapped)
	if err != nil {
		return nil, err
	}
	for _, secret := range given {
		values[Field{secret.Application, secret.Field}] = secret.Value
	}
	for _, one := range in.Write {
		if _, ok := values[one]; !ok {
			return nil, fmt.Errorf("the secret %s of %s did not come with the submit", one.Field, one.Application)
		}
	}
	return values, nil
}

// mayPass reports whether a failure may be gone in a moment. A conflict is none
// of these: another try would write over what somebody else has just written.
func mayPass(err error) bool {
	away, ok := errors.AsType[*UnavailableError](err)
	if !ok {
		return false
	}
	switch away.Reason {
	case ReasonUnreachable, ReasonTimeout, ReasonSealed, ReasonLogin, ReasonRateLimited, ReasonServer:
		return true
	default:
		return false
	}
}

func (a *Activities) write(ctx context.Context, in WriteInput, values map[Field]any) error {
	for _, one := range in.Copy {
		instance := Instance{Deployment: in.Deployment, Application: one.Application}
		if err := a.Client.Copy(ctx, instance, one.Field.Field, one.From); err != nil {
			return err
		}
	}
	for _, one := range in.Write {
		instance := Instance{Deployment: in.Deployment, Application: one.Application}
		if err := a.Client.Write(ctx, instance, one.Field, values[one]); err != nil {
			return err
		}
	}
	return nil
}

// ClearInput is the input of ClearSecrets.
type ClearInput struct {
	Deployment string                        `json:"deployment"`
	Cleared    []configuration.ClearedSecret `json:"cleared"`
}

// ClearSecrets deletes secrets with the versions that they had when that was
// asked.
func (a *Activities) ClearSecrets(ctx context.Context, in ClearInput) error {
	for _, one := range in.Cleared {
		if _, err := a.Client.Clear(ctx, Instance{Deployment: in.Deployment, Application: one.Application}, one.Entry); err != nil {
			return typed(err)
		}
	}
	return nil
}

// DeleteSecrets deletes all secrets of a deployment.
func (a *Activities) DeleteSecrets(ctx context.Context, deployment string) error {
	return typed(a.Client.DeleteTree(ctx, deployment))
}

// typed gives the errors that a workflow decides on their types.
func typed(err error) error {
	if errors.Is(err, ErrWrapSpent) {
		return temporal.NewNonRetryableApplicationError(ErrWrapSpent.Error(), wire.ErrorSecretsSpent, nil)
	}
	return err
}
