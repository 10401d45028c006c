package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var askedFor = regexp.MustCompile(`\b(?:karpenter|dovetail|controller_runtime)_[a-z_]+`)

// Published dashboards, and our own dashboard and alerts, ask for metrics that the documentation lists, so that whoever renames a metric
// hears of it here. Whether the queries have an answer is tested by make dashboards, which takes Prometheus' own engine.
func TestDashboardsAskForMetricsThatExist(t *testing.T) {
	root := filepath.Join("..", "..")
	var docs strings.Builder
	for _, page := range []string{"signals.md", "aws.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		docs.Write(text)
	}
	for _, file := range []string{"dashboards/dovetail.json", "charts/dovetail/files/alerts.yaml", "tools/dashboards/published.txt"} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		asked, without := map[string]bool{}, false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "## ") {
				without = false
			} else if strings.HasPrefix(line, "without meaning: ") {
				without = true
			}
			if without || strings.HasPrefix(line, "#") {
				continue
			}
			for _, name := range askedFor.FindAllString(line, -1) {
				asked[name] = true
			}
		}
		listed := func(name string) bool { return strings.Contains(docs.String(), "`"+name+"`") }
		for name := range asked {
			base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			if !listed(name) && !listed(base) {
				t.Errorf("%s asks for %s, which docs/signals.md and docs/aws.md don't list", file, name)
			}
		}
		if len(asked) < 10 {
			t.Errorf("%s asks for %d metrics only: the test holds for nothing", file, len(asked))
		}
	}
}
