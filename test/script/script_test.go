package script

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What came of the steps is written below them, whatever stood there before; the rest of a script stays as it is.
func TestPlay(t *testing.T) {
	const script = `# A story.

say hello "to all of you" why="no reason"
    something that was true once
    and this
# More.
silence
    hello
say bye
`
	const want = `# A story.

say hello "to all of you" why="no reason"
    hello
    to all of you
    why=no reason
# More.
silence
say bye
    bye
`
	got, err := Play(script, func(s Step) ([]string, error) {
		if s.Name == "say" {
			return s.Args, nil
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("script (-want +got):\n%s", diff)
	}
	if again, err := Play(got, func(s Step) ([]string, error) { return nil, nil }); err != nil || strings.Contains(again, "    ") {
		t.Errorf("what no longer comes of the steps is still there: %v\n%s", err, again)
	}
}

// A mistake in a script is reported with its line.
func TestMistakes(t *testing.T) {
	for script, want := range map[string]string{
		"a\n\nb \"c\n": "3: a quote is missing",
		"# x\nd 1\n":   "2: d 1: unknown",
	} {
		_, err := Play(script, func(s Step) ([]string, error) {
			if s.Name == "d" {
				return nil, errors.New("unknown")
			}
			return nil, nil
		})
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", script, err, want)
		}
	}
}
