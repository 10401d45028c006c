package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// README.md and the sandbox name the same commands to try.
func TestReadmeHasWhatToTry(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readme), "    make sandbox\n")
	var want []string
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(line, "    ")
		if ok {
			want = append(want, strings.TrimSpace(command))
		} else if len(want) > 0 {
			break
		}
	}
	var got []string
	for _, line := range toTry {
		command, _, _ := strings.Cut(line, "   (")
		got = append(got, command)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what to try (-README.md +sandbox):\n%s", diff)
	}
}
