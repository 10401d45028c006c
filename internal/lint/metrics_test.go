package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Every metric is registered, and one with a series per node pool in pkg/poolmetrics: otherwise nobody sees it, or the series of removed
// pools stay.
func TestMetricsAreRegistered(t *testing.T) {
	found := 0
	err := filepath.WalkDir(filepath.Join("..", "..", "pkg"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		metrics, problems := unregistered(t, path)
		found += metrics
		for _, problem := range problems {
			t.Errorf("%s: %s", path, problem)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 20 {
		t.Errorf("only %d metrics were found: the test holds for nothing", found)
	}
}

// unregistered returns how many metrics the variables of a folder hold, and what is wrong with their registration.
func unregistered(t *testing.T, folder string) (metrics int, problems []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	byPool := map[string]bool{}     // by variable: it has a series per node pool
	registry := map[string]string{} // by variable: the package that it is registered with
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, value := range n.Values {
					if call, ok := value.(*ast.CallExpr); ok && strings.HasPrefix(selected(call.Fun), "metrics.New") {
						byPool[n.Names[i].Name] = mentions(call, "poolmetrics.Label")
					}
				}
			case *ast.CallExpr:
				if by, ok := strings.CutSuffix(selected(n.Fun), ".MustRegister"); ok {
					for _, arg := range n.Args {
						if name, ok := arg.(*ast.Ident); ok {
							registry[name.Name] = by
						}
					}
				}
			}
			return true
		})
	}
	for name, pool := range byPool {
		switch by := registry[name]; {
		case by == "":
			problems = append(problems, name+" is not registered")
		case pool && by != "poolmetrics":
			problems = append(problems, name+" has a series per node pool: register it with poolmetrics.MustRegister")
		}
	}
	return len(byPool), problems
}

// selected returns package.Name for such an expression, or "".
func selected(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}

func mentions(in ast.Node, name string) (yes bool) {
	ast.Inspect(in, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && selected(e) == name {
			yes = true
		}
		return !yes
	})
	return yes
}
