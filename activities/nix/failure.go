package nix

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// Kind is what went wrong with an evaluation, for who decides by it.
type Kind string

// The kinds of Failure.
const (
	// KindRefused: the module refuses the configuration, or does not evaluate
	// with it. The message is the module's own, or Nix's about the module.
	KindRefused Kind = "refused"
	// KindTimeout, KindOutOfMemory and KindOutputTooLarge: a limit of ours was
	// reached; Limit names it.
	KindTimeout        Kind = "timeout"
	KindOutOfMemory    Kind = "out_of_memory"
	KindOutputTooLarge Kind = "output_too_large"
	// KindStackOverflow: a recursion that is too deep, mostly an endless one.
	// A recursion that Nix itself sees to be endless is KindRefused.
	KindStackOverflow Kind = "stack_overflow"
	// KindNoSuchAttribute and KindWrongShape: the source does not keep the
	// contract of module sources.
	KindNoSuchAttribute Kind = "no_such_attribute"
	KindWrongShape      Kind = "wrong_shape"
	// KindBuildFailed: the deployer of the source does not build.
	KindBuildFailed Kind = "build_failed"
)

// Failure says that a source, or a source with a configuration, failed.
type Failure struct {
	Kind Kind
	// Message is a text for the user: valid UTF-8 of at most 4 KiB, perhaps of
	// several lines, without store paths, traces and positions.
	Message string
	// Limit is the limit that was reached, such as "60 s" or "2 GiB"; empty
	// for the other kinds.
	Limit string
	// Output is the end of what Nix printed, with its positions, for the log
	// of the operator: valid UTF-8 of at most 16 KiB. Empty where Nix was
	// not at fault.
	Output string
}

// Error is the message.
func (f *Failure) Error() string { return f.Message }

// Lasting tells whether the same evaluation fails again, so that the failure can
// be remembered. Time and memory depend on what else the machine does.
func (f *Failure) Lasting() bool {
	switch f.Kind {
	case KindTimeout, KindOutOfMemory, KindBuildFailed:
		return false
	}
	return true
}

// SourceError says that a source, a snapshot or an entry is not there or
// cannot be read.
type SourceError struct {
	// Source is what the operator named.
	Source string
	// Reason is a text for the operator.
	Reason string
	// Err is the cause, or nil.
	Err error
	// MayPass: the source may come to be there by itself, as one that is
	// fetched does when its server is back.
	MayPass bool
}

func (e *SourceError) Error() string { return fmt.Sprintf("source %s: %s", e.Source, e.Reason) }

// Unwrap gives the cause.
func (e *SourceError) Unwrap() error { return e.Err }

const (
	messageLimit = 4 << 10
	outputLimit  = 16 << 10

	// begun is what our side of an evaluation prints first. A process that
	// failed before has failed for a reason that is not in the source.
	begun = "trace: slipway begins"
)

var (
	ansi = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")
	// storePath is a store folder with the hash of an entry, up to its name.
	storePath = regexp.MustCompile(`(?:/[^\s/:'"«»]+)*/[0-9a-df-np-sv-z]{32}-`)
	// position is where an error is, excerptLine the source around it.
	position    = regexp.MustCompile(`^\s*at (?:/|«|<|\(|\.).*:\d+(?::\d+)?:(?: \(source not available\))?$`)
	excerptLine = regexp.MustCompile(`^\s*\d*\|`)
)

// limitFailure is the Failure of a limit.
func limitFailure(kind Kind, what, limit string) *Failure {
	return &Failure{Kind: kind, Message: fmt.Sprintf("the evaluation %s more than its limit of %s", what, limit), Limit: limit}
}

func timeout(limit time.Duration) *Failure {
	return limitFailure(KindTimeout, "took", fmt.Sprintf("%g s", limit.Seconds()))
}

func outOfMemory(bytes int64) *Failure { return limitFailure(KindOutOfMemory, "needs", size(bytes)) }

func outputTooLarge(bytes int64) *Failure {
	return limitFailure(KindOutputTooLarge, "gives", size(bytes))
}

