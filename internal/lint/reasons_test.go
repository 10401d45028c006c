package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// reasonsIn are the files with the reasons for which pods wait, and those of their functions that put them into words; nil: all of them.
var reasonsIn = map[string][]string{
	"pkg/capacity/ledger/reasons/reasons.go":        nil,
	"pkg/capacity/ledger/open.go":                   {"waitReason", "Tick", "gatesEnd"},
	"pkg/capacity/ledger/overdue.go":                nil,
	"pkg/capacity/ledger/pods.go":                   {"Submit", "queue", "again"},
	"pkg/capacity/ledger/awaken.go":                 nil,
	"pkg/capacity/class_of.go":                      {"ClassOf", "bindTime"},
	"pkg/capacity/planner/refuse.go":                nil,
	"pkg/capacity/planner/total.go":                 {"totalReason"},
	"pkg/capacity/planner/forbidden.go":             {"byFilters"},
	"pkg/capacity/planner/topology/spread.go":       {"Refusal"},
	"pkg/capacity/planner/topology/affinity.go":     {"Refusal"},
	"pkg/capacity/planner/catalog/template.go":      nil,
	"pkg/capacity/guard/breaker.go":                 {"Text"},
	"pkg/karpenter/profiles.go":                     nil,
	"pkg/karpenter/externalcontroller.go":           {"held"},
	"pkg/karpenter/store/store.go":                  {"Problem"},
	"pkg/launch/purchases.go":                       {"Headroom"},
	"pkg/pending/volumes.go":                        nil,
	"pkg/provisioning/gangs.go":                     {"Refuse", "without"},
	"pkg/provisioning/gather.go":                    nil,
	"pkg/provisioning/namespaces.go":                nil,
	"pkg/spending/budgets.go":                       {"exceeded"},
	"pkg/spending/check.go":                         {"doubts", "newImage"},
	"plugins/binder/binder.go":                      {"Filter"},
	"plugins/provision/provision.go":                {"PostFilter"},
	"pkg/capacity/planner/topology/antiaffinity.go": {"Refusal"},
}

// notReasons are texts in these files that no pod shows as a reason, or that are explained by what is around them.
var notReasons = []string{
	"machines fail in another pool", "are resumed: a machine has served", "one machine is being tried", "tried once the API server accepts its Node", // variants of a pause
	"(best of", "node affinity on",
	"instances are launched per minute", "all nodes together cost at most", "nodes of the pool cost at most", // conditions of pools
	"its reservation was not extended", // of a ProvisioningRequest
	"A pod can't be planned for",       // a log line
}

var verbs = regexp.MustCompile(`%[-+#0-9.]*[a-zA-Z]`)

// docs/why-pending.md has every reason that the program puts into words for a pod without a node, and so have the golden tests of
// 'dovetail why pod'. What is looked for is the first part of its text without a value.
func TestReasonsAreExplained(t *testing.T) {
	root := filepath.Join("..", "..")
	texts := map[string]string{}
	for _, path := range []string{"docs/why-pending.md", "pkg/explain/testdata/reasons.golden"} {
		texts[path] = readText(t, path)
	}
	reasons := 0
	for path, functions := range reasonsIn {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(path)), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && functions != nil && !slices.Contains(functions, f.Name.Name) {
				continue
			} else if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.IMPORT {
				continue
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				e, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				said, ok := literal(e)
				if !ok {
					return true
				}
				part := wording(verbs.Split(said, -1))
				if part == "" || slices.ContainsFunc(notReasons, func(s string) bool { return strings.Contains(said, s) }) {
					return true // names of fields and logs' keys are shorter
				}
				reasons++
				for page, text := range texts {
					if !strings.Contains(text, part) {
						t.Errorf("%s: %s doesn't explain %q: it lacks %q", path, page, said, part)
					}
				}
				return true
			})
		}
	}
	if reasons < 60 {
		t.Errorf("only %d reasons were found: this test looks at the wrong functions", reasons)
	}
}

// readText returns a file of the module.
func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each kind of reason for which a node is kept, and each condition of a pool, is in a golden test of 'dovetail why'.
func TestKeptKindsAndConditionsAreExplained(t *testing.T) {
	for _, of := range []struct {
		path, golden string
		is           func(*ast.ValueSpec) bool
		least        int
	}{
		{"pkg/capacity/consolidation/kept.go", "pkg/explain/testdata/kept.golden", func(v *ast.ValueSpec) bool {
			named, ok := v.Type.(*ast.Ident)
			return ok && named.Name == "Kind"
		}, 25},
		{"pkg/objects/names.go", "pkg/explain/testdata/conditions.golden", func(v *ast.ValueSpec) bool {
			return strings.HasPrefix(v.Names[0].Name, "Condition") && strings.Contains(v.Doc.Text(), " on a NodePool")
		}, 6},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", filepath.FromSlash(of.path)), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		golden := readText(t, of.golden)
		found := 0
		ast.Inspect(file, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Values) == 0 || !of.is(v) {
				return true
			}
			found++
			if value, ok := literal(v.Values[0]); !ok || !strings.Contains(golden, "> "+value+"\n") {
				t.Errorf("%s: %s is not in %s: add it to pkg/explain/golden_test.go", of.path, v.Names[0].Name, of.golden)
			}
			return true
		})
		if found < of.least {
			t.Errorf("%s: only %d were found: this test reads it wrongly", of.path, found)
		}
	}
}

// wording returns the first part with at least three words, without the marks around values.
func wording(parts []string) string {
	for _, p := range parts {
		if p = strings.Trim(p, ` "(){},;:$`); strings.Count(p, " ") >= 2 {
			return p
		}
	}
	return ""
}
