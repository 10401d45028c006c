package integration

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// sideBySide is how many tests run at the same time. Each has a control plane, an account and a scheduler of its own and waits for most of
// its time, so that it isn't for the processors to say. With many more than two of them an API server takes a minute to start on two processors.
const sideBySide = 4

// Tests run side by side (t.Parallel), unless they keep the machine busy by themselves or compare how fast things are: those come first, one
// after the other, and say so.
func TestMain(m *testing.M) {
	flag.Parse()
	told := false
	flag.Visit(func(f *flag.Flag) { told = told || f.Name == "test.parallel" })
	if !told {
		if err := flag.Set("test.parallel", fmt.Sprint(sideBySide)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
