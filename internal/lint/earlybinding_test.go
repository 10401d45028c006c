package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile("`([A-Za-z]+)(\\.\\.\\.)?`")

// Each row of docs/early-binding.md names what proves it, and everything that is named exists: a test function, a scene of
// test/realkubelet, or a check of a test.
func TestEarlyBindingNamesWhatIsThere(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "early-binding.md"))
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, filepath.Join("ledger", "open.go")) {
			return err
		}
		text, err := os.ReadFile(path)
		tests.Write(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	functions := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?(\w+)\(`).FindAllStringSubmatch(tests.String(), -1) {
		functions[m[1]] = true
	}
	rows := 0
	for line := range strings.SplitSeq(string(page), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.Contains(line, ": ") {
			continue
		}
		rows++
		names := quoted.FindAllStringSubmatch(cells[4], -1)
		if len(names) == 0 {
			t.Errorf("nothing is named that shows:%s", cells[2])
		}
		for _, name := range names {
			if name[2] == "" && !functions[name[1]] || name[2] != "" && !hasPrefix(functions, name[1]) {
				t.Errorf("there is no %s, which is said to show:%s", name[1], cells[2])
			}
		}
	}
	if rows < 25 {
		t.Fatalf("only %d rows were found: the test holds for nothing", rows)
	}
}

func hasPrefix(names map[string]bool, prefix string) bool {
	for name := range names {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
