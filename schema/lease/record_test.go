package lease

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

var deployer = Holder{OperationID: "op-1", Instance: "orders-app", Namespace: "application", ServiceAccount: "deploy"}

func record(kind Kind, holder Holder) Record {
	return Record{
		Kind: kind, OperationID: holder.OperationID, Instance: holder.Instance, Namespace: holder.Namespace, ServiceAccount: holder.ServiceAccount,
		ExpiresAt: start.Add(30 * time.Second), CreatedAt: start, TopologyGeneration: 17, TokenHash: HashToken("secret"), State: StateActive,
	}
}

func TestEncodeIsTheContracts(t *testing.T) {
	r := record(KindMigration, deployer)
	r.ExpiresAt = time.Date(2026, 11, 30, 14, 0, 30, 123456789, time.FixedZone("", 7200))
	require.Equal(t, `{"kind":"migration","operationId":"op-1","instance":"orders-app","expiresAt":"2026-11-30T12:00:30.123456Z",`+
		`"topologyGeneration":17,"namespace":"application","serviceAccount":"deploy","tokenHash":"`+HashToken("secret")+`",`+
		`"createdAt":"2026-11-30T12:00:00Z","state":"active"}`, r.Encode())
	r.State, r.Reason = StateRevoked, ReasonTopologyChanged
	require.Contains(t, r.Encode(), `"state":"revoked","reason":"topology_changed"}`)

	read, err := ParseRecord(r.Encode())
	require.NoError(t, err)
	require.Equal(t, r.Encode(), read.Encode())
	require.Equal(t, deployer, read.Holder())
	require.True(t, read.Matches(HashToken("secret")))
	require.False(t, read.Matches(HashToken("other")))
	require.False(t, read.Matches(""))
}

func TestParseRecord(t *testing.T) {
	change := func(member string, value any) string {
		var members map[string]any
		require.NoError(t, json.Unmarshal([]byte(record(KindHold, deployer).Encode()), &members))
		if members[member] = value; value == nil {
			delete(members, member)
		}
		text, err := json.Marshal(members)
		require.NoError(t, err)
		return string(text)
	}
	good := record(KindHold, deployer).Encode()
	for name, test := range map[string]struct {
		annotation string
		broken     string
	}{
		"as written":             {good, ""},
		"member of a newer one":  {change("later", map[string]any{"a": 1}), ""},
		"empty reason":           {change("reason", ""), ""},
		"space around":           {" " + good + "\n", ""},
		"another time zone":      {change("expiresAt", "2026-11-30T14:00:30+02:00"), ""},
		"empty":                  {"", "JSON"},
		"text":                   {"active", "JSON"},
		"null":                   {"null", "kind"},
		"list":                   {"[]", "JSON"},
		"cut":                    {good[:len(good)-1], "JSON"},
		"something after":        {good + "{}", "JSON"},
		"null after":             {good + "null", "JSON"},
		"no kind":                {change("kind", nil), "kind"},
		"other kind":             {change("kind", "hold"), "kind"},
		"no operation":           {change("operationId", nil), "operationId"},
		"operation with control": {change("operationId", "a\nb"), "operationId"},
		"no instance":            {change("instance", nil), "instance"},
		"no expiry":              {change("expiresAt", nil), "expiresAt"},
		"expiry no time":         {change("expiresAt", "tomorrow"), "JSON"},
		"expiry beyond 9999":     {change("expiresAt", "9999-12-31T23:59:59-01:00"), "expiresAt"},
		"no generation":          {change("topologyGeneration", nil), "topologyGeneration"},
		"negative generation":    {change("topologyGeneration", -1), "topologyGeneration"},
		"generation as text":     {change("topologyGeneration", "17"), "JSON"},
		"generation a fraction":  {change("topologyGeneration", 17.5), "JSON"},
		"no namespace":           {change("namespace", nil), "namespace"},
		"no service account":     {change("serviceAccount", nil), "serviceAccount"},
		"no hash":                {change("tokenHash", nil), "tokenHash"},
		"short hash":             {change("tokenHash", "ab"), "tokenHash"},
		"hash of other letters":  {change("tokenHash", strings.Repeat("A", 64)), "tokenHash"},
		"no creation":            {change("createdAt", nil), "createdAt"},
		"no state":               {change("state", nil), "state"},
		"other state":            {change("state", "Active"), "state"},
	} {
		t.Run(name, func(t *testing.T) {
			read, err := ParseRecord(test.annotation)
			if test.broken != "" {
				require.ErrorContains(t, err, test.broken)
				require.Equal(t, Record{}, read)
				return
			}
			require.NoError(t, err)
			require.Equal(t, record(KindHold, deployer), read)
		})
	}
}

