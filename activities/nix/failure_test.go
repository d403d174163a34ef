package nix

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// exits is how a process that runs the script ends, with what it printed.
func exits(t *testing.T, script, stderr string) output {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	_ = cmd.Run()
	require.NotNil(t, cmd.ProcessState)
	return output{stderr: stderr, state: cmd.ProcessState}
}

// What different versions of Nix and Lix print, with the same text of ours in
// front.
func TestClassifyOutputOfOtherVersions(t *testing.T) {
	t.Parallel()
	const snapshot = "/nix/store/rman3ivv900lc4dyqk7jwaxqfn09jcf9-slipway-source"
	tests := map[string]struct {
		stderr  string
		kind    Kind
		message string
	}{
		"nix 2.8 throw": {`error: the domain is taken
       by somebody else
(use '--show-trace' to show detailed location information)
`, KindRefused, "the domain is taken\nby somebody else"},

		"nix 2.8 with a position": {`error: attribute 'domain' missing

       at ` + snapshot + `/nodes.nix:7:12:

            6|   inherit (configuration) method;
            7|   domain = configuration.domain;
             |            ^
            8| in

       Did you mean domains?
(use '--show-trace' to show detailed location information)
`, KindRefused, "attribute 'domain' missing\n\nDid you mean domains?"},

		"nix 2.13 with a trace": {`error:
       … while evaluating the attribute 'value'

         at «string»:14:7:

           13|   else if request.select == "" then
           14|     { value = result; }
             |       ^
           15|   else

       … while calling the 'throw' builtin

         at ` + snapshot + `/slipway.nix:3:12:

            2|   names = configuration:
            3|            throw "no";
             |            ^
            4| }

       error: the domain is taken
       by somebody else, see ` + snapshot + `/rules.nix
`, KindRefused, "the domain is taken\nby somebody else, see rules.nix"},

		"nix 2.24 with a cut trace": {`warning: Nix search path entry '/x' does not exist, ignoring
error:
       … while evaluating the attribute 'names'
         at ` + snapshot + `/slipway.nix:20:3:
           19|   # Evaluates no system.
           20|   names =
             |   ^
           21|     configuration:

       … while calling the 'deepSeq' builtin
         at ` + snapshot + `/settings.nix:115:1:
          114| in
          115| deepSeq settings settings
             | ^

       (stack trace truncated; use '--show-trace' to show the full, detailed trace)

       error: undefined variable 'settigns'
       at ` + snapshot + `/settings.nix:115:18:
          114| in
          115| deepSeq settings settigns
             |                  ^
`, KindRefused, "undefined variable 'settigns'"},

		"a message that looks like an error": {`error:
       … while calling the 'throw' builtin
         at ` + snapshot + `/slipway.nix:3:12:
            3| throw
             | ^

       error: two problems:
       error: this is the first

       error: this is the second
`, KindRefused, "two problems:\nerror: this is the first\n\nerror: this is the second"},

		"failed assertions": {`error:
       … while evaluating the attribute 'config'
         at ` + snapshot + `/lib/modules.nix:3:12:
            3| x
             | ^

       error:
       Failed assertions:
       - The wiki needs a domain.
       - Definition values are in ` + "`/nix/store/vj85iyxbbbm1kk1x8zp9vp2ghi92zdiw-nixpkgs/lib/types.nix'" + `
`, KindRefused, "Failed assertions:\n- The wiki needs a domain.\n- Definition values are in `nixpkgs/lib/types.nix'"},

		"lix": {`error:
       … while calling the 'throw' builtin
         at ` + snapshot + `/slipway.nix:2:3:
            1| {
            2|   names = throw "x";
             |   ^

       error: the reason
`, KindRefused, "the reason"},

		"colours": {"\x1b[31;1merror:\x1b[0m the \x1b[35;1mreason\x1b[0m\n", KindRefused, "the reason"},
		"position without a source": {
			"error: the reason\n\n       at «none»:0: (source not available)\n", KindRefused, "the reason"},
		"bytes":            {"error: caf\xe9\x00\x07 is\r closed\n", KindRefused, "caf\uFFFD is closed"},
		"an empty message": {"error: \n", KindRefused, "the evaluation failed without a message"},
		"nothing":          {"", KindRefused, "the evaluation failed without a message (exit status 1)"},

		"stack 2.8": {"error: stack overflow (possible infinite recursion)\n", KindStackOverflow, ""},
		"stack 2.24": {`error:
       … from call site
         at ` + snapshot + `/slipway.nix:1:20:
            1| let f = n: 1 + f n; in f 1
             |                    ^

       (19995 duplicate frames omitted)

       error: stack overflow; max-call-depth exceeded
       at ` + snapshot + `/slipway.nix:1:16:
            1| let f = n: 1 + f n; in f 1
             |                ^
`, KindStackOverflow, ""},
		"seen recursion": {`error: infinite recursion encountered

       at ` + snapshot + `/slipway.nix:1:9:

            1| let x = x; in x
             |         ^
`, KindRefused, "infinite recursion encountered"},

		"memory 2.8":    {"GC Warning: Out of Memory! Heap size: 640 MiB. Returning NULL!\nerror: out of memory\n", KindOutOfMemory, ""},
		"memory of C++": {"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n", KindOutOfMemory, ""},
		"function":      {"error: cannot convert a function to JSON\n", KindWrongShape, "the result is not data: cannot convert a function to JSON"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := exits(t, "exit 1", begun+"\n"+test.stderr)
			failure := requireFailure(t, classify(out, 1<<30, shortNames(snapshot, "/private")), test.kind)
			if test.message != "" {
				require.Equal(t, test.message, failure.Message)
			}
		})
	}
}

