package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func altered(r Record, changes ...func(*Record)) *Record {
	for _, change := range changes {
		change(&r)
	}
	return &r
}

func in(state State) func(*Record)       { return func(r *Record) { r.State = state } }
func generation(n int64) func(*Record)   { return func(r *Record) { r.TopologyGeneration = n } }
func token(text string) func(*Record)    { return func(r *Record) { r.TokenHash = HashToken(text) } }
func expires(at time.Time) func(*Record) { return func(r *Record) { r.ExpiresAt = at } }

func revoked(reason Reason) func(*Record) {
	return func(r *Record) { r.State, r.Reason = StateRevoked, reason }
}

var (
	another  = Holder{OperationID: "op-2", Instance: "orders-app", Namespace: "application", ServiceAccount: "deploy"}
	mine     = record(KindMigration, deployer)
	theirs   = record(KindMigration, another)
	myHold   = record(KindHold, deployer)
	atExpiry = start.Add(30 * time.Second)
	lapsed   = atExpiry.Add(1)
	unsteady = with(is("Degraded", "True", "SplitBrain"))
	moved    = with(func(g *Group) { g.ActiveSite = "pdx" })
	renoted  = with(func(g *Group) {
		g.ActiveSite, g.Generation, g.ObservedTopology.Value = "pdx", 18, "pdx@18"
		g.SiteStatuses = []SiteStatus{{Name: "pdx", State: "writable"}, {Name: "iad", State: "read-only", Replicating: true}}
	})
	unnoted   = with(func(g *Group) { g.ActiveSite = "pdx"; g.Generation = 18 })
	asked     = with(func(g *Group) { g.Revoke = Annotation{true, "please"} })
	noPrimary = with(func(g *Group) { g.ActiveSite = "" })
)

