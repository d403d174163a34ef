package secrets

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway-dev/ports"
	"slipway.dev/slipway/schema/deployment"
)

const key, password = "translationApiKey", "mail.smtp.password"

// writesAndKeeps: a value goes to its entry and to nothing else; an empty one,
// null and none keep it.
func (s *site) writesAndKeeps(t *testing.T) {
	const id = "keeps"
	first, nested := s.secret(id), s.secret(id)
	a := s.deploy(t, id, "first", forum(members{key: first, "mail": mail(nested)}))
	require.Equal(t, []string{"www.example.org", "translated.example.org", "mail.example.org"}, a.names(), "the evaluation has secretsSet")
	require.Equal(t, map[string]any{"value": first}, s.mount.Get(t, id, "forum", key))
	require.Equal(t, map[string]any{"value": nested}, s.mount.Get(t, id, "forum", password))
	kept := s.stored(t, id, a.Build)
	require.ElementsMatch(t, []string{key, password}, kept.SecretsSet)
	require.NotContains(t, kept.Rest, key)
	require.Equal(t, map[string]any{"smtp": map[string]any{}}, kept.Rest["mail"])

	for name, application := range map[string]members{
		"empty": {key: "", "mail": mail("")}, "null": {key: nil, "mail": mail(nil)}, "none": {},
		"what the client claims": {"secretsSet": []string{"another"}},
	} {
		a := s.deploy(t, id, "keep-"+name[:4], forum(application))
		require.ElementsMatch(t, []string{key, password}, s.stored(t, id, a.Build).SecretsSet, name)
		require.Contains(t, a.names(), "translated.example.org", name)
		require.Equal(t, first, s.value(t, id, key), name)
		require.Equal(t, "1", s.version(t, id, key), name)
	}
	second := s.secret(id)
	s.deploy(t, id, "second", forum(members{key: second}))
	require.Equal(t, second, s.value(t, id, key))
	require.Equal(t, "2", s.version(t, id, key))
	require.Equal(t, nested, s.value(t, id, password))
}

// refusedWritesNothing: no check that refuses comes after a write.
func (s *site) refusedWritesNothing(t *testing.T) {
	const id = "refused"
	for name, c := range map[string]struct {
		configuration members
		code          string
	}{
		"too long":   {forum(members{key: s.secret(id) + fmt.Sprintf("%200d", 1)}), "invalid_configuration"},
		"no string":  {forum(members{key: []string{s.secret(id)}}), "invalid_configuration"},
		"unknown":    {forum(members{key: s.secret(id), "unknown": 1}), "invalid_configuration"},
		"evaluation": {forum(members{key: s.secret(id)}, members{"refuse": true}), "invalid_configuration"},
	} {
		a := s.put(t, id, "refused", c.configuration)
		require.Equal(t, c.code, a.Error, "%s: %s", name, a.Body)
		builds, preparing := s.rows(t, id)
		require.Zero(t, builds+preparing, name)
	}
	for _, request := range s.faults.requests(id) {
		require.Regexp(t, "^(GET|LIST) ", request)
	}
	require.Nil(t, s.mount.Metadata(t, id, "forum", key))
}

// renameCopies: the entry of a former name is copied and stays; that of the
// latest name wins, a value in the submit wins over both.
func (s *site) renameCopies(t *testing.T) {
	for id, c := range map[string]struct {
		entries []string
		given   bool
	}{
		"renamed":         {[]string{"translateKey"}, false},
		"renamed-twice":   {[]string{"translator"}, false},
		"renamed-both":    {[]string{"translateKey", "translator"}, false},
		"renamed-replace": {[]string{"translateKey"}, true},
	} {
		values := map[string]string{}
		for _, field := range c.entries {
			values[field] = s.secret(id)
			s.mount.Put(t, id, "forum", field, map[string]any{"value": values[field]})
		}
		want, application := values[c.entries[0]], members{}
		if c.given {
			want = s.secret(id)
			application[key] = want
		}
		a := s.submit(t, id, "rename", forum(application))
		require.Equal(t, want, s.value(t, id, key), id)
		require.Equal(t, []string{key}, s.stored(t, id, a.Build).SecretsSet)
		s.ended(t, id, "rename")
		for field, value := range values {
			require.Equal(t, value, s.value(t, id, field), "the old entry stays")
		}
	}
}

// clears: the entry goes with all versions after a deploy that succeeded, not
// before, and not after one that failed or was cancelled.
func (s *site) clears(t *testing.T) {
	const id = "clears"
	for _, submit := range []string{"one", "two"} {
		s.deploy(t, id, submit, forum(members{key: s.secret(id), "mail": mail(s.secret(id))}))
	}
	clear := members{"secretsClear": []string{key}}

	a := s.submit(t, id, "fails", forum(clear, members{"deploy": "fail"}))
	require.Equal(t, []string{password}, s.stored(t, id, a.Build).SecretsSet)
	require.Equal(t, []string{key}, s.stored(t, id, a.Build).SecretsClear)
	require.Equal(t, deployment.StateFailed, s.settled(t, id).State)
	s.ended(t, id, "fails")
	require.NotNil(t, s.value(t, id, key))

	a = s.submit(t, id, "cancelled", forum(clear, members{"deploy": "gate"}))
	s.atGate(t, id, "deploy")
	s.do(t, http.MethodPost, fmt.Sprintf("/deployments/%s/builds/%d/cancel", id, a.Build), "", nil)
	require.Equal(t, deployment.StateFailed, s.settled(t, id).State)
	s.ended(t, id, "cancelled")
	require.NotNil(t, s.value(t, id, key))
	require.Equal(t, "2", s.version(t, id, key))

	a = s.submit(t, id, "clears", forum(clear, members{"deploy": "gate"}))
	require.NotContains(t, a.names(), "translated.example.org")
	s.atGate(t, id, "deploy")
	require.NotNil(t, s.value(t, id, key), "the nodes still read it")
	s.open(t, id)
	s.ended(t, id, "clears")
	require.Nil(t, s.mount.Metadata(t, id, "forum", key), "with all versions")
	require.NotNil(t, s.value(t, id, password), "the other one stays")
}

