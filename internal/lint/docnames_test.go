package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pageKind tells how much of a page of docs is about the code.
type pageKind int

const (
	forUsers    pageKind = iota // names of the code are rare between those of settings and of API fields
	aboutCode                   // docs/development.md and docs/design
	aboutOnePod                 // docs/walk.md: what the last column of a table quotes are names of the code
)

// Files, folders, types, functions and fields that the documentation names exist, and are where it says they are.
func TestDocumentedNamesExist(t *testing.T) {
	root := filepath.Join("..", "..")
	m := parseModule(t, root)
	found := map[pageKind]int{}
	each(t, filepath.Join(root, "docs"), ".md", func(path string) error {
		text, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(text), "\nStatus: proposed.") {
			return err // it names what doesn't exist yet
		}
		kind := forUsers
		switch {
		case filepath.Base(path) == "walk.md":
			kind = aboutOnePod
		case filepath.Base(path) == "development.md" || filepath.Base(filepath.Dir(path)) == "design":
			kind = aboutCode
		}
		page := &docPage{module: m, kind: kind}
		page.read(string(text))
		for _, wrong := range page.wrong {
			t.Errorf("%s %s", path, wrong)
		}
		found[kind] += page.names
		return nil
	})
	if found[aboutOnePod] < 80 || found[aboutCode] < 60 || found[forUsers] < 40 {
		t.Errorf("walk.md has %d names, pages about code %d and the others %d: this test looks at the wrong files", found[aboutOnePod], found[aboutCode], found[forUsers])
	}
}

// declarations are the names that the Go files of a folder declare.
type declarations struct {
	names   map[string]bool            // at package level, and those of methods
	members map[string]map[string]bool // methods and fields by type
	tests   map[string]bool            // functions of its tests
}

// goModule is what the files of this module declare, by folder.
type goModule struct {
	folders map[string]*declarations
	exists  func(glob string) bool
}

// thisModule is what this module declares, once it has been parsed: several tests need it.
var thisModule struct {
	sync.Once
	*goModule
}

func parseModule(t *testing.T, root string) *goModule {
	t.Helper()
	thisModule.Do(func() {
		m := &goModule{folders: map[string]*declarations{}, exists: func(glob string) bool {
			found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(glob)))
			return err == nil && len(found) > 0
		}}
		each(t, root, ".go", func(path string) error {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(root, path)
			m.declare(filepath.ToSlash(relative), file)
			return err
		})
		thisModule.goModule = m
	})
	if thisModule.goModule == nil {
		t.Fatal("the module can't be parsed")
	}
	return thisModule.goModule
}

func (m *goModule) declare(path string, file *ast.File) {
	folder := path[:max(strings.LastIndex(path, "/"), 0)]
	d := m.folders[folder]
	if d == nil {
		d = &declarations{names: map[string]bool{}, members: map[string]map[string]bool{}, tests: map[string]bool{}}
		m.folders[folder] = d
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if strings.HasSuffix(path, "_test.go") {
				d.tests[decl.Name.Name] = d.tests[decl.Name.Name] || decl.Recv == nil
				continue
			}
			d.names[decl.Name.Name] = true
			if of := receiver(decl); of != "" {
				d.member(of, decl.Name.Name)
			}
		case *ast.GenDecl:
			if !strings.HasSuffix(path, "_test.go") {
				d.declareSpecs(decl.Specs)
			}
		}
	}
}

func (d *declarations) declareSpecs(specs []ast.Spec) {
	for _, spec := range specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				d.names[name.Name] = true
			}
		case *ast.TypeSpec:
			d.names[spec.Name.Name] = true
			d.member(spec.Name.Name, "")
			var fields *ast.FieldList
			switch body := spec.Type.(type) {
			case *ast.StructType:
				fields = body.Fields
			case *ast.InterfaceType:
				fields = body.Methods
			default:
				continue
			}
			for _, field := range fields.List {
				for _, name := range field.Names {
					d.member(spec.Name.Name, name.Name)
				}
			}
		}
	}
}

func (d *declarations) member(of, name string) {
	if d.members[of] == nil {
		d.members[of] = map[string]bool{}
	}
	d.members[of][name] = true
}

// having returns the folders for which is returns true, sorted.
func (m *goModule) having(is func(folder string, d *declarations) bool) (folders []string) {
	for folder, d := range m.folders {
		if is(folder, d) {
			folders = append(folders, folder)
		}
	}
	slices.Sort(folders)
	return folders
}

// docPage is a page that is being read.
type docPage struct {
	module *goModule
	kind   pageKind
	names  int // found so far
	wrong  []string

	// These describe the block that is being read. folders are where a name is looked for that says nothing about its place, all those of
	// the paths so far, in which files may be; named: a path stands immediately before the name.
	folders, all []string
	named        bool
}

