package dashboards

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// scrapes is the folder that TestMetrics of test/integration has filled. Without it the queries are parsed and not evaluated.
var scrapes = flag.String("scrapes", "", "folder with scrapes, each called after its time in milliseconds")

// mostWithoutMeaning is how many of the published queries may have no answer.
const mostWithoutMeaning = 15

var language = parser.NewParser(parser.Options{})

// evaluator answers queries over the time of the scrapes.
type evaluator struct {
	*database
	engine *promql.Engine
}

func newEvaluator(t *testing.T) *evaluator {
	t.Helper()
	if *scrapes == "" {
		return nil
	}
	db, err := read(*scrapes)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d series over %s", len(db.series), db.last.Sub(db.first).Round(time.Second))
	return &evaluator{db, promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, Parser: language})}
}

// values returns how many values that are numbers a query has at any time.
func (e *evaluator) values(t *testing.T, query string) (n int, err error) {
	t.Helper()
	q, err := e.engine.NewRangeQuery(t.Context(), e, nil, query, e.first, e.last, time.Second) // as often as was scraped, so that the last scrapes count
	if err != nil {
		return 0, err
	}
	defer q.Close()
	result := q.Exec(t.Context())
	matrix, err := result.Matrix()
	if err != nil {
		return 0, err
	}
	for _, series := range matrix {
		for _, p := range series.Floats {
			if !math.IsNaN(p.F) {
				n++
			}
		}
	}
	return n, nil
}

// variables are what a dashboard fills in, longest names first.
var variables = strings.NewReplacer(
	"$base", `cluster="test",job=~"karpenter"`, "$pool", `nodepool=~".*"`,
	"$place", `cluster="test",job=~"karpenter",nodepool=~".*",region=~".*",zone=~".*"`,
	"$full", `cluster="test",job=~"karpenter",nodepool=~".*",region=~".*",zone=~".*",arch=~".*",os=~".*",instance_type=~".*",capacity_type=~".*"`,
	"$nodes", `arch=~".*",capacity_type=~".*",instance_type=~".*",nodepool=~".*",zone=~".*"`,
	"$offers", `cluster="test",job=~"karpenter",zone=~".*",instance_type=~".*",capacity_type=~".*"`,
	"$window", "10m", "$__rate_interval", "10m", "$nodepool", ".*", "$job", ".*")

// published is a query of published.txt.
type published struct {
	name, query string
	without     string // why it has no meaning
}

func readPublished(t *testing.T) (out []published) {
	t.Helper()
	text, err := os.ReadFile("published.txt")
	if err != nil {
		t.Fatal(err)
	}
	section, without := "", ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			section, without = heading, ""
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if reason, ok := strings.CutPrefix(line, "without meaning: "); ok {
			without = reason
			continue
		}
		name, query, ok := cut(line)
		if !ok {
			t.Fatalf("published.txt: no NAME: QUERY: %s", line)
		}
		out = append(out, published{section + ": " + name, variables.Replace(query), without})
	}
	return out
}

// cut divides a line at the last ": " before the query; names may contain one, too.
func cut(line string) (name, query string, ok bool) {
	const separator = ": "
	for from := 0; ; {
		i := strings.Index(line[from:], separator)
		if i < 0 {
			return "", "", false
		}
		from += i + len(separator)
		if _, err := language.ParseExpr(variables.Replace(line[from:])); err == nil {
			return line[:from-len(separator)], line[from:], true
		}
	}
}

// Every published query has an answer, except for those that are declared to have none.
func TestPublished(t *testing.T) {
	all := readPublished(t)
	without := 0
	e := newEvaluator(t)
	for _, p := range all {
		if p.without != "" {
			without++
		}
		if e == nil {
			continue
		}
		switch n, err := e.values(t, p.query); {
		case err != nil:
			t.Errorf("%s: %v\n%s", p.name, err, p.query)
		case n == 0 && p.without == "":
			t.Errorf("%s has no answer:\n%s", p.name, p.query)
		case n > 0 && p.without != "":
			t.Errorf("%s has an answer, but is declared without meaning (%s)", p.name, p.without)
		}
	}
	if without > mostWithoutMeaning {
		t.Errorf("%d queries are declared without meaning, at most %d may be", without, mostWithoutMeaning)
	}
	if len(all) < 140 {
		t.Errorf("only %d queries: the list is not read", len(all))
	}
	t.Logf("%d queries, %d of them without meaning", len(all), without)
}

