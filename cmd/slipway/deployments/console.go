package deployments

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/schema/deployment"
)

// console is where a command prints.
type console struct {
	out, err io.Writer
	json     bool
	// color: out is a terminal that wants colours.
	color bool
	// live: err is a terminal, so a line of progress may be drawn over. width
	// is how many characters it has.
	live  bool
	width int
	begun time.Time
	// quiet is how long nothing may happen before progress is drawn on a
	// terminal, and repeat how often it is printed elsewhere.
	quiet, repeat time.Duration

	mu      sync.Mutex
	failure error     // the first write to out that failed
	news    time.Time // when something was printed last
	waiting string    // what for
	trouble string    // why it takes longer; empty when all is well
	drawn   bool      // a line of progress stands on the terminal
}

func (c *console) elapsed() time.Duration { return time.Since(c.begun) }

// print writes to standard output.
func (c *console) print(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
	c.news = time.Now()
	if _, err := io.WriteString(c.out, text); err != nil && c.failure == nil {
		c.failure = fmt.Errorf("output: %w", err)
	}
}

// line prints a line that has no text of the server in it that was not made
// safe.
func (c *console) line(format string, args ...any) { c.print(fmt.Sprintf(format, args...) + "\n") }

// step prints a line with the time since the start. The further lines of text
// stand below its first.
func (c *console) step(text string) {
	c.line("%5.1fs  %s", c.elapsed().Seconds(), strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n          "))
}

// note writes a line to standard error.
func (c *console) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
	_, _ = fmt.Fprintf(c.err, format+"\n", args...)
}

// broken is why out cannot be written; nil as long as it can.
func (c *console) broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// document prints a JSON document for a person, or a program.
func (c *console) document(value any) error { return c.encode(value, "  ") }

// record prints a JSON document on one line.
func (c *console) record(value any) error { return c.encode(value, "") }

func (c *console) encode(value any, indent string) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	c.print(safeJSON(b.String()))
	return nil
}

// safeJSON escapes what encoding/json leaves of the characters that are unsafe
// on a terminal. They only stand in strings, so the document stays the same.
func safeJSON(document string) string {
	var b strings.Builder
	for _, r := range document {
		if r >= 0x7f && unsafe(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// maxCell is how many characters of a reason a table shows.
const maxCell = 80

// table prints aligned columns. The cells may be text of the server.
func (c *console) table(header []string, rows [][]string) {
	widths := make([]int, len(header))
	clean := [][]string{header}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, text := range row {
			cells[i] = cell(text)
			if cells[i] == "" {
				cells[i] = "-"
			}
		}
		clean = append(clean, cells)
	}
	for _, row := range clean {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	var b strings.Builder
	for n, row := range clean {
		for i, text := range row {
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+2)
			if i == len(row)-1 {
				padding = ""
			}
			if n > 0 && (header[i] == "STATE" || header[i] == "STATUS") {
				text = c.paint(text)
			}
			b.WriteString(text + padding)
		}
		b.WriteByte('\n')
	}
	c.print(b.String())
}

func (c *console) nodes(nodes []deployment.Node) {
	if len(nodes) == 0 {
		return
	}
	rows := make([][]string, len(nodes))
	for i, node := range nodes {
		rows[i] = []string{node.Name, strings.Join(node.Names, ", ")}
	}
	c.table([]string{"NODE", "NAMES"}, rows)
}

// paint colours a state of a deployment or a status of a build.
func (c *console) paint(word string) string {
	if !c.color {
		return word
	}
	code := ""
	switch word {
	case string(deployment.StateActive), string(deployment.StatusSucceeded):
		code = "32" // green
	case string(deployment.StatusFailed):
		code = "31" // red
	case string(deployment.StateBuilding), string(deployment.StateDestroying), string(deployment.StatusRunning), string(deployment.StatusQueued):
		code = "33" // yellow
	case string(deployment.StateIdle), string(deployment.StatusCancelled), string(deployment.StatusSuperseded):
		code = "2" // faint
	default:
		return word
	}
	return "\x1b[" + code + "m" + word + "\x1b[0m"
}

// when writes a time for a person: absolute, and how long ago.
func (c *console) when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z") + " (" + ago(time.Since(t)) + ")"
}

// ago writes how long ago something was. The clocks of two machines differ, so
// the near future is now.
func ago(d time.Duration) string {
	switch {
	case d < -time.Minute:
		return "in the future"
	case d < time.Second:
		return "now"
	default:
		return span(d) + " ago"
	}
}

// span writes a duration with the one unit that matters.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// short cuts text to so many characters.
func short(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:max(0, most-1)]) + "…"
}

// wait says what the command waits for from now on.
func (c *console) wait(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = short(cell(fmt.Sprintf(format, args...)), 2*maxCell)
}

// hear takes the troubles of the client.
func (c *console) hear(err error, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble = ""
	if err != nil {
		c.trouble = fmt.Sprintf("%s; next try in %s", short(cell(err.Error()), 2*maxCell), span(pause))
	}
}

// progress shows what the command waits for whenever there is no news, until
// stop is called.
func (c *console) progress() (stop func()) {
	c.mu.Lock()
	c.news = time.Now()
	c.mu.Unlock()
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(min(c.quiet, c.repeat) / 8)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				c.draw()
			case <-ended:
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-done
		c.mu.Lock()
		defer c.mu.Unlock()
		c.erase()
	}
}

func (c *console) draw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	silent := time.Since(c.news)
	what := "waiting: " + c.waiting
	if c.trouble != "" {
		what = c.trouble
	}
	text := fmt.Sprintf("%5.1fs  %s", c.elapsed().Seconds(), what)
	switch {
	case c.waiting == "":
	case c.live && silent >= c.quiet:
		_, _ = io.WriteString(c.err, "\r\x1b[K"+short(text, c.width-1))
		c.drawn = true
	case !c.live && silent >= c.repeat:
		_, _ = io.WriteString(c.err, text+"\n")
		c.news = time.Now()
	}
}

// erase takes the line of progress away. The caller holds the lock.
func (c *console) erase() {
	if c.drawn {
		_, _ = io.WriteString(c.err, "\r\x1b[K")
		c.drawn = false
	}
}
