package openbao

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/schema/configuration"
)

// stored is the current version of an entry.
type stored struct {
	// value is the JSON of the key "value"; nil where the version has none.
	value   json.RawMessage
	version int
	live    bool
}

// read reads the current version of an entry.
func (c *Client) read(ctx context.Context, entry string) (stored, error) {
	a, err := c.do(ctx, call{method: http.MethodGet, path: c.path("data", entry)})
	if isAbsent(err) {
		// Of a deleted version the answer is a 404 too, with its number. It is
		// not needed here.
		return stored{}, nil
	}
	if err != nil {
		return stored{}, err
	}
	var data struct {
		Data     map[string]json.RawMessage `json:"data"`
		Metadata struct {
			Version int `json:"version"`
		} `json:"metadata"`
	}
	if err := unmarshal(a.Data, &data); err != nil {
		return stored{}, err
	}
	return stored{value: data.Data["value"], version: data.Metadata.Version, live: data.Data != nil}, nil
}

// Write makes a value the current one of a field. It is a success also where
// somebody else has written the same value meanwhile, which is what a write
// does whose answer was lost; another value is ReasonConflict.
func (c *Client) Write(ctx context.Context, in Instance, field string, value any) error {
	entry, err := c.entry(in, field)
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return errors.New("openbao: a value cannot be written as JSON")
	}
	if err := c.ready(ctx); err != nil {
		return err
	}
	m, _, err := c.metadata(ctx, entry)
	if err != nil {
		return c.failure(ctx, "look at "+entry, err, false)
	}
	current := 0
	if m != nil {
		current = m.Current
	}
	return c.put(ctx, entry, text, current)
}

// put writes a value where a version is the current one.
func (c *Client) put(ctx context.Context, entry string, value json.RawMessage, current int) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: c.path("data", entry), body: map[string]any{
		"options": map[string]int{"cas": current},
		"data":    map[string]json.RawMessage{"value": value},
	}})
	if err == nil {
		return nil
	}
	if !says(err, http.StatusBadRequest, "check-and-set") {
		return c.failure(ctx, "write "+entry, err, true)
	}
	now, err := c.read(ctx, entry)
	if err != nil {
		return c.failure(ctx, "read "+entry+" after a conflict", err, true)
	}
	if !now.live || !isEqual(now.value, value) {
		return unavailable(ReasonConflict, "write %s: somebody else wrote it meanwhile; submit again", entry)
	}
	return nil
}

// isEqual compares two JSON texts by what they say.
func isEqual(a, b json.RawMessage) bool {
	var texts [2][]byte
	for i, text := range []json.RawMessage{a, b} {
		value, err := configuration.Decode(text)
		if err != nil {
			return bytes.Equal(a, b)
		}
		if texts[i], err = configuration.Canonical(value); err != nil {
			return false
		}
	}
	return bytes.Equal(texts[0], texts[1])
}

// Copy gives a field the value of another of the same instance, which stays: the
// name that it had before. Where the field has a value already, it keeps it.
func (c *Client) Copy(ctx context.Context, in Instance, field, from string) error {
	entry, err := c.entry(in, field)
	if err != nil {
		return err
	}
	old, err := c.entry(in, from)
	if err != nil {
		return err
	}
	if err := c.ready(ctx); err != nil {
		return err
	}
	m, at, err := c.metadata(ctx, entry)
	if err != nil {
		return c.failure(ctx, "look at "+entry, err, false)
	}
	current := 0
	if m != nil {
		if m.entry(field, at).Live {
			return nil
		}
		current = m.Current
	}
	source, err := c.read(ctx, old)
	if err != nil {
		return c.failure(ctx, "read "+old, err, true)
	}
	if !source.live {
		return unavailable(ReasonConflict, "copy %s: the value is gone; submit again", old)
	}
	if source.value == nil {
		return unavailable(ReasonEntry, "copy %s: the entry has no key \"value\"; write it again with one, or delete it", old)
	}
	return c.put(ctx, entry, source.value, current)
}

// Clear deletes an entry with the versions that it had when seen, and says
// whether nothing is left of it. An entry that was made anew since is left
// alone; one with a newer version only loses the older ones.
func (c *Client) Clear(ctx context.Context, in Instance, seen configuration.SecretEntry) (gone bool, err error) {
	entry, err := c.entry(in, seen.Field)
	if err != nil {
		return false, err
	}
	if err := c.ready(ctx); err != nil {
		return false, err
	}
	gone, err = c.clear(ctx, entry, seen)
	if err != nil {
		return false, c.failure(ctx, "clear "+entry, err, false)
	}
	return gone, nil
}

func (c *Client) clear(ctx context.Context, entry string, seen configuration.SecretEntry) (gone bool, err error) {
	m, _, err := c.metadata(ctx, entry)
	if err != nil || m == nil {
		return err == nil, err
	}
	if m.Created != seen.Created {
		return false, nil
	}
	var versions []int
	for number, v := range m.Versions {
		if n, err := strconv.Atoi(number); err == nil && n <= seen.Version && !v.Destroyed {
			versions = append(versions, n)
		}
	}
	if len(versions) > 0 {
		slices.Sort(versions)
		_, err := c.do(ctx, call{method: http.MethodPost, path: c.path("destroy", entry), body: map[string]any{"versions": versions}})
		if err != nil {
			return false, err
		}
		// Whether it is still as seen is asked again after that.
		if m, _, err = c.metadata(ctx, entry); err != nil || m == nil {
			return err == nil, err
		}
	}
	if m.Created != seen.Created || m.Current > seen.Version {
		return false, nil
	}
	err = c.remove(ctx, entry)
	return err == nil, err
}

