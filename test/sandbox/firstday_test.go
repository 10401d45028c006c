package sandbox

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dovetail-scheduler/dovetail/test/firstday"
)

// What somebody with an account runs on the first day runs against the simulator, too, and everything is as it expects.
func TestFirstDay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	out, err := exec.CommandContext(t.Context(), filepath.Join("..", "..", "hack", "first-day.sh"), "--simulate", "--patience", "5m", "--report", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var report firstday.Report
	if err := json.Unmarshal(raw, &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Steps) != 9 || len(report.Nodes) < 3 || report.Server == "" {
		t.Errorf("%d steps, %d nodes of server %q:\n%s", len(report.Steps), len(report.Nodes), report.Server, out)
	}
	for _, n := range report.Nodes {
		if n.InstanceType == "" || n.Promised["memory"] == "" || n.Allocatable["memory"] == "" || n.Initialized <= 0 {
			t.Errorf("a node shows %+v", n)
		}
	}
}
