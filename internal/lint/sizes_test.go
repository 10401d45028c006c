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

const (
	mostLines   = 80 // of a function
	mostFields  = 12 // of a type with behaviour: one that has a mutex, a map or a channel
	mostMethods = 40
	mostPackage = 4000 // lines of a package, without its tests
)

const (
	controllers = "is taken apart as docs/design/controllers.md says"
	record      = "is a record: it has no goroutine and no lock, and is handed on as a value"
	planner     = "is the planner's working state, which will be divided"
)

// large are the types and packages that exceed the limits, and why they may for now. One that doesn't any more is to leave the list.
var large = map[string]string{
	"pkg/provisioning.search":    controllers,
	"pkg/capacity/ledger.Ledger": "is one step machine; readers get an interface of their own", "pkg/capacity/ledger.node": "is a node of the ledger, whose steps change it in one place",
	"pkg/capacity/ledger.pod": "is a pod of the ledger, likewise", "pkg/capacity/ledger.class": "is a class of the ledger, likewise",
	"pkg/capacity/guard.Guard": "is one step machine", "pkg/capacity/guard.Breaker": record,
	"pkg/capacity/planner.run": planner, "pkg/capacity/planner.podBatch": planner, "pkg/capacity/planner/topology.Group": planner,
	"pkg/capacity.Claim": record, "pkg/capacity.LaunchBatch": record, "pkg/capacity.Instance": record, "pkg/capacity.Class": record, "pkg/capacity.Pool": record, "pkg/capacity.PlannedNode": record,
	"pkg/karpenter/store.Store": "holds one cache per kind; the legacy kinds leave it", "pkg/legacy.ProvisionerSpec": record, "pkg/legacy.KubeletConfiguration": record,
	"pkg/aws/catalog.Type": record,
	"pkg/simulate.World":   "is the scheduler's framework handle with what a simulation adds", "plugins/provision.Args": record,
}

// Large functions, types and packages do several things. The product's are limited, so that each thing has a name.
func TestSizes(t *testing.T) {
	files := token.NewFileSet()
	methods, lines, found := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, root := range []string{"cmd", "pkg", "plugins"} {
		err := filepath.WalkDir(filepath.Join("..", "..", root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel(filepath.Join("..", ".."), filepath.Dir(path))
			if err != nil {
				return err
			}
			folder = filepath.ToSlash(folder)
			lines[folder] += files.Position(file.FileEnd).Line - 1
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if lines := files.Position(n.End()).Line - files.Position(n.Pos()).Line + 1; lines > mostLines {
						t.Errorf("%s: %s has %d lines, at most %d are allowed", files.Position(n.Pos()), n.Name.Name, lines, mostLines)
					}
					if name := receiver(n); name != "" {
						methods[folder+"."+name]++
					}
				case *ast.TypeSpec:
					s, ok := n.Type.(*ast.StructType)
					if !ok || !behaves(s) || s.Fields.NumFields() <= mostFields {
						return true
					}
					name := folder + "." + n.Name.Name
					if found[name] = true; large[name] == "" {
						t.Errorf("%s: %s has %d fields, at most %d are allowed", files.Position(n.Pos()), name, s.Fields.NumFields(), mostFields)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	exceeds := func(name, what string, n, most int) {
		if n <= most {
			return
		}
		if found[name] = true; large[name] == "" {
			t.Errorf("%s has %d %s, at most %d are allowed", name, n, what, most)
		}
	}
	for name, n := range methods {
		exceeds(name, "methods", n, mostMethods)
	}
	for folder, n := range lines {
		exceeds(folder, "lines", n, mostPackage)
	}
	for name := range large {
		if !found[name] {
			t.Errorf("%s is within the limits, or is gone: take it off the list", name)
		}
	}
}

// receiver returns the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	for {
		switch x := of.(type) {
		case *ast.StarExpr:
			of = x.X
		case *ast.IndexExpr:
			of = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// behaves reports whether a struct has a field that changes behind its users' backs: a lock, a map, a channel.
func behaves(s *ast.StructType) (yes bool) {
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.MapType, *ast.ChanType:
			yes = true
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && (x.Name == "sync" || x.Name == "atomic") {
				yes = true
			}
		}
		return true
	})
	return yes
}