// valueWins: a value wins over a clear, and what is no secret leaves the list.
func (s *site) valueWins(t *testing.T) {
	const id = "wins"
	s.deploy(t, id, "one", forum(members{key: s.secret(id), "mail": mail(s.secret(id))}))
	value := s.secret(id)
	a := s.deploy(t, id, "two", forum(members{key: value, "secretsClear": []string{key, "title", password}}))
	kept := s.stored(t, id, a.Build)
	require.Equal(t, []string{key}, kept.SecretsSet)
	require.Equal(t, []string{password}, kept.SecretsClear)
	require.Equal(t, value, s.value(t, id, key))
	require.Nil(t, s.mount.Metadata(t, id, "forum", password))
}

// previewAsksNobody: a preview knows what its body sets, and no more.
func (s *site) previewAsksNobody(t *testing.T) {
	const id = "preview"
	s.mount.Put(t, id, "forum", password, map[string]any{"value": s.secret(id)})
	for _, c := range []struct {
		application members
		want        map[string][]string
	}{
		{members{key: s.secret(id)}, map[string][]string{"forum": {key}}},
		{members{key: "", "mail": mail(nil)}, map[string][]string{}},
	} {
		a := s.do(t, http.MethodPost, "/deployments/"+id+"/preview", "", members{"configuration": forum(c.application)})
		require.Equal(t, http.StatusOK, a.Status, a.Body)
		var got struct{ SecretsSet map[string][]string }
		require.NoError(t, json.Unmarshal([]byte(a.Body), &got))
		require.Equal(t, c.want, got.SecretsSet)
	}
	require.Empty(t, s.faults.requests(id))
	require.Nil(t, s.mount.Metadata(t, id, "forum", key))
}

// destroyTakesAll: the whole tree goes, once the deployment is idle.
func (s *site) destroyTakesAll(t *testing.T) {
	const id = "destroyed"
	configuration := forum(members{key: s.secret(id)}, members{"destroy": "gate"})
	configuration["test"].(members)["applications"].(members)["wiki"] = members{"adminPassword": s.secret(id)}
	s.deploy(t, id, "one", configuration)
	s.mount.Put(t, id, "an-older-application", "field", map[string]any{"value": s.secret(id)})
	a := s.destroy(t, id)
	s.atGate(t, id, "destroy")
	require.NotNil(t, s.value(t, id, key), "the nodes still read it")
	s.open(t, id)
	require.Equal(t, deployment.StateIdle, s.settled(t, id).State)
	s.hauledOut(t, id, a.Build)
	for application, field := range map[string]string{"forum": key, "wiki": "adminPassword", "an-older-application": "field"} {
		require.Nil(t, s.mount.Metadata(t, id, application, field), application)
	}
}

// repeatsGiveTheSameBuild: what an idempotency key is compared by has no secrets.
func (s *site) repeatsGiveTheSameBuild(t *testing.T) {
	const id = "repeats"
	first := s.secret(id)
	a := s.submit(t, id, "same", forum(members{key: first}))
	for range 2 {
		again := s.submit(t, id, "same", forum(members{key: s.secret(id)}))
		require.Equal(t, a.Build, again.Build)
		s.ended(t, id, "same") // the second asks when all is over
	}
	require.Equal(t, first, s.value(t, id, key))
	builds, _ := s.rows(t, id)
	require.Equal(t, 1, builds)
}

// withoutOpenBao: an API that has none takes no secret, and works without.
func (s *site) withoutOpenBao(t *testing.T) {
	const id = "without"
	free, err := ports.Free(3)
	require.NoError(t, err)
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", free[i]) }
	cmd := s.Command("api", "--listen="+at(0), "--metrics-listen="+at(1), "--health-listen="+at(2))
	cmd.Env = append(cmd.Env, "OPENBAO_ADDR=", "OPENBAO_TOKEN_FILE=")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { stop(t, cmd) })
	var with answer
	await(t, func() error {
		with, err = s.call("http://"+at(0), http.MethodPut, "/deployments/"+id, "", members{"configuration": forum(members{key: s.secret(id)})})
		return err
	})
	require.Equal(t, http.StatusBadRequest, with.Status, with.Body)
	require.Equal(t, "invalid_configuration", with.Error)
	require.Equal(t, "/test/applications/forum/"+key, with.Details[0].Path)
	for _, application := range []members{{}, {key: ""}, {key: nil}, {"secretsClear": []string{key}}} {
		a, err := s.call("http://"+at(0), http.MethodPut, "/deployments/"+id, "", members{"configuration": forum(application)})
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, a.Status, a.Body)
	}
	require.Empty(t, s.faults.requests(id))
}

func stop(t *testing.T, cmd *exec.Cmd) {
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // says that it was killed
}