// size writes bytes as people do.
func size(bytes int64) string {
	for _, unit := range []struct {
		name  string
		shift uint
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if bytes >= 1<<unit.shift {
			return fmt.Sprintf("%.4g %s", float64(bytes)/float64(int64(1)<<unit.shift), unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// classify says what an evaluation that exited by itself, but not with 0, died
// of. names are paths and how to show them. The error is a *Failure, except
// where the evaluation never began.
func classify(out output, memory int64, names *strings.Replacer) error {
	stderr := clean(out.stderr)
	message, found := lastError(stderr)
	signal := syscall.Signal(-1)
	if status, ok := out.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		signal = status.Signal()
	}

	var failure *Failure
	switch {
	case message == "out of memory" || message == "std::bad_alloc",
		!found && (strings.Contains(stderr, "std::bad_alloc") || strings.Contains(stderr, "GC Warning: Out of Memory!")),
		// We did not kill it, so the machine or the container ran out.
		signal == syscall.SIGKILL:
		failure = outOfMemory(memory)
	case strings.HasPrefix(message, "stack overflow") && !strings.Contains(message, "\n"),
		!found && (signal == syscall.SIGSEGV || signal == syscall.SIGBUS):
		failure = &Failure{Kind: KindStackOverflow, Message: "the evaluation recurses too deeply, perhaps endlessly"}
	case !strings.Contains(stderr, begun):
		return fmt.Errorf("nix did not begin the evaluation (%s): %s", out.state, shown(message, names))
	case !found:
		failure = &Failure{Kind: KindRefused, Message: fmt.Sprintf("the evaluation failed without a message (%s)", out.state)}
	case strings.HasPrefix(message, "cannot convert ") && strings.HasSuffix(message, " to JSON"):
		failure = &Failure{Kind: KindWrongShape, Message: "the result is not data: " + shown(message, names)}
	default:
		failure = &Failure{Kind: KindRefused, Message: shown(message, names)}
	}
	failure.Output = tail(stderr, outputLimit)
	return failure
}

// clean makes what Nix printed valid UTF-8 without control characters.
func clean(text string) string {
	text = ansi.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "")
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (r < ' ' || r == 0x7f) {
			return -1
		}
		return r
	}, text)
}

// lastError is the text of the last error that Nix printed, without what Nix
// puts around it. Nix writes, depending on its version and on whether it has a
// trace to show,
//
//	error: the message
//	       its second line
//
//	       at /nix/store/…:3:5:
//
//	            2|
//	            3| throw "the message"
//	             | ^
//	(use '--show-trace' to show detailed location information)
//
// or
//
//	error:
//	       … while calling the 'throw' builtin
//	         at /nix/store/…:3:5:
//	            3| throw "the message"
//	             | ^
//
//	       error: the message
//	       its second line
//
// Everything that belongs to an error is indented by seven, so a line of the
// message that says "error:" is not taken for an error.
func lastError(stderr string) (message string, found bool) {
	lines := strings.Split(stderr, "\n")
	first := -1
	for i, line := range lines {
		if strings.HasPrefix(line, "error:") {
			first = i
		}
	}
	if first < 0 {
		return "", false
	}
	const indent = "       "
	block := []string{strings.TrimSpace(lines[first][len("error:"):])}
	for _, line := range lines[first+1:] {
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, indent) {
			break
		}
		block = append(block, strings.TrimPrefix(line, indent))
	}
	return strings.TrimSpace(strings.Join(withoutPositions(withoutTrace(block)), "\n")), true
}

// withoutTrace drops the frames before the inner error, if there are any.
func withoutTrace(block []string) []string {
	if block[0] != "" {
		return block
	}
	frames := 0
	for i, line := range block {
		if strings.HasPrefix(line, "… ") || strings.HasPrefix(line, "(stack trace truncated") {
			frames = i
		}
	}
	if frames == 0 {
		return block
	}
	for i, line := range block[frames:] {
		if text, ok := strings.CutPrefix(line, "error:"); ok {
			return append([]string{strings.TrimSpace(text)}, block[frames+i+1:]...)
		}
	}
	return block
}

// withoutPositions drops each position with its excerpt, and blank lines that
// follow one another.
func withoutPositions(block []string) []string {
	var kept []string
	excerpt := false
	for _, line := range block {
		switch {
		case position.MatchString(line):
			excerpt = true
		case excerpt && excerptLine.MatchString(line):
		case line == "" && (excerpt || len(kept) > 0 && kept[len(kept)-1] == ""):
		default:
			excerpt = false
			kept = append(kept, strings.TrimRight(line, " \t"))
		}
	}
	return kept
}

// shown is a message as a user gets it: paths by their names, and not too long.
func shown(message string, names *strings.Replacer) string {
	message = storePath.ReplaceAllString(names.Replace(message), "")
	if message == "" {
		return "the evaluation failed without a message"
	}
	if len(message) <= messageLimit {
		return message
	}
	const cut = "…"
	message = message[:messageLimit-len(cut)]
	for !utf8.ValidString(message) {
		message = message[:len(message)-1]
	}
	return message + cut
}

// tail is at most the last n bytes of text, from the beginning of a line.
func tail(text string, n int) string {
	text = strings.TrimRight(text, "\n")
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		return text[i+1:]
	}
	return strings.ToValidUTF8(text, "")
}
