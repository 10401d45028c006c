package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var reasonName = regexp.MustCompile(`^reason[A-Z]`)

// The documentation contains every reason that is a constant or that an event is recorded with, and every metric, so that operators can look
// up what they see.
func TestSignalsAreDocumented(t *testing.T) {
	root := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var docs strings.Builder
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		docs.Write(text)
	}
	reasons, metrics := 0, 0
	err = filepath.WalkDir(filepath.Join(root, "pkg"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		values := constants(t, path)
		for name, value := range values.strings {
			if reasonName.MatchString(name) {
				values.reasons = append(values.reasons, value)
			}
		}
		slices.Sort(values.reasons)
		for _, reason := range slices.Compact(values.reasons) {
			reasons++
			if !strings.Contains(docs.String(), "`"+reason+"`") {
				t.Errorf("%s: the reason %s is in no page of docs", path, reason)
			}
		}
		for _, metric := range values.metrics {
			metrics++
			if !strings.Contains(docs.String(), "`"+metric+"`") {
				t.Errorf("%s: the metric %s is in no page of docs", path, metric)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if reasons < 20 || metrics < 15 {
		t.Fatalf("only %d reasons and %d metrics were found: the test holds for nothing", reasons, metrics)
	}
}

// found are the constants and metrics in the files of a folder.
type found struct {
	strings map[string]string // constants by name
	metrics []string          // full names
	reasons []string          // of events
}

func constants(t *testing.T, folder string) found {
	t.Helper()
	out := found{strings: map[string]string{}}
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						if text, ok := literal(spec.Values[i]); ok {
							out.strings[name.Name] = text
						}
					}
				}
			}
			return true
		})
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if metric := metricName(n, out.strings); metric != "" {
					out.metrics = append(out.metrics, metric)
				}
			case *ast.CallExpr:
				if reason := eventReason(n, out.strings); reason != "" {
					out.reasons = append(out.reasons, reason)
				}
			}
			return true
		})
	}
	return out
}

// eventReason returns the reason of the event that a call records, or "": it is the argument after the event's type.
func eventReason(call *ast.CallExpr, values map[string]string) string {
	for i, arg := range call.Args[:max(len(call.Args)-1, 0)] {
		if kind, ok := arg.(*ast.SelectorExpr); !ok || !strings.HasPrefix(kind.Sel.Name, "EventType") {
			continue
		}
		if name, ok := call.Args[i+1].(*ast.Ident); ok {
			return values[name.Name]
		}
		text, _ := literal(call.Args[i+1])
		return text
	}
	return ""
}

// metricName returns the full name of the metric whose options lit is, or "".
func metricName(lit *ast.CompositeLit, values map[string]string) string {
	if kind, ok := lit.Type.(*ast.SelectorExpr); !ok || !strings.HasSuffix(kind.Sel.Name, "Opts") {
		return ""
	}
	part := map[string]string{}
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			key, _ := kv.Key.(*ast.Ident)
			text, ok := literal(kv.Value)
			if name, constant := kv.Value.(*ast.Ident); constant {
				text, ok = values[name.Name], true
			}
			if key != nil && ok {
				part[key.Name] = text
			}
		}
	}
	if part["Namespace"] == "" || part["Name"] == "" {
		return ""
	}
	if part["Subsystem"] == "" {
		return part["Namespace"] + "_" + part["Name"]
	}
	return part["Namespace"] + "_" + part["Subsystem"] + "_" + part["Name"]
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
