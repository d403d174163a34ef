package openbao

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/schema/configuration"
)

// Instance is where the secrets of one application of a deployment are.
type Instance struct {
	Deployment  string `json:"deployment"`
	Application string `json:"application"`
}

// secretFolder is the folder of all secrets of a deployment.
func (c *Client) secretFolder(deployment string) (string, error) {
	if !configuration.IsSecretName(deployment) {
		return "", fmt.Errorf("openbao: %q cannot be part of a path", deployment)
	}
	return c.options.Root + "/" + deployment + "/secret", nil
}

// folder is the folder of an instance.
func (c *Client) folder(in Instance) (string, error) {
	parent, err := c.secretFolder(in.Deployment)
	if err != nil {
		return "", err
	}
	if !configuration.IsSecretName(in.Application) {
		return "", fmt.Errorf("openbao: %q cannot be part of a path", in.Application)
	}
	return parent + "/" + in.Application + "-operator-secrets", nil
}

// entry is the path of an entry.
func (c *Client) entry(in Instance, field string) (string, error) {
	folder, err := c.folder(in)
	if err != nil {
		return "", err
	}
	if !configuration.IsSecretName(field) {
		return "", fmt.Errorf("openbao: %q cannot be part of a path", field)
	}
	return folder + "/" + field, nil
}

// path is the path of an endpoint of the engine.
func (c *Client) path(endpoint, below string) string {
	return c.options.Mount + "/" + endpoint + "/" + below
}

// metadata is the metadata of an entry.
type metadata struct {
	Created  string             `json:"created_time"`
	Current  int                `json:"current_version"`
	Versions map[string]version `json:"versions"`
}

type version struct {
	// Deletion is empty, or a time that may lie in the future
	// (delete_version_after).
	Deletion  string `json:"deletion_time"`
	Destroyed bool   `json:"destroyed"`
}

func (m metadata) entry(field string, now time.Time) configuration.SecretEntry {
	e := configuration.SecretEntry{Field: field, Version: m.Current, Created: m.Created}
	if v, ok := m.Versions[strconv.Itoa(m.Current)]; ok && !v.Destroyed {
		deleted, err := time.Parse(time.RFC3339Nano, v.Deletion)
		// What was deleted in this very second is deleted: now has no fractions.
		e.Live = v.Deletion == "" || err == nil && deleted.After(now.Add(time.Second))
	}
	return e
}

// Entries are those entries of an instance whose field is one of fields, sorted
// by field: also those whose value is deleted.
func (c *Client) Entries(ctx context.Context, in Instance, fields []string) ([]configuration.SecretEntry, error) {
	folder, err := c.folder(in)
	if err != nil {
		return nil, err
	}
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	what := "list the secrets in " + folder
	found, at, err := c.detailed(ctx, folder)
	if errors.Is(err, errNotThere) {
		found, at, err = c.listed(ctx, folder, fields)
	}
	if err != nil {
		return nil, c.failure(ctx, what, err, false)
	}
	var entries []configuration.SecretEntry
	for field, m := range found {
		if slices.Contains(fields, field) {
			entries = append(entries, m.entry(field, at))
		}
	}
	slices.SortFunc(entries, func(a, b configuration.SecretEntry) int { return strings.Compare(a.Field, b.Field) })
	return entries, nil
}

// errNotThere is that the server has no LIST detailed-metadata, or none for us.
var errNotThere = errors.New("no list with details")

// detailed lists a folder with the metadata of its entries, which OpenBao can
// do in one request. at is the time of the server.
func (c *Client) detailed(ctx context.Context, folder string) (found map[string]metadata, at time.Time, err error) {
	if c.plain.Load() {
		return nil, at, errNotThere
	}
	a, err := c.do(ctx, call{method: http.MethodGet, path: c.path("detailed-metadata", folder), list: true})
	switch {
	case isAbsent(err):
		return nil, a.at, nil
	case isNoRoute(err):
		c.plain.Store(true)
		return nil, at, errNotThere
	case hasStatus(err, http.StatusForbidden):
		return nil, at, errNotThere
	case err != nil:
		return nil, at, err
	}
	var list struct {
		Info map[string]metadata `json:"key_info"`
	}
	if err := unmarshal(a.Data, &list); err != nil {
		return nil, at, err
	}
	found = map[string]metadata{}
	for field, m := range list.Info {
		if strings.HasSuffix(field, "/") {
			continue // a folder
		}
		if _, ok := m.Versions[strconv.Itoa(m.Current)]; !ok && m.Current > 0 {
			return nil, at, errNotThere
		}
		found[field] = m
	}
	return found, a.at, nil
}

// listed lists a folder and reads the metadata of those entries that are asked
// for.
func (c *Client) listed(ctx context.Context, folder string, fields []string) (found map[string]metadata, at time.Time, err error) {
	names, at, err := c.list(ctx, folder)
	if err != nil {
		return nil, at, err
	}
	found = map[string]metadata{}
	for _, field := range names {
		if !slices.Contains(fields, field) {
			continue
		}
		m, when, err := c.metadata(ctx, folder+"/"+field)
		if err != nil {
			return nil, at, err
		}
		if m != nil {
			found[field], at = *m, when
		}
	}
	return found, at, nil
}

// list are the names in a folder; that of a folder in it ends in a slash.
func (c *Client) list(ctx context.Context, folder string) ([]string, time.Time, error) {
	a, err := c.do(ctx, call{method: http.MethodGet, path: c.path("metadata", folder), list: true})
	if isAbsent(err) {
		return nil, a.at, nil
	}
	if err != nil {
		return nil, a.at, err
	}
	var list struct {
		Keys []string `json:"keys"`
	}
	err = unmarshal(a.Data, &list)
	return list.Keys, a.at, err
}

// metadata is that of an entry, nil where there is none.
func (c *Client) metadata(ctx context.Context, entry string) (*metadata, time.Time, error) {
	a, err := c.do(ctx, call{method: http.MethodGet, path: c.path("metadata", entry)})
	if isAbsent(err) {
		return nil, a.at, nil
	}
	if err != nil {
		return nil, a.at, err
	}
	var m metadata
	if err := unmarshal(a.Data, &m); err != nil {
		return nil, a.at, err
	}
	return &m, a.at, nil
}