func TestDecideGrant(t *testing.T) {
	type row struct {
		group      Group
		now        time.Time
		mutex, own *Record
		kind       Kind
		holder     Holder
		want       VerdictKind
		reason     string
		sweep      bool
	}
	rows := map[string]row{
		"first":                           {want: VerdictGrant},
		"again":                           {mutex: &mine, want: VerdictRenew},
		"again at equality":               {now: atExpiry, mutex: &mine, want: VerdictRenew},
		"again after expiry":              {now: lapsed, mutex: &mine, want: VerdictGrant},
		"after release":                   {mutex: altered(mine, in(StateReleased)), want: VerdictGrant},
		"after expiry was written":        {mutex: altered(mine, in(StateExpired)), want: VerdictGrant},
		"released, tombstone place taken": {mutex: altered(mine, in(StateReleased)), own: altered(mine, in(StateReleased)), want: VerdictGrant},

		"held":                             {mutex: &theirs, want: VerdictHeld},
		"held at equality":                 {now: atExpiry, mutex: &theirs, want: VerdictHeld},
		"lapsed of another":                {now: lapsed, mutex: &theirs, want: VerdictGrant},
		"released of another":              {mutex: altered(theirs, in(StateReleased)), want: VerdictGrant},
		"revoked of another":               {mutex: altered(theirs, revoked(ReasonOperatorRevoked)), want: VerdictGrant},
		"same operation, another instance": {mutex: altered(mine, func(r *Record) { r.Instance = "orders-jobs" }), want: VerdictHeld},
		"same operation, another account":  {mutex: altered(mine, func(r *Record) { r.ServiceAccount = "web" }), want: VerdictHeld},
		"same operation, another namespace": {
			mutex: altered(mine, func(r *Record) { r.Namespace = "web" }), want: VerdictHeld},
		"held while unstable": {group: unsteady, mutex: &theirs, want: VerdictHeld},

		"unstable":                   {group: unsteady, want: VerdictUnstable, reason: "SplitBrain"},
		"again while unstable":       {group: unsteady, mutex: &mine, want: VerdictUnstable, reason: "SplitBrain"},
		"no primary":                 {group: noPrimary, want: VerdictUnstable, reason: "NoPrimary"},
		"moved, not raised":          {group: moved, want: VerdictUnstable, reason: "TopologyPersistencePending"},
		"raised, not noted":          {group: unnoted, mutex: &mine, want: VerdictUnstable, reason: "TopologyPersistencePending"},
		"revocation asked for":       {group: asked, mutex: &mine, want: VerdictUnstable, reason: "DeploymentRevocationPending"},
		"stale mutex of another":     {group: renoted, mutex: &theirs, want: VerdictUnstable, reason: "DeploymentRevocationPending", sweep: true},
		"stale mutex of its own":     {group: renoted, mutex: &mine, want: VerdictUnstable, reason: "DeploymentRevocationPending", sweep: true},
		"stale mutex that has ended": {group: renoted, mutex: altered(theirs, in(StateReleased)), want: VerdictGrant},
		"an update waits":            {group: with(reserved("OrderedUpdate/Deferred")), want: VerdictUnstable, reason: "OrderedUpdate"},

		"revoked, tombstone":              {own: altered(mine, revoked(ReasonTopologyChanged)), want: VerdictRevoked, reason: "topology_changed"},
		"revoked, mutex alone":            {mutex: altered(mine, revoked(ReasonOperatorRevoked)), want: VerdictRevoked, reason: "operator_revoked"},
		"revoked, mutex passed on":        {mutex: &theirs, own: altered(mine, revoked(ReasonOperatorRevoked)), want: VerdictRevoked, reason: "operator_revoked"},
		"revoked, mutex not yet":          {mutex: &mine, own: altered(mine, revoked(ReasonOperatorRevoked)), want: VerdictRevoked, reason: "operator_revoked"},
		"revoked long ago":                {now: lapsed, own: altered(mine, revoked(ReasonOperatorRevoked)), want: VerdictRevoked, reason: "operator_revoked"},
		"revoked, unstable":               {group: unsteady, own: altered(mine, revoked(ReasonOperatorRevoked)), want: VerdictRevoked, reason: "operator_revoked"},
		"revoked for whoever asks":        {own: altered(mine, revoked(ReasonOperatorRevoked), func(r *Record) { r.Instance = "x" }), want: VerdictRevoked, reason: "operator_revoked"},
		"revoked as a hold only":          {own: altered(myHold, revoked(ReasonOperatorRevoked)), want: VerdictGrant},
		"revoked, after the next move":    {group: renoted, own: altered(mine, revoked(ReasonTopologyChanged)), want: VerdictRevoked, reason: "topology_changed"},
		"tombstone of another operation?": {own: altered(theirs, revoked(ReasonOperatorRevoked)), want: VerdictGrant},

		"hold":                              {kind: KindHold, mutex: &mine, want: VerdictGrant},
		"hold again":                        {kind: KindHold, mutex: &mine, own: &myHold, want: VerdictRenew},
		"hold after its release":            {kind: KindHold, mutex: &mine, own: altered(myHold, in(StateReleased)), want: VerdictGrant},
		"hold after its expiry":             {kind: KindHold, mutex: altered(mine, expires(lapsed)), own: &myHold, now: lapsed, want: VerdictGrant},
		"hold of an earlier holder":         {kind: KindHold, mutex: &mine, own: altered(myHold, func(r *Record) { r.Instance = "x" }), want: VerdictHeld},
		"hold without migration":            {kind: KindHold, want: VerdictForbidden},
		"hold of another's migration":       {kind: KindHold, mutex: &theirs, want: VerdictForbidden},
		"hold, migration lapsed":            {kind: KindHold, mutex: &mine, now: lapsed, want: VerdictForbidden},
		"hold, migration released":          {kind: KindHold, mutex: altered(mine, in(StateReleased)), want: VerdictForbidden},
		"hold, migration revoked":           {kind: KindHold, mutex: altered(mine, revoked(ReasonOperatorRevoked)), want: VerdictForbidden},
		"hold for another instance":         {kind: KindHold, mutex: &mine, holder: Holder{"op-1", "x", "application", "deploy"}, want: VerdictForbidden},
		"hold from another namespace":       {kind: KindHold, mutex: &mine, holder: Holder{"op-1", "orders-app", "x", "deploy"}, want: VerdictForbidden},
		"hold of another account":           {kind: KindHold, mutex: &mine, holder: Holder{"op-1", "orders-app", "application", "x"}, want: VerdictForbidden},
		"hold again, after handoff":         {kind: KindHold, mutex: &theirs, own: &myHold, want: VerdictForbidden},
		"hold, unstable":                    {kind: KindHold, group: unsteady, mutex: &mine, want: VerdictUnstable, reason: "SplitBrain"},
		"hold of another's, unstable":       {kind: KindHold, group: unsteady, mutex: &theirs, want: VerdictForbidden},
		"hold revoked":                      {kind: KindHold, mutex: &mine, own: altered(myHold, revoked(ReasonTopologyChanged)), want: VerdictRevoked, reason: "topology_changed"},
		"hold revoked, no migration":        {kind: KindHold, own: altered(myHold, revoked(ReasonTopologyChanged)), want: VerdictRevoked, reason: "topology_changed"},
		"hold, the migration's mutex stale": {kind: KindHold, group: renoted, mutex: &mine, want: VerdictUnstable, reason: "DeploymentRevocationPending", sweep: true},
		"hold stale":                        {kind: KindHold, group: renoted, mutex: altered(mine, generation(18)), own: &myHold, want: VerdictUnstable, reason: "DeploymentRevocationPending", sweep: true},
		"hold, the mutex is none":           {kind: KindHold, mutex: altered(mine, func(r *Record) { r.Kind = KindHold }), want: VerdictForbidden},
	}
	for name, test := range rows {
		t.Run(name, func(t *testing.T) {
			if test.group.Name == "" {
				test.group = stable()
			}
			if test.now.IsZero() {
				test.now = start
			}
			if test.kind == "" {
				test.kind = KindMigration
			}
			if test.holder == (Holder{}) {
				test.holder = deployer
			}
			verdict := DecideGrant(test.now, test.group, test.mutex, test.own, test.kind, test.holder)
			require.Equal(t, test.want, verdict.Kind)
			require.Equal(t, test.reason, verdict.Reason)
			require.Equal(t, test.sweep, verdict.Sweep)
			require.Equal(t, test.group.Generation, verdict.Generation)
			require.Equal(t, test.want == VerdictHeld, verdict.Holder != nil)
		})
	}
	held := DecideGrant(start, stable(), &theirs, nil, KindMigration, deployer)
	require.Equal(t, &View{KindMigration, "op-2", "orders-app", theirs.ExpiresAt, 17}, held.Holder)
}