// panels returns the queries of our dashboard by their titles.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "dashboards", "dovetail.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			out[p.Title] = append(out[p.Title], variables.Replace(target.Expr))
		}
	}
	if len(out) < 15 {
		t.Fatalf("only %d panels have queries", len(out))
	}
	return out
}

// rule is an alert.
type rule struct {
	Alert, Expr string
	Annotations map[string]string
	Labels      map[string]string
}

func alerts(t *testing.T) (out []rule) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "charts", "dovetail", "files", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) < 10 {
		t.Fatalf("only %d alerts", len(out))
	}
	return out
}

// documented returns the rows of the pages that list metrics, by the names of metrics in them.
func documented(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, page := range []string{"signals.md", "aws.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			cells := strings.Split(line, " | ")
			if !strings.HasPrefix(line, "| `") {
				continue
			}
			for _, name := range metricName.FindAllStringSubmatch(cells[0], -1) {
				out[name[1]] = line
			}
		}
	}
	return out
}

var metricName = regexp.MustCompile("`((?:dovetail|karpenter|controller_runtime|operator)_[a-z_]+)`")

// Our dashboard's and alerts' queries ask for metrics and labels that exist: those without a series in the scrapes, because nothing of
// the kind has happened, are in the documentation.
func TestOwn(t *testing.T) {
	rows := documented(t)
	e := newEvaluator(t)
	check := func(of, query string, mustAnswer bool) {
		expr, err := language.ParseExpr(query)
		if err != nil {
			t.Errorf("%s: %v", of, err)
			return
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok {
				metric := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(s.Name, "_bucket"), "_sum"), "_count")
				row := rows[metric]
				if row == "" {
					row = rows[s.Name] // a name may end like that
				}
				if row == "" {
					t.Errorf("%s asks for %s, which docs/signals.md doesn't list", of, metric)
				}
				for _, m := range s.LabelMatchers {
					if m.Name != labels.MetricName && m.Name != "job" && !strings.Contains(row, m.Name) {
						t.Errorf("%s selects by the label %s, which docs/signals.md doesn't list for %s", of, m.Name, metric)
					}
				}
			}
			return nil
		})
		if e == nil {
			return
		}
		if n, err := e.values(t, query); err != nil || mustAnswer && n == 0 {
			t.Errorf("%s has no answer (%v):\n%s", of, err, query)
		}
	}
	for title, queries := range panels(t) {
		for _, q := range queries {
			check("the panel "+title, q, !slices.Contains(quiet, title))
		}
	}
	for _, a := range alerts(t) {
		check("the alert "+a.Alert, a.Expr, false)
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" || a.Labels["severity"] == "" {
			t.Errorf("the alert %s has no summary, description or severity", a.Alert)
		}
	}
}

// quiet are the panels that show nothing as long as all is well.
var quiet = []string{"Claims given up", "Money wasted", "EC2's errors", "Placements refused by filters", "Consolidation", "Nodes kept by consolidation", "Drifted nodes"}

// What is well in the last scrape raises no alarm.
func TestAlertsAreQuiet(t *testing.T) {
	e := newEvaluator(t)
	if e == nil {
		return
	}
	for _, a := range alerts(t) {
		if !slices.Contains([]string{"DovetailNoLeader", "DovetailStateUnknown", "DovetailLaunchesPaused", "DovetailPanics", "DovetailPricesEstimated", "DovetailNodesDontJoin"}, a.Alert) {
			continue
		}
		q, err := e.engine.NewInstantQuery(t.Context(), e, nil, a.Expr, e.last)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := q.Exec(t.Context()).Vector(); err != nil || len(v) > 0 {
			t.Errorf("%s fires although nothing is wrong: %v %v", a.Alert, v, err)
		}
		q.Close()
	}
}

// Each alert has a row in the documentation that says what to do, and each row an alert.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "observability.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows, names []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(Dovetail[A-Za-z]+)` \\| .+ \\| .+ \\|$").FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, row[1])
	}
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
	}
	slices.Sort(rows)
	slices.Sort(names)
	if fmt.Sprint(rows) != fmt.Sprint(names) {
		t.Errorf("docs/observability.md has rows for %q, and there are alerts %q", rows, names)
	}
}
