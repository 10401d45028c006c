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

func TestModule(t *testing.T) {
	root := filepath.Join("..", "..")
	files := token.NewFileSet()
	documented := map[string]bool{} // folder with Go files: whether a file has a package comment
	parsed := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		parsed++
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, rule := range Rules {
			rule.Find(filepath.ToSlash(relative), file, func(at token.Pos) {
				t.Errorf("%s: %s: %s", files.Position(at), rule.Name, rule.Reason)
			})
		}
		if !strings.HasSuffix(path, "_test.go") {
			folder := filepath.Dir(relative)
			documented[folder] = documented[folder] || file.Doc != nil
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if parsed < 50 {
		t.Fatalf("only %d files were looked at: the rules would hold for nothing", parsed)
	}
	for folder, ok := range documented {
		if !ok {
			t.Errorf("%s: the package says nowhere what it is for and what it is not for", folder)
		}
	}
}

func TestRules(t *testing.T) {
	for _, tc := range []struct {
		rule, path, source string
		want               int
	}{
		{"no vague names of types and functions", "pkg/x/x.go", `package x; type cells struct{}; func tellMeant() {}`, 2},
		{"no vague names of types and functions", "pkg/x/x.go", `package x; type cellar struct{ cells int }; func f(told bool) {}`, 0},
		{"no time.Sleep in tests", "pkg/x/x_test.go", `package x; import "time"; func f() { time.Sleep(1) }`, 1},
		{"no time.Sleep in tests", "pkg/x/x.go", `package x; import "time"; func f() { time.Sleep(1) }`, 0},
		{"no skipped tests", "pkg/x/x_test.go", `package x; import "testing"; func TestX(t *testing.T) { t.Skip("later") }`, 1},
		{"no notes to self", "pkg/x/x.go", "package x\n// TO" + "DO: later\n", 1},
		{"no notes to self", "pkg/x/x.go", "package x\n// a method of todos\n", 0},
		{"no printing in the product", "pkg/x/x.go", `package x; import "fmt"; func f() { fmt.Println() }`, 1},
		{"no printing in the product", "cmd/x/main.go", `package main; import "fmt"; func main() { fmt.Println() }`, 0},
		{"no private words", "pkg/x/x.go", `package x; type launchWave struct{}`, 1},
		{"no private words", "pkg/x/x.go", `package x; var waves, microwaves int`, 1},
		{"no private words", "pkg/x/desk.go", `package x`, 1},
		{"no private words", "pkg/x/x.go", `package x; var x = "the wave was not filled"`, 1},
		{"no private words", "pkg/x/x.go", `package x; var knapsack, tag = 1, "dovetail.sh/wave"`, 0},
		{"names under dovetail.sh in one place", "pkg/x/x.go", `package x; const a = "dovetail.sh/bind"`, 1},
		{"names under dovetail.sh in one place", "plugins/x/x.go", `package x; const a, b = "annotation dovetail.sh/retry: at once", "dovetail.sh"`, 2},
		{"names under dovetail.sh in one place", "pkg/x/x.go", `package x; const a = "config.dovetail.sh/v1alpha1"`, 0},
		{"names under dovetail.sh in one place", "pkg/x/x_test.go", `package x; const a = "dovetail.sh/bind"`, 0},
		{"names under dovetail.sh in one place", "pkg/objects/names.go", `package objects; const a = "dovetail.sh/bind"`, 0},
		{"no cloud's node class outside the cloud", "pkg/karpenter/store/x.go", "package x\n// f is about an EC2NodeClass.\nfunc f() { g(\"karpenter.k8s.aws/ec2nodeclass\") }", 2},
		{"no cloud's node class outside the cloud", "pkg/launch/x.go", `package x; var a x.EC2NodeClass`, 1},
		{"no cloud's node class outside the cloud", "pkg/launch/x_test.go", `package x; var a x.EC2NodeClass`, 0},
		{"no cloud's node class outside the cloud", "pkg/aws/x.go", `package x; var a x.EC2NodeClass`, 0},
		{"no private words", "pkg/aws/x.go", `package aws; var Tenancy string`, 0},
		{"no wall clock in the core", "pkg/capacity/x.go", `package capacity; import "time"; var t = time.Now()`, 1},
		{"no wall clock in the core", "pkg/launch/x.go", `package launch; import "time"; var t = time.Now()`, 0},
	} {
		t.Run(tc.rule+" "+tc.path, func(t *testing.T) {
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, tc.path, tc.source, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if got := count(t, tc.rule, tc.path, file); got != tc.want {
				t.Errorf("%d reports, want %d", got, tc.want)
			}
		})
	}
}

func count(t *testing.T, name, path string, file *ast.File) int {
	t.Helper()
	for _, rule := range Rules {
		if rule.Name == name {
			n := 0
			rule.Find(path, file, func(token.Pos) { n++ })
			return n
		}
	}
	t.Fatalf("no rule %q", name)
	return 0
}