func TestClassifySignals(t *testing.T) {
	t.Parallel()
	names := strings.NewReplacer()
	// Somebody else killed it: the machine is out of memory.
	requireFailure(t, classify(exits(t, "kill -KILL $$", begun+"\n"), 1, names), KindOutOfMemory)
	// A stack overflow that Nix did not catch.
	requireFailure(t, classify(exits(t, "ulimit -c 0; kill -SEGV $$", begun+"\n"), 1, names), KindStackOverflow)

	var failure *Failure
	err := classify(exits(t, "exit 1", "error: cannot connect to the daemon\n"), 1, names)
	require.NotErrorAs(t, err, &failure)
	require.ErrorContains(t, err, "cannot connect to the daemon")
}

func TestShownIsBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("ä", messageLimit), strings.Repeat("x", messageLimit+1), strings.Repeat("€", messageLimit)} {
		message := shown(text, strings.NewReplacer())
		require.LessOrEqual(t, len(message), messageLimit)
		require.Greater(t, len(message), messageLimit-8)
		require.True(t, utf8.ValidString(message))
	}
	exact := strings.Repeat("x", messageLimit)
	require.Equal(t, exact, shown(exact, strings.NewReplacer()))
}

func TestSize(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{2 << 30: "2 GiB", 3 << 29: "1.5 GiB", 8 << 20: "8 MiB", 1000: "1000 bytes", 2048: "2 KiB"} {
		require.Equal(t, want, size(bytes))
	}
}

func TestEndsBuffer(t *testing.T) {
	t.Parallel()
	var b endsBuffer
	_, _ = b.Write([]byte("begin"))
	for range 10_000 {
		_, _ = b.Write([]byte(strings.Repeat("x", 100)))
	}
	_, _ = b.Write([]byte("end"))
	text := b.String()
	require.True(t, strings.HasPrefix(text, "beginx") && strings.HasSuffix(text, "xend"))
	require.Contains(t, text, "\n…\n")
	require.LessOrEqual(t, len(text), stderrHead+stderrTail+8)

	b = endsBuffer{}
	_, _ = b.Write([]byte(strings.Repeat("y", stderrHead+stderrTail)))
	require.Equal(t, strings.Repeat("y", stderrHead+stderrTail), b.String())
}
