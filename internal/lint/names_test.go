package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

var (
	// stability is what the comment of a name ends with.
	stability = regexp.MustCompile(`\b(Stable|Internal|In memory)\.\n?$`)
	// tableRow is a row of a table whose first cell is a name, with its last cell.
	tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)`(?: \\*)? \\|.*?([^|]*) \\|$")
	// anyName finds names under dovetail.sh, but not under other domains that end so.
	anyName = regexp.MustCompile(`(?:^|[^.\w-])(dovetail\.sh/[A-Za-z0-9-]+)`)
)

// kindOf is the section of docs/names.md that a constant's name is listed in, by its beginning.
var kindOf = map[string]string{"Annotation": "Annotations", "Label": "Labels", "Tag": "Tags of EC2", "Condition": "Condition types"}

// docs/names.md lists the names of pkg/objects/names.go, each with its stability, and no others. A name may be an annotation and a tag.
func TestNamesAreDocumented(t *testing.T) {
	root := filepath.Join("..", "..")
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "pkg", "objects", "names.go"), nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]string{} // section and name: stability
	for _, d := range file.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		for _, s := range block.Specs {
			spec := s.(*ast.ValueSpec)
			value, ok := literal(spec.Values[0])
			if !ok || !strings.HasPrefix(value, objects.Prefix) {
				continue // Domain and Prefix
			}
			comment := spec.Doc
			if comment == nil {
				comment = block.Doc
			}
			says := stability.FindStringSubmatch(comment.Text())
			if says == nil {
				t.Errorf("%s: the comment doesn't end with Stable, Internal or In memory", spec.Names[0].Name)
				continue
			}
			section := "In memory"
			if says[1] != section {
				for begins, kind := range kindOf {
					if strings.HasPrefix(spec.Names[0].Name, begins) {
						section = kind
					}
				}
			}
			declared[section+": "+value] = says[1]
		}
	}
	listed, renamed := map[string]string{}, map[string]string{}
	for section, text := range sections(t, filepath.Join(root, "docs", "names.md")) {
		for _, row := range tableRow.FindAllStringSubmatch(text, -1) {
			if section == "Renamed" {
				renamed[row[1]] = strings.Trim(row[2], " `")
			} else {
				listed[section+": "+row[1]] = strings.TrimSpace(row[2])
			}
		}
	}
	if diff := cmp.Diff(declared, listed); diff != "" {
		t.Errorf("docs/names.md lists other names than pkg/objects/names.go, or another stability (-code +page):\n%s", diff)
	}
	if diff := cmp.Diff(objects.Renamed(), renamed); diff != "" {
		t.Errorf("docs/names.md has other old names than pkg/objects/renamed.go (-code +page):\n%s", diff)
	}
	if len(declared) < 30 {
		t.Errorf("only %d names were found: this test looks at the wrong file", len(declared))
	}

	// What other pages, the shipped manifests and the charts name is there.
	known := map[string]bool{}
	for name := range declared {
		_, name, _ = strings.Cut(name, ": ")
		known[name] = true
	}
	used := 0
	for _, folder := range []string{"docs", "manifests", "charts"} {
		for _, end := range []string{".md", ".yaml", ".json"} {
			each(t, filepath.Join(root, folder), end, func(path string) error {
				text, err := os.ReadFile(path)
				for _, m := range anyName.FindAllStringSubmatch(string(text), -1) {
					used++
					if !known[m[1]] && (filepath.Base(path) != "names.md" || objects.Renamed()[m[1]] == "") {
						t.Errorf("%s names %s, and there is no such name", path, m[1])
					}
				}
				return err
			})
		}
	}
	if used < 60 {
		t.Errorf("only %d names are used in docs, manifests and charts: this test looks at the wrong files", used)
	}
}

// docs/configuration.md lists the arguments of both plugins and no others.
func TestArgumentsAreDocumented(t *testing.T) {
	root := filepath.Join("..", "..")
	page := sections(t, filepath.Join(root, "docs", "configuration.md"))
	for kind, source := range map[string]string{"ProvisionArgs": "plugins/provision/args.go", "BinderArgs": "plugins/binder/args.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(source)), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		var fields, listed []string
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != "Args" {
				return true
			}
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
				if name, _, _ := strings.Cut(tag, ","); name != "" && name != "-" {
					fields = append(fields, name)
				}
			}
			return false
		})
		for _, row := range tableRow.FindAllStringSubmatch(page[kind], -1) {
			listed = append(listed, row[1])
		}
		slices.Sort(fields)
		slices.Sort(listed)
		if diff := cmp.Diff(fields, listed); diff != "" || len(fields) == 0 {
			t.Errorf("docs/configuration.md lists other fields of %s than %s has (-code +page):\n%s", kind, source, diff)
		}
	}
}

// sections are the texts of a page by its headings of the second level.
func sections(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for part := range strings.SplitSeq(string(text), "\n## ") {
		heading, body, _ := strings.Cut(part, "\n")
		out[heading] = body
	}
	if len(out) < 3 {
		t.Fatalf("%s has the sections %q only", path, slices.Sorted(maps.Keys(out)))
	}
	return out
}
