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

// docs/why-pending.md has every reason that the program puts into words for a pod without a node. What is looked for
// is the first part of its text without a value.
func TestReasonsAreExplained(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "why-pending.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
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
				if !strings.Contains(page, part) {
					t.Errorf("%s: docs/why-pending.md doesn't explain %q: it lacks %q", path, said, part)
				}
				return true
			})
		}
	}
	if reasons < 60 {
		t.Errorf("only %d reasons were found: this test looks at the wrong functions", reasons)
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
