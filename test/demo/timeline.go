package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// stage writes the output of the demonstration: on a terminal one line that changes in place, elsewhere a line per change.
type stage struct {
	out      io.Writer
	terminal bool
	begin    time.Time
	last     string // the text of the last line without its time
	dirty    bool   // the line on the terminal is not finished with a newline yet
}

func newStage(f *os.File) *stage {
	info, err := f.Stat()
	return &stage{out: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb", begin: time.Now()}
}

// say writes a separate line.
func (s *stage) say(format string, args ...any) {
	s.endLine()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// act announces a part of the demonstration.
func (s *stage) act(format string, args ...any) {
	s.endLine()
	fmt.Fprintf(s.out, "\n== "+format+"\n", args...)
	s.last = ""
}

// line shows the state if it differs from the last one shown.
func (s *stage) line(text string) {
	if text == s.last {
		return
	}
	s.last = text
	stamped := fmt.Sprintf("%7.1fs  %s", time.Since(s.begin).Seconds(), text)
	if !s.terminal {
		fmt.Fprintln(s.out, stamped)
		return
	}
	fmt.Fprintf(s.out, "\r\033[K%s", stamped)
	s.dirty = true
}

func (s *stage) endLine() {
	if s.dirty {
		fmt.Fprintln(s.out)
		s.dirty = false
	}
}

// scene is one part of the demonstration. It ends when done returns true.
type scene struct {
	what     string
	deadline time.Duration
	state    func() string                          // for the line
	done     func() (finished bool, missing string) // missing describes what the scene still waits for
	failed   func() error                           // returns an error if a process has exited
}

// play shows the state until the scene is done. It updates the line ten times a second on a terminal, and writes one line each second
// elsewhere.
func (s *stage) play(ctx context.Context, sc scene) error {
	ctx, cancel := context.WithTimeout(ctx, sc.deadline)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		finished, missing := sc.done()
		if finished || s.terminal || n%10 == 0 {
			s.line(sc.state())
		}
		if finished {
			s.endLine()
			return nil
		}
		if err := sc.failed(); err != nil {
			s.endLine()
			return fmt.Errorf("%s: %w", sc.what, err)
		}
		select {
		case <-ctx.Done():
			s.line(sc.state())
			s.endLine()
			return fmt.Errorf("%s: %w: %s", sc.what, context.Cause(ctx), missing)
		case <-tick.C:
		}
	}
}