// remove deletes an entry with all versions and its metadata.
func (c *Client) remove(ctx context.Context, entry string) error {
	_, err := c.do(ctx, call{method: http.MethodDelete, path: c.path("metadata", entry)})
	if isAbsent(err) {
		return nil
	}
	return err
}

// deepest is how far below its own folder a deployment may have secrets: those
// that slipway writes are two levels down.
const deepest = 10

// DeleteTree deletes everything below the secrets of a deployment, with all
// versions: also what others have put there.
func (c *Client) DeleteTree(ctx context.Context, deployment string) error {
	folder, err := c.secretFolder(deployment)
	if err != nil {
		return err
	}
	if err := c.ready(ctx); err != nil {
		return err
	}
	if err := c.deleteBelow(ctx, folder, 0); err != nil {
		return c.failure(ctx, "delete the secrets in "+folder, err, false)
	}
	return nil
}

func (c *Client) deleteBelow(ctx context.Context, folder string, depth int) error {
	if depth > deepest {
		return unavailable(ReasonEntry, "delete %s: it is nested too deep; delete it by hand", folder)
	}
	names, _, err := c.list(ctx, folder)
	if err != nil {
		return err
	}
	for _, name := range names {
		if below, isFolder := strings.CutSuffix(name, "/"); isFolder {
			err = c.deleteBelow(ctx, folder+"/"+below, depth+1)
		} else {
			err = c.remove(ctx, folder+"/"+name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// WrapTime is how long OpenBao keeps wrapped values.
const WrapTime = 60 * time.Second

// wrapped is a value on its way.
type wrapped struct {
	Application string          `json:"application"`
	Field       string          `json:"field"`
	Value       json.RawMessage `json:"value"`
}

// Wrap gives values to OpenBao, for WrapTime, and returns the token that they
// are had for, once. Of the secrets only application, field and value are kept.
func (c *Client) Wrap(ctx context.Context, secrets []configuration.Secret) (token string, err error) {
	values := make([]wrapped, 0, len(secrets))
	for _, secret := range secrets {
		text, err := json.Marshal(secret.Value)
		if err != nil {
			return "", errors.New("openbao: a value cannot be written as JSON")
		}
		values = append(values, wrapped{secret.Application, secret.Field, text})
	}
	// As one text, so that no number is read and written on the way.
	text, err := json.Marshal(values)
	if err != nil {
		return "", errors.New("openbao: a value cannot be written as JSON")
	}
	const what = "wrap the secrets"
	a, err := c.do(ctx, call{method: http.MethodPost, path: "sys/wrapping/wrap", wrap: WrapTime, body: map[string]string{"secrets": string(text)}})
	if err != nil {
		return "", c.failure(ctx, what, err, true)
	}
	if a.WrapInfo == nil || a.WrapInfo.Token == "" {
		return "", unavailable(ReasonServer, "%s: the answer of OpenBao has no token", what)
	}
	return a.WrapInfo.Token, nil
}

// Unwrap takes the values that were wrapped for a token; a second time, or too
// late, it is ErrWrapSpent. Where an answer is lost, so are the values.
func (c *Client) Unwrap(ctx context.Context, token string) ([]configuration.Secret, error) {
	const what = "unwrap the secrets"
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, ErrWrapSpent
	}
	client, err := c.anonymous.CloneWithHeaders()
	if err != nil {
		return nil, fmt.Errorf("openbao: %w", err)
	}
	// The token itself has the right, so ours needs none.
	client.SetToken(token)
	a, err := c.send(ctx, client, call{method: http.MethodPost, path: "sys/wrapping/unwrap"})
	if hasStatus(err, http.StatusBadRequest) || hasStatus(err, http.StatusForbidden) {
		return nil, ErrWrapSpent
	}
	if err != nil {
		return nil, c.failure(ctx, what, err, true)
	}
	var data struct {
		Secrets string `json:"secrets"`
	}
	var values []wrapped
	if unmarshal(a.Data, &data) != nil || json.Unmarshal([]byte(data.Secrets), &values) != nil {
		return nil, notUnderstood(what)
	}
	secrets := make([]configuration.Secret, 0, len(values))
	for _, v := range values {
		value, err := configuration.Decode(v.Value)
		if err != nil {
			return nil, notUnderstood(what)
		}
		secrets = append(secrets, configuration.Secret{Application: v.Application, Field: v.Field, Value: value})
	}
	return secrets, nil
}

// unmarshal reads what the server said; the error holds nothing of it.
func unmarshal(data json.RawMessage, into any) error {
	if json.Unmarshal(data, into) != nil {
		return notUnderstood("read an answer")
	}
	return nil
}
