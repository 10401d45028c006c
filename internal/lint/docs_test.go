package lint

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named matches a test's name in the documentation: in full, or its beginning and three dots.
var named = regexp.MustCompile("`(Test[A-Z]\\w*)(\\.\\.\\.)?`")

// Every test that the documentation names exists.
func TestDocumentedTestsExist(t *testing.T) {
	root := filepath.Join("..", "..")
	tests := map[string]bool{}
	for _, d := range parseModule(t, root).folders {
		maps.Copy(tests, d.tests)
	}
	found := 0
	each(t, filepath.Join(root, "docs"), ".md", func(path string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			if !exists(tests, m[1], m[2] != "") {
				t.Errorf("%s names %s, and there is no such test", path, m[0])
			}
		}
		return nil
	})
	if found < 50 {
		t.Errorf("only %d tests are named: this test looks at the wrong files", found)
	}
}

func exists(tests map[string]bool, name string, beginning bool) bool {
	if !beginning {
		return tests[name]
	}
	for test := range tests {
		if strings.HasPrefix(test, name) {
			return true
		}
	}
	return false
}

// each calls do with every file below root whose name ends with end.
func each(t *testing.T, root, end string, do func(path string) error) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, end):
			return nil
		}
		return do(path)
	})
	if err != nil {
		t.Fatal(err)
	}
}