func TestDecideRenewAndRelease(t *testing.T) {
	caller := Caller{Namespace: "application", ServiceAccount: "deploy", Instances: []string{"orders-app", "orders-jobs"}}
	type row struct {
		group      Group
		now        time.Time
		mutex, own *Record
		kind       Kind
		caller     *Caller
		token      string
		renew      VerdictKind
		release    VerdictKind
		reason     string // of both, but for the gate
		sweep      bool
	}
	rows := map[string]row{
		// 1. No record.
		"never there":                  {renew: VerdictNotFound, release: VerdictNotFound},
		"mutex of another operation":   {mutex: &theirs, renew: VerdictNotFound, release: VerdictNotFound},
		"hold without a record":        {kind: KindHold, mutex: &mine, renew: VerdictNotFound, release: VerdictNotFound},
		"a tombstone that is none":     {own: &mine, renew: VerdictNotFound, release: VerdictNotFound},
		"never there, wrong token":     {token: "wrong", renew: VerdictNotFound, release: VerdictNotFound},
		"never there, topology moving": {group: moved, renew: VerdictNotFound, release: VerdictNotFound},
		// 2. Another holder or token, before anything about the state.
		"wrong token":                 {mutex: &mine, token: "wrong", renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		"no token":                    {mutex: &mine, token: "-", renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		"wrong token, revoked":        {own: altered(mine, revoked(ReasonOperatorRevoked)), token: "wrong", renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		"wrong token, released":       {mutex: altered(mine, in(StateReleased)), token: "wrong", renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		"wrong token, expired":        {mutex: &mine, now: lapsed, token: "wrong", renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		"wrong token, topology moves": {group: moved, mutex: &mine, token: "wrong", renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		"another namespace":           {mutex: &mine, caller: &Caller{"x", "deploy", caller.Instances}, renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		"another account":             {mutex: &mine, caller: &Caller{"application", "x", caller.Instances}, renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		"another instance":            {mutex: &mine, caller: &Caller{"application", "deploy", []string{"x"}}, renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		"no instance":                 {mutex: &mine, caller: &Caller{"application", "deploy", nil}, renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		"token of before a rotation":  {mutex: altered(mine, token("rotated")), renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		// 3. Revoked.
		"revoked, tombstone":                {own: altered(mine, revoked(ReasonTopologyChanged)), renew: VerdictRevoked, release: VerdictRevoked, reason: "topology_changed"},
		"revoked, mutex":                    {mutex: altered(mine, revoked(ReasonOperatorRevoked)), renew: VerdictRevoked, release: VerdictRevoked, reason: "operator_revoked"},
		"revoked, mutex passed on":          {mutex: &theirs, own: altered(mine, revoked(ReasonOperatorRevoked)), renew: VerdictRevoked, release: VerdictRevoked, reason: "operator_revoked"},
		"revoked, mutex still active":       {mutex: &mine, own: altered(mine, revoked(ReasonOperatorRevoked)), renew: VerdictRevoked, release: VerdictRevoked, reason: "operator_revoked"},
		"revoked, rotated in between":       {mutex: &mine, own: altered(mine, revoked(ReasonOperatorRevoked), token("old")), renew: VerdictRevoked, release: VerdictRevoked, reason: "operator_revoked"},
		"revoked, other's mutex no proof":   {mutex: &theirs, own: altered(mine, revoked(ReasonOperatorRevoked), token("old")), renew: VerdictTokenMismatch, release: VerdictTokenMismatch},
		"revoked and past its deadline":     {own: altered(mine, revoked(ReasonTopologyChanged)), now: lapsed, renew: VerdictRevoked, release: VerdictRevoked, reason: "topology_changed"},
		"revoked while topology moves":      {group: moved, own: altered(mine, revoked(ReasonTopologyChanged)), renew: VerdictRevoked, release: VerdictRevoked, reason: "topology_changed"},
		"hold revoked":                      {kind: KindHold, own: altered(myHold, revoked(ReasonTopologyChanged)), renew: VerdictRevoked, release: VerdictRevoked, reason: "topology_changed"},
		"generation changed, not written":   {group: renoted, mutex: &mine, renew: VerdictRevoked, release: VerdictRevoked, reason: "topology_changed", sweep: true},
		"generation changed, not noted":     {group: unnoted, mutex: &mine, renew: VerdictRevoked, release: VerdictRevoked, reason: "topology_changed", sweep: true},
		"generation lowered, not written":   {mutex: altered(mine, generation(18)), renew: VerdictRevoked, release: VerdictRevoked, reason: "topology_changed", sweep: true},
		"revocation asked for, not written": {group: asked, mutex: &mine, renew: VerdictRevoked, release: VerdictRevoked, reason: "operator_revoked", sweep: true},
		// 4. Over.
		"expired":                      {mutex: &mine, now: lapsed, renew: VerdictNotFound, release: VerdictNotFound},
		"expiry written":               {mutex: altered(mine, in(StateExpired)), renew: VerdictNotFound, release: VerdictNotFound},
		"released":                     {mutex: altered(mine, in(StateReleased)), renew: VerdictNotFound, release: VerdictNotFound},
		"expired, then the generation": {group: renoted, mutex: &mine, now: lapsed, renew: VerdictNotFound, release: VerdictNotFound},
		"expired while topology moves": {group: moved, mutex: &mine, now: lapsed, renew: VerdictNotFound, release: VerdictNotFound},
		"hold released":                {kind: KindHold, own: altered(myHold, in(StateReleased)), renew: VerdictNotFound, release: VerdictNotFound},
		// 5. The gate, for a PUT.
		"topology moves": {group: moved, mutex: &mine, renew: VerdictUnstable, release: VerdictRelease},
		"topology never noted": {
			group: with(func(g *Group) { g.ObservedTopology = Annotation{} }), mutex: &mine, renew: VerdictUnstable, release: VerdictRelease},
		// 6. The write.
		"live":                        {mutex: &mine, renew: VerdictRenew, release: VerdictRelease},
		"live at equality":            {mutex: &mine, now: atExpiry, renew: VerdictRenew, release: VerdictRelease},
		"live of another instance":    {mutex: altered(mine, func(r *Record) { r.Instance = "orders-jobs" }), renew: VerdictRenew, release: VerdictRelease},
		"live, expiry edited":         {mutex: altered(mine, expires(start.AddDate(9, 0, 0))), renew: VerdictRenew, release: VerdictRelease},
		"unstable":                    {group: unsteady, mutex: &mine, renew: VerdictRenew, release: VerdictRelease},
		"no primary":                  {group: noPrimary, mutex: &mine, renew: VerdictRenew, release: VerdictRelease},
		"an operation waits for it":   {group: with(reserved("OrderedUpdate/Deferred")), kind: KindHold, own: &myHold, renew: VerdictRenew, release: VerdictRelease},
		"an operation is handed over": {group: with(reserved("OrderedUpdate/Pending")), mutex: &mine, renew: VerdictRenew, release: VerdictRelease},
		"hold":                        {kind: KindHold, mutex: &mine, own: &myHold, renew: VerdictRenew, release: VerdictRelease},
		"hold without its migration":  {kind: KindHold, own: &myHold, renew: VerdictRenew, release: VerdictRelease},
		"hold after a handoff":        {kind: KindHold, mutex: &theirs, own: &myHold, renew: VerdictRenew, release: VerdictRelease},
		"record of the other kind in its object": {
			kind: KindMigration, mutex: &mine, own: altered(myHold, revoked(ReasonOperatorRevoked)), renew: VerdictRenew, release: VerdictRelease},
	}
	for name, test := range rows {
		t.Run(name, func(t *testing.T) {
			if test.group.Name == "" {
				test.group = stable()
			}
			if test.now.IsZero() {
				test.now = start
			}
			if test.kind == "" {
				test.kind = KindMigration
			}
			if test.caller == nil {
				test.caller = &caller
			}
			hash := HashToken("secret")
			switch test.token {
			case "-":
				hash = ""
			case "wrong":
				hash = HashToken("wrong")
			}
			renew := DecideRenew(test.now, test.group, test.mutex, test.own, test.kind, "op-1", *test.caller, hash)
			reason := test.reason
			if test.renew == VerdictUnstable {
				reason = "TopologyPersistencePending"
			}
			require.Equal(t, Verdict{Kind: test.renew, Reason: reason, Generation: test.group.Generation, Sweep: test.sweep}, renew)
			release := DecideRelease(test.now, test.group, test.mutex, test.own, test.kind, "op-1", *test.caller, hash)
			require.Equal(t, Verdict{Kind: test.release, Reason: test.reason, Generation: test.group.Generation, Sweep: test.sweep}, release)
		})
	}
}

func TestRevokes(t *testing.T) {
	for name, test := range map[string]struct {
		group  Group
		record *Record
		reason Reason
	}{
		"nothing to do":               {stable(), &mine, ""},
		"generation changed":          {renoted, &mine, ReasonTopologyChanged},
		"changed without a primary":   {with(func(g *Group) { g.ActiveSite, g.Generation = "", 18 }), &myHold, ReasonTopologyChanged},
		"site changed only":           {moved, &mine, ""},
		"asked for":                   {asked, &myHold, ReasonOperatorRevoked},
		"both":                        {with(func(g *Group) { g.Generation = 18; g.Revoke.Present = true }), &mine, ReasonTopologyChanged},
		"released":                    {asked, altered(mine, in(StateReleased)), ""},
		"revoked":                     {asked, altered(mine, revoked(ReasonTopologyChanged)), ""},
		"lapsed and not yet recorded": {asked, altered(mine, expires(start.Add(-1))), ""},
	} {
		t.Run(name, func(t *testing.T) {
			reason, revoke := test.group.Revokes(start, *test.record)
			require.Equal(t, test.reason, reason)
			require.Equal(t, test.reason != "", revoke)
		})
	}
}