func TestErrorsOfRecordsTellNoSecrets(t *testing.T) {
	secret := HashToken("secret")
	for _, annotation := range []string{
		`{"tokenHash":"` + secret + `"}`, `{"expiresAt":"` + secret + `"}`, `{"kind":"` + secret + `"}`, secret,
	} {
		_, err := ParseRecord(annotation)
		require.Error(t, err)
		require.NotContains(t, err.Error(), secret[:8])
	}
}

func TestRevokedRecordStaysRevoked(t *testing.T) {
	r := record(KindMigration, deployer)
	r.State = StateRevoked
	for _, reason := range []Reason{"", "whatever", ReasonOperatorRevoked} {
		r.Reason = reason
		read, err := ParseRecord(r.Encode())
		require.NoError(t, err)
		require.Equal(t, ReasonOperatorRevoked, read.Reason)
	}
}

func TestDeadlines(t *testing.T) {
	expiry := start.Add(30 * time.Second)
	for name, test := range map[string]struct {
		now          time.Time
		state        State
		live, lapsed bool
		seconds      int32
	}{
		"at the grant":         {start, StateActive, true, false, 30},
		"a microsecond later":  {start.Add(time.Microsecond), StateActive, true, false, 30},
		"a second later":       {start.Add(time.Second), StateActive, true, false, 29},
		"in the last second":   {expiry.Add(-time.Millisecond), StateActive, true, false, 1},
		"at equality":          {expiry, StateActive, true, false, 1},
		"a nanosecond after":   {expiry.Add(1), StateActive, false, true, 1},
		"an hour after":        {expiry.Add(time.Hour), StateActive, false, true, 1},
		"clock an hour behind": {start.Add(-time.Hour), StateActive, true, false, 120},
		"released":             {start, StateReleased, false, false, 1},
		"expired":              {start, StateExpired, false, false, 1},
		"revoked":              {expiry.Add(1), StateRevoked, false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(KindHold, deployer)
			r.State = test.state
			require.Equal(t, test.live, r.Live(test.now))
			require.Equal(t, test.lapsed, r.Lapsed(test.now))
			require.Equal(t, test.seconds, r.SecondsLeft(test.now))
		})
	}
}

func TestExpiryEditedFarAhead(t *testing.T) {
	r := record(KindHold, deployer)
	r.ExpiresAt = start.AddDate(500, 0, 0)
	require.True(t, r.Live(start.AddDate(1, 0, 0)), "the annotation decides")
	require.Equal(t, start.Add(MaxTTL), r.Deadline(start))
	require.EqualValues(t, 120, r.SecondsLeft(start))
	r.ExpiresAt = start.Add(MaxTTL)
	require.Equal(t, r.ExpiresAt, r.Deadline(start))
}

func FuzzParseRecord(f *testing.F) {
	f.Add(record(KindHold, deployer).Encode())
	f.Add(`{"kind":"migration","expiresAt":"0000-01-01T00:00:00Z"}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, annotation string) {
		read, err := ParseRecord(annotation)
		if err != nil {
			return
		}
		again, err := ParseRecord(read.Encode())
		require.NoError(t, err, "what was read can be written")
		require.Equal(t, read.Holder(), again.Holder())
		require.Equal(t, read.State, again.State)
		require.GreaterOrEqual(t, read.SecondsLeft(start), int32(1))
		require.LessOrEqual(t, read.SecondsLeft(start), int32(120))
	})
}
