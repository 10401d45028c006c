package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// Rule looks at one parsed file.
type Rule struct {
	Name, Reason string
	// Find calls report for each place that breaks the rule. path is relative to the module's root.
	Find func(path string, file *ast.File, report func(token.Pos))
}

// Rules of the module.
var Rules = []Rule{
	{
		Name:   "no time.Sleep in tests",
		Reason: "a test that sleeps is slow where the machine is fast and fails where it is slow; wait for the event, or step a clock",
		Find: func(path string, file *ast.File, report func(token.Pos)) {
			if strings.HasSuffix(path, "_test.go") {
				calls(file, "time", report, "Sleep")
			}
		},
	},
	{
		Name:   "no skipped tests",
		Reason: "a test that doesn't run says nothing; remove it or make it run",
		Find: func(path string, file *ast.File, report func(token.Pos)) {
			if strings.HasSuffix(path, "_test.go") {
				for _, receiver := range []string{"t", "b", "tb", "f"} {
					calls(file, receiver, report, "Skip", "Skipf", "SkipNow")
				}
			}
		},
	},
	{
		Name:   "no notes to self",
		Reason: "what is missing is said in the documentation or isn't missing",
		Find: func(path string, file *ast.File, report func(token.Pos)) {
			for _, group := range file.Comments {
				for _, comment := range group.List {
					if note.MatchString(comment.Text) {
						report(comment.Pos())
					}
				}
			}
		},
	},
	{
		Name:   "no printing in the product",
		Reason: "the product speaks by logs, events and conditions; standard output belongs to commands",
		Find: func(path string, file *ast.File, report func(token.Pos)) {
			if (strings.HasPrefix(path, "pkg/") || strings.HasPrefix(path, "plugins/")) && !strings.HasSuffix(path, "_test.go") {
				calls(file, "fmt", report, "Print", "Printf", "Println")
				calls(file, "log", report, "Print", "Printf", "Println", "Fatal", "Fatalf")
			}
		},
	},
	{
		Name:   "no wall clock in the still room",
		Reason: "time comes in as a value, or a decision can't be replayed",
		Find: func(path string, file *ast.File, report func(token.Pos)) {
			if strings.HasPrefix(path, "pkg/capacity/") && !strings.HasSuffix(path, "_test.go") {
				calls(file, "time", report, "Now", "Since", "Until", "After", "NewTimer", "NewTicker", "Sleep")
			}
		},
	},
}

var note = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

// calls reports calls of receiver.name for any of the names.
func calls(file *ast.File, receiver string, report func(token.Pos), names ...string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		on, ok := selector.X.(*ast.Ident)
		if !ok || on.Name != receiver {
			return true
		}
		for _, name := range names {
			if selector.Sel.Name == name {
				report(call.Pos())
			}
		}
		return true
	})
}
