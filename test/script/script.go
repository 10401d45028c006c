package script

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite what the steps of the scripts lead to; understand each difference before you keep it")

// Step is one line of a script.
type Step struct {
	Name string
	Args []string
}

// Do carries out a step and returns what came of it, a line per consequence. An error ends the script: the step can't be understood.
type Do func(Step) (lines []string, err error)

// Run runs each script that the pattern matches as a subtest; start begins a new story.
func Run(t *testing.T, pattern string, start func(t *testing.T) Do) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no script matches %s: %v", pattern, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Play(string(text), start(t))
			if err != nil {
				t.Fatalf("%s:%v", path, err)
			}
			diff := cmp.Diff(strings.Split(string(text), "\n"), strings.Split(got, "\n"))
			switch {
			case diff == "":
			case *update:
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%s came out otherwise (-script +now; -update rewrites it):\n%s", path, diff)
			}
		})
	}
}

// Play carries out the steps of a script and returns it with what came of them now. An error begins with the line's number.
func Play(text string, do Do) (string, error) {
	var out strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, " "), strings.HasPrefix(line, "\t"):
			continue // what the step came to last time
		case line == "", strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
			continue
		}
		words, err := split(line)
		if err != nil {
			return "", fmt.Errorf("%d: %w", i+1, err)
		}
		lines, err := do(Step{words[0], words[1:]})
		if err != nil {
			return "", fmt.Errorf("%d: %s: %w", i+1, line, err)
		}
		fmt.Fprintln(&out, line)
		for _, consequence := range lines {
			fmt.Fprintf(&out, "    %s\n", consequence)
		}
	}
	return out.String(), nil
}

// split returns the words of a line; quotes keep spaces.
func split(line string) (words []string, err error) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 && len(words) > 0 { // in quotes: the end of a word that has begun, or a word of its own
			if last := len(words) - 1; strings.HasSuffix(words[last], "=") {
				words[last] += part
			} else {
				words = append(words, part)
			}
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	if strings.Count(line, `"`)%2 == 1 || len(words) == 0 {
		return nil, errors.New("a quote is missing")
	}
	return words, nil
}
