package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// instruction is one of a container file, with its lines joined.
type instruction struct{ name, args string }

func instructions(t *testing.T, file string) []instruction {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			lines = append(lines, line)
		}
	}
	var all []instruction
	for line := range strings.Lines(strings.ReplaceAll(strings.Join(lines, ""), "\\\n", " ")) {
		if name, args, _ := strings.Cut(strings.TrimSpace(line), " "); name != "" {
			all = append(all, instruction{name, strings.Join(strings.Fields(args), " ")})
		}
	}
	return all
}

// lint is what BuildKit's linter (tests/containerlint) has to say about a
// container file; nothing about one that is clean.
func lint(t *testing.T, file string) string {
	t.Helper()
	const program = "../bin/containerlint"
	require.FileExists(t, program, "run make "+strings.TrimPrefix(program, "../"))
	out, err := exec.Command(program, file).CombinedOutput()
	if err != nil {
		require.IsType(t, &exec.ExitError{}, err)
		require.NotEmpty(t, out)
	}
	return string(out)
}

func TestContainerFileIsLinted(t *testing.T) {
	const file = "../deploy/container/Containerfile"
	require.Empty(t, lint(t, file))

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(text), "check=skip")
	bad := filepath.Join(t.TempDir(), "Containerfile")
	for rule, c := range map[string]struct{ old, replacement string }{
		"JSONArgsRecommended":            {`CMD ["serve"]`, `CMD serve`},
		"LegacyKeyValueFormat":           {`USER 65532:65532`, "ENV NAME value\nUSER 65532:65532"},
		"SecretsUsedInArgOrEnv":          {`USER 65532:65532`, "ENV API_KEY=value\nUSER 65532:65532"},
		"UndefinedArgInFrom":             {`FROM ${BASE_IMAGE}`, `FROM ${BASE}`},
		"WorkdirRelativePath":            {`WORKDIR /src`, `WORKDIR src`},
		"NoEmptyContinuation":            {"apt-get update \\\n", "apt-get update \\\n\n"},
		"MultipleInstructionsDisallowed": {`CMD ["serve"]`, "CMD [\"serve\"]\nCMD [\"serve\"]"},
		// What is no container file at all.
		"unknown instruction": {`USER 65532:65532`, `USR 65532:65532`},
	} {
		require.Contains(t, string(text), c.old)
		require.NoError(t, os.WriteFile(bad, []byte(strings.Replace(string(text), c.old, c.replacement, 1)), 0o600))
		require.Contains(t, lint(t, bad), rule)
	}
}

// The rules that the linter does not have, and those that tie the file to the
// chart.
func TestContainerFile(t *testing.T) {
	const root = ".."
	all := instructions(t, root+"/deploy/container/Containerfile")
	require.Greater(t, len(all), 10)
	exact := regexp.MustCompile(`^[a-z0-9._/-]+(:[0-9]+\.[0-9]+[a-z0-9.-]*|@sha256:[0-9a-f]{64})$`)
	bases, stages := map[string]string{}, []string{}
	var user, entrypoint, command string
	for _, i := range all {
		switch i.name {
		case "ARG":
			name, value, _ := strings.Cut(i.args, "=")
			require.NotRegexp(t, `(?i)token|password|secret|key`, name, "a build argument stays readable in the image")
			bases["${"+name+"}"] = value
		case "FROM":
			base, stage, _ := strings.Cut(i.args, " AS ")
			if pinned, ok := bases[base]; ok {
				base = pinned
			}
			require.Regexp(t, exact, base, "a base is an exact version or a digest")
			stages = append(stages, stage)
			user, entrypoint, command = "", "", ""
		case "RUN":
			require.NotRegexp(t, `\bsudo\b|curl[^|]*\||wget[^|]*\||chmod (-R )?777|apt-get (dist-)?upgrade`, i.args)
			if strings.Contains(i.args, "apt-get install") {
				require.Contains(t, i.args, "apt-get update &&", "an index of its own layer may be old")
				require.Contains(t, i.args, "--no-install-recommends")
				require.Contains(t, i.args, " -y ")
				require.Contains(t, i.args, "rm -rf /var/lib/apt/lists/*")
			}
		case "COPY":
			words := strings.Fields(i.args)
			if from, ok := strings.CutPrefix(words[0], "--from="); ok {
				require.Contains(t, stages, from)
				continue
			}
			for _, source := range words[:len(words)-1] {
				_, err := os.Stat(filepath.Join(root, source))
				require.NoError(t, err)
			}
		case "USER":
			user = i.args
		case "ENTRYPOINT":
			entrypoint = i.args
		case "CMD":
			command = i.args
		case "WORKDIR":
			require.True(t, filepath.IsAbs(i.args))
		case "EXPOSE":
			require.Equal(t, "8080 8081 8082 8443", i.args)
		default:
			t.Errorf("%s is not used here (ENV stays in the image, ADD fetches)", i.name)
		}
	}
	require.Len(t, stages, 2)
	for _, exec := range []string{entrypoint, command} {
		var words []string
		require.NoError(t, json.Unmarshal([]byte(exec), &words), "a shell would not hand on SIGTERM")
	}

	// The chart runs it as the user that owns its folders.
	uid, gid, _ := strings.Cut(user, ":")
	require.Regexp(t, `^[1-9][0-9]*$`, uid, "a name could be root, as far as Kubernetes can tell")
	require.Equal(t, uid, gid)
	raw, err := os.ReadFile(root + "/deploy/chart/templates/_helpers.tpl")
	require.NoError(t, err)
	require.Contains(t, string(raw), "runAsUser: "+uid+"\n")

	// It builds with a Go that go.mod is content with, and with its history.
	raw, err = os.ReadFile(root + "/go.mod")
	require.NoError(t, err)
	minor := regexp.MustCompile(`(?m)^go (1\.[0-9]+)`).FindSubmatch(raw)
	require.NotNil(t, minor)
	require.Contains(t, bases["${GO_IMAGE}"], ":"+string(minor[1])+".")
	ignored, err := os.ReadFile(root + "/.containerignore")
	require.NoError(t, err)
	require.False(t, slices.Contains(strings.Fields(string(ignored)), ".git"))
}