var (
	quotedSpan = regexp.MustCompile("`([^`\n]+)`")
	ownPath    = regexp.MustCompile("(?m)(?:^|[\\s`(\"'])(?:\\./)?((?:cmd|docs|internal|manifests|pkg|plugins|test|tools)/[\\w*-][\\w./*-]*)")
	goFile     = regexp.MustCompile(`^\w+\.go$`)
	qualified  = regexp.MustCompile(`^(\w+)\.(\w+)(?:\.(\w+))?(?:\(.*\))?$`)
	identifier = regexp.MustCompile(`^[A-Za-z]\w*$`)
)

// otherProjects are the first parts of qualified names that are not ours: packages of others, and error codes of EC2.
var otherProjects = strings.Fields("AuthFailure Client InvalidPlacementGroup preemption t")

func (p *docPage) read(text string) {
	for _, m := range ownPath.FindAllStringSubmatch(text, -1) {
		p.names++
		path := strings.TrimRight(m[1], "./")
		if !p.module.exists(path) {
			p.fail(path, "")
		}
	}
	if p.kind == forUsers {
		for _, m := range quotedSpan.FindAllStringSubmatch(text, -1) {
			if q := qualified.FindStringSubmatch(m[1]); q != nil && capital(q[2]) {
				p.qualified(m[1], q)
			}
		}
		return
	}
	for block := range strings.SplitSeq(strings.ReplaceAll(text, "\n|", "\n\n|"), "\n\n") {
		p.folders, p.all, p.named = nil, nil, false
		strict := false
		if row, ok := strings.CutPrefix(block, "|"); ok && p.kind == aboutOnePod {
			cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(row), "|"), "|")
			block, strict = cells[len(cells)-1], true
		}
		p.block(block, strict)
	}
}

// block reads a paragraph, an item or a row. strict: every quoted word in it is a name of the code.
func (p *docPage) block(block string, strict bool) {
	spans := quotedSpan.FindAllStringSubmatchIndex(block, -1)
	text := func(i int) string { return block[spans[i][2]:spans[i][3]] }
	for i := range spans {
		span := text(i)
		p.named = p.named && i > 0 && strings.TrimSpace(block[spans[i-1][1]:spans[i][0]]) == ""
		after := ""
		if i+1 < len(spans) && block[spans[i][1]:spans[i+1][0]] == " in " {
			after = text(i + 1)
		}
		q := qualified.FindStringSubmatch(span)
		switch {
		case ownPath.MatchString(span):
			p.folders, p.all, p.named = []string{folderOf(span)}, append(p.all, folderOf(span)), true
		case goFile.MatchString(span):
			p.file(span)
		case ownPath.MatchString(after) && (q != nil || identifier.MatchString(span)):
			p.folders, p.named = []string{folderOf(after)}, true
			p.name(span, q)
		case q != nil:
			p.qualified(span, q)
		case identifier.MatchString(span) && (strict || p.named):
			p.name(span, nil)
		}
	}
}

// folderOf returns the folder of a path, which may end with a file.
func folderOf(path string) string {
	if i := strings.LastIndex(path, "/"); strings.HasSuffix(path, ".go") {
		path = path[:i]
	}
	return path
}

func (p *docPage) fail(name, more string) {
	p.wrong = append(p.wrong, fmt.Sprintf("names `%s`, and there is no such thing%s", name, more))
}

// file checks a file that is named without its folder: it is in one that the block names, or below.
func (p *docPage) file(name string) {
	p.names++
	folders := p.module.having(func(folder string, _ *declarations) bool {
		return len(p.all) == 0 || slices.ContainsFunc(p.all, func(f string) bool { return folder == f || strings.HasPrefix(folder, f+"/") })
	})
	if !slices.ContainsFunc(folders, func(f string) bool { return p.module.exists(f + "/" + name) }) {
		p.fail(name, strings.TrimSuffix(" in or below "+strings.Join(p.all, ", "), " in or below "))
	}
}

func (p *docPage) where() string {
	if len(p.folders) == 0 {
		return ""
	}
	return " in " + strings.Join(p.folders, ", ")
}

// name checks a name whose folder is known, or which may be anywhere.
func (p *docPage) name(span string, q []string) {
	if q != nil {
		p.qualified(span, q)
		return
	}
	p.names++
	if len(p.module.having(func(folder string, d *declarations) bool {
		return (len(p.folders) == 0 || slices.Contains(p.folders, folder)) && (d.names[span] || d.tests[span])
	})) == 0 {
		p.fail(span, p.where())
	}
}

// qualified checks type.member, package.name and package.type.member. What follows in the block without a type is looked for where the
// type was found.
func (p *docPage) qualified(span string, q []string) {
	types := p.module.having(func(_ string, d *declarations) bool { return d.members[q[1]] != nil })
	packages := p.module.having(func(folder string, _ *declarations) bool {
		return folder[strings.LastIndex(folder, "/")+1:] == q[1]
	})
	switch {
	case slices.Contains(otherProjects, q[1]):
		return
	case len(types) == 0 && (len(packages) == 0 || !capital(q[2])) && p.kind != aboutOnePod && !capital(q[1]) && !capital(q[2]):
		return // a field of an object: spec.template
	}
	p.names++
	place := ""
	if p.named && len(p.folders) > 0 {
		types = slices.DeleteFunc(types, func(f string) bool { return !slices.Contains(p.folders, f) })
		place = p.where()
	}
	types = slices.DeleteFunc(types, func(f string) bool { return !p.module.folders[f].members[q[1]][q[2]] })
	packages = slices.DeleteFunc(packages, func(f string) bool {
		d := p.module.folders[f]
		return !d.names[q[2]] || q[3] != "" && !d.members[q[2]][q[3]]
	})
	if len(types) == 0 && len(packages) == 0 {
		p.fail(span, place)
		return
	}
	if len(types) > 0 {
		p.folders = types
	}
}

