package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModule(t *testing.T) {
	imports := goList(t)
	if len(imports[module+"/pkg/capacity"]) == 0 {
		t.Fatal("go list knows no imports of pkg/capacity: the rules would hold for nothing")
	}
	for _, line := range Violations(imports, Rules) {
		t.Error(line)
	}
}

func TestRulesNameRooms(t *testing.T) {
	for _, rule := range Rules {
		if _, err := os.Stat(filepath.Join("..", "..", rule.Room)); err != nil {
			t.Errorf("a rule is about a room that doesn't exist: %v", err)
		}
		if rule.Reason == "" || len(rule.Away) == 0 {
			t.Errorf("the rule about %s says nothing", rule.Room)
		}
	}
	for pkg := range exceptions {
		if _, err := os.Stat(filepath.Join("..", "..", strings.TrimPrefix(pkg, module))); err != nil {
			t.Errorf("an exception is about a package that doesn't exist: %v", err)
		}
	}
}

func TestViolations(t *testing.T) {
	imports := map[string][]string{
		module + "/pkg/still":     {"fmt", module + "/pkg/helper"},
		module + "/pkg/helper":    {"net/http"},
		module + "/pkg/stillness": {"net/http"},
		module + "/pkg/edge":      {"example.com/sdk/service"},
	}
	for _, tc := range []struct {
		name string
		rule Rule
		want []string
	}{
		{
			name: "an import below the forbidden one counts",
			rule: Rule{"pkg/edge", []string{"example.com/sdk"}, "why"},
			want: []string{module + "/pkg/edge -> example.com/sdk/service must stay away from example.com/sdk: why"},
		},
		{
			name: "an import through a neighbour counts, and a room whose name begins alike is another room",
			rule: Rule{"pkg/still", []string{"net/http"}, "why"},
			want: []string{module + "/pkg/still -> " + module + "/pkg/helper -> net/http must stay away from net/http: why"},
		},
		{
			name: "a path that begins alike is another path",
			rule: Rule{"pkg/edge", []string{"example.com/sd"}, "why"},
		},
		{
			name: "a room keeps its own rules only",
			rule: Rule{"pkg/helper", []string{"example.com/sdk"}, "why"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Violations(imports, []Rule{tc.rule})); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

// goList asks the go command for the imports of every package of the module, without its tests.
func goList(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			imports[fields[0]] = fields[1:]
		}
	}
	return imports
}
