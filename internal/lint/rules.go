package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// Rule checks one parsed file.
type Rule struct {
	Name, Reason string
	// Find calls report for each place that breaks the rule. path is relative to the module's root.
	Find func(path string, file *ast.File, report func(token.Pos))
}

// Rules of the module.
var Rules = []Rule{
	{
		Name:   "no private words",
		Reason: "whoever reads this for the first time has to learn the word; docs/glossary.md has the usual one",
		Find:   privateWords,
	},
	{
		Name:   "no vague names of types and functions",
		Reason: "these words stood for something here that others have a term for (docs/glossary.md)",
		Find:   vagueNames,
	},
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
		Name:   "names under dovetail.sh in one place",
		Reason: "pkg/objects/names.go says who writes and reads each, and for how long it holds; a name that is spelled elsewhere can't be renamed",
		Find:   spelledNames,
	},
	{
		Name:   "no cloud's node class outside the cloud",
		Reason: "controllers and the adapter to API objects know a cloud's node classes as pkg/cloudprovider describes them; a second cloud is a folder",
		Find:   namedNodeClass,
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
		Name:   "no wall clock in the core",
		Reason: "time comes in as a value, or a decision can't be replayed",
		Find: func(path string, file *ast.File, report func(token.Pos)) {
			if strings.HasPrefix(path, "pkg/capacity/") && !strings.HasSuffix(path, "_test.go") {
				calls(file, "time", report, "Now", "Since", "Until", "After", "NewTimer", "NewTicker", "Sleep")
			}
		},
	},
}

// cloudless are the folders whose code names no cloud's kind of node class.
var cloudless = []string{"pkg/capacity/", "pkg/karpenter/", "pkg/reservations/", "pkg/pending/", "pkg/spending/", "pkg/daemons/", "pkg/provisioning/", "pkg/staticpool/", "pkg/launch/", "pkg/lifecycle/", "pkg/disruption/", "pkg/cloudprovider/"}

// namedNodeClass reports names, texts and comments with a cloud's kind of node class in them.
func namedNodeClass(path string, file *ast.File, report func(token.Pos)) {
	if strings.HasSuffix(path, "_test.go") || !slices.ContainsFunc(cloudless, func(folder string) bool { return strings.HasPrefix(path, folder) }) {
		return
	}
	check := func(text string, at token.Pos) {
		if strings.Contains(strings.ToLower(text), "ec2nodeclass") {
			report(at)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			check(n.Name, n.Pos())
		case *ast.BasicLit:
			check(n.Value, n.Pos())
		}
		return true
	})
	for _, group := range file.Comments {
		check(group.Text(), group.Pos())
	}
}

// names are the files that may spell names under dovetail.sh.
var names = []string{"pkg/objects/names.go", "pkg/objects/renamed.go"}

// ownName finds such a name in a text. config.dovetail.sh, the API group of our arguments, doesn't match.
var ownName = regexp.MustCompile(`(^|[^.\w-])dovetail\.sh\b`)

// spelledNames reports texts of the product with a name under dovetail.sh in them.
func spelledNames(path string, file *ast.File, report func(token.Pos)) {
	product := slices.ContainsFunc([]string{"cmd/", "pkg/", "plugins/"}, func(room string) bool { return strings.HasPrefix(path, room) })
	if !product || strings.HasSuffix(path, "_test.go") || slices.Contains(names, path) {
		return
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && ownName.MatchString(lit.Value) {
			report(lit.Pos())
		}
		return true
	})
}

// private are words that only this project would use for what they stood for; docs/glossary.md has the words that replace them. A word that another
// project uses in its own sense is allowed in some files: exceptions are beginnings of their paths.
var private = map[string][]string{
	"athand": nil, "census": nil, "crowd": nil, "departure": nil, "desert": nil, "desk": nil, "doubtful": nil, "film": nil, "forsaken": nil, "heir": nil,
	"incumbent": nil, "janitor": nil, "landing": nil, "leaver": nil, "lessons": nil, "likeness": nil, "lodger": nil, "motor": nil, "parted": nil, "pulse": nil,
	"rehouse": nil, "ruin": nil, "sack": nil, "seam": nil, "sitting": nil, "slips": nil, "stranger": nil, "thrifty": nil, "vacate": nil, "wave": nil,
	"tenancy": {"cmd/scheduler/cloud.go", "pkg/aws/", "pkg/clustermetrics/", "pkg/capacity/claim.go", "pkg/capacity/labels.go", "pkg/capacity/offer.go", "pkg/capacity/planner/world_test.go", "pkg/karpenter/claim", "pkg/launch/finish.go", "test/ec2/", "test/integration/handmade_test.go"}, // a word of EC2's
}

// vague are words that types and functions of the product and its tests aren't named by.
var vague = strings.Fields("door edge hope care deal facts standing stay brief promised movable loose turned told news said strike cell front content " +
	"unit bin variant cover works shut meant leaving")

// vagueNames reports declarations of types and functions with such a word in their name, in the singular or the plural.
func vagueNames(path string, file *ast.File, report func(token.Pos)) {
	check := func(name *ast.Ident) {
		for _, word := range words(name.Name) {
			if slices.Contains(vague, word) || slices.Contains(vague, strings.TrimSuffix(word, "s")) {
				report(name.Pos())
				return
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			check(n.Name)
		case *ast.TypeSpec:
			check(n.Name)
		}
		return true
	})
}

// allowed are names that have such a word in them and are read for the sake of an older version.
var allowed = []string{"dovetail.sh/wave"}

// privateWords reports private words in file names, identifiers and texts of the product.
func privateWords(path string, file *ast.File, report func(token.Pos)) {
	check := func(name string, at token.Pos) {
		for _, word := range words(name) {
			exceptions, is := private[word]
			if !is {
				exceptions, is = private[strings.TrimSuffix(word, "s")]
			}
			if is && !slices.ContainsFunc(exceptions, func(e string) bool { return strings.HasPrefix(path, e) }) {
				report(at)
				return
			}
		}
	}
	base := path[strings.LastIndex(path, "/")+1:]
	check(strings.TrimSuffix(base, ".go"), file.Package)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			check(n.Name, n.Pos())
		case *ast.BasicLit:
			if n.Kind == token.STRING && !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "internal/") {
				text := n.Value
				for _, a := range allowed {
					text = strings.ReplaceAll(text, a, "")
				}
				check(text, n.Pos())
			}
		}
		return true
	})
}

// words splits a text at everything that is not a letter and at the capitals of camelCase, into lower-case words.
func words(name string) (out []string) {
	for _, part := range wordParts.FindAllString(name, -1) {
		out = append(out, strings.ToLower(part))
	}
	return out
}

var wordParts = regexp.MustCompile(`[A-Z]+[a-z]*|[a-z]+`)

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