func capital(name string) bool { return name[0] >= 'A' && name[0] <= 'Z' }

// The test above notices each kind of wrong name.
func TestWrongNamesAreFound(t *testing.T) {
	m := &goModule{folders: map[string]*declarations{}}
	for path, source := range map[string]string{
		"pkg/a/a.go":      `package a; type Ledger struct{ nodes int }; func (l *Ledger) Commit() {}; func open() {}; type Reader interface{ Pin() }`,
		"pkg/b/b.go":      `package b; type Pool[K comparable] struct{}; func (Pool[K]) Take() {}; var Limit int`,
		"pkg/b/b_test.go": `package b; func TestTake() {}`,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		m.declare(path, file)
	}
	m.exists = func(glob string) bool {
		return slices.Contains([]string{"pkg/a", "pkg/b", "pkg/a/a.go", "pkg/b/b*.go", "pkg/b/b_test.go"}, glob)
	}
	for _, tc := range []struct {
		name, text string
		kind       pageKind
		want       []string
	}{
		{"all is there", "`pkg/a` `Ledger.Commit`, `Ledger.nodes`, `Reader.Pin`; `b.Limit`, `b.Pool.Take` (`pkg/b/b*.go`, `TestTake` in `pkg/b`)", aboutCode, nil},
		{"a path", "`pkg/c` and ./pkg/a/b.go.", forUsers, []string{"pkg/c", "pkg/a/b.go"}},
		{"a method", "`Ledger.Commit` and `Ledger.Undo`", aboutCode, []string{"Ledger.Undo"}},
		{"a method of a type that is gone", "`Book.Commit`", aboutCode, []string{"Book.Commit"}},
		{"a name of a package", "`b.Most`", aboutCode, []string{"b.Most"}},
		{"a method in another folder", "`pkg/b` `Ledger.Commit`", aboutCode, []string{"Ledger.Commit"}},
		{"a name after its folder", "`pkg/a` `close`", aboutCode, []string{"close"}},
		{"a name before its folder", "`TestTake` in `pkg/a`", aboutCode, []string{"TestTake"}},
		{"a file without its folder", "`b_test.go`; `pkg/a` has `b_test.go`", aboutCode, []string{"b_test.go"}},
		{"settings are no names", "`spec.role`, `maxPods`, `Early`", aboutCode, nil},
		{"a row of the walk", "| 1 | `expireAfter` | `Ledger.Commit`, `open`, `undo` |", aboutOnePod, []string{"undo"}},
		{"a row of the walk looks where the last type is", "| 1 | it opens | `Pool.Take`, `open` |", aboutOnePod, []string{"open"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			page := &docPage{module: m, kind: tc.kind}
			page.read(tc.text)
			var got []string
			for _, wrong := range page.wrong {
				got = append(got, quotedSpan.FindStringSubmatch(wrong)[1])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("wrong names (-want +got):\n%s", diff)
			}
		})
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^():\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	// noAnchor is what a heading loses when it becomes an anchor.
	noAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// Every link from one page of the documentation to another, or to a file of this repository, leads there.
func TestDocumentedLinksLead(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	anchors := map[string][]string{} // by page
	links := 0
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	check := func(path string) error {
		for _, m := range link.FindAllStringSubmatch(read(path), -1) {
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), filepath.FromSlash(file))
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
				continue
			}
			if anchor == "" {
				continue
			}
			if _, ok := anchors[to]; !ok {
				for _, h := range heading.FindAllStringSubmatch(read(to), -1) {
					anchors[to] = append(anchors[to], strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
				}
			}
			if !slices.Contains(anchors[to], anchor) {
				t.Errorf("%s links to %s, and there is no such heading", path, m[1])
			}
		}
		return nil
	}
	each(t, docs, ".md", check)
	for _, page := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"} {
		if err := check(filepath.Join("..", "..", page)); err != nil {
			t.Error(err)
		}
	}
	if links < 80 {
		t.Errorf("only %d links were found: this test looks at the wrong files", links)
	}
}

// docs/README.md has every page of docs, so that each can be found.
func TestEveryPageIsListed(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	index, err := os.ReadFile(filepath.Join(docs, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(docs, "*.md"))
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d pages: %v", len(paths), err)
	}
	for _, path := range paths {
		if page := filepath.Base(path); page != "README.md" && !strings.Contains(string(index), "("+page+")") {
			t.Errorf("docs/README.md doesn't list %s", page)
		}
	}
}
