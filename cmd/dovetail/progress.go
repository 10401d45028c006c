package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/utils/clock"
)

// silence is how long a command may say nothing on a terminal.
const silence = 3 * time.Second

// progress tells people what a command is doing if it takes long.
type progress struct {
	out   io.Writer
	clock clock.WithDelayedExecution
}

// progressOf returns one that writes to the command's standard error if that is a terminal, and nowhere else.
func progressOf(cmd *cobra.Command) progress {
	if out, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		return progress{out, clock.RealClock{}}
	}
	return progress{io.Discard, clock.RealClock{}}
}

// doing says what is being done, unless the function that it returns is called before silence is over.
func (p progress) doing(what string) (done func()) {
	timer := p.clock.AfterFunc(silence, func() { _, _ = fmt.Fprintf(p.out, "%s ...\n", what) }) // what a terminal doesn't take is lost
	return func() { timer.Stop() }
}
