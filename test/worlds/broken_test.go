package worlds

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/worlds/check"
	"github.com/dovetail-scheduler/dovetail/test/worlds/draw"
)

// Schedulers with a deliberate fault must be found. They are built from this tree with one file patched, so that nothing of this is in
// the shipped code.
func TestBrokenBuildsAreFound(t *testing.T) {
	r, err := Start(t.Context(), Options{Patience: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	for _, tc := range []struct {
		name, file, old, new string
		found                func(*check.Report) bool
	}{
		{
			name: "planned pods are not pinned", file: "plugins/binder/binder.go",
			old: "if b.ledger.Unwatched() && !b.ledger.Knows(pod.UID) {", new: "if true {",
			found: func(r *check.Report) bool { return r.Fidelity() < Enough },
		},
		{
			name: "launches are doubled", file: "pkg/launch/launchbatch.go",
			old:   "res, err := b.cloud.Launch(ctx, rec)",
			new:   "twin := rec\n\t\ttwin.Token += \"x\"\n\t\t_, _ = b.cloud.Launch(ctx, twin)\n\t\tres, err := b.cloud.Launch(ctx, rec)",
			found: func(r *check.Report) bool { return len(r.Beyond) > 0 },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r.options.Binary = patched(t, tc.file, tc.old, tc.new)
			total := &check.Report{}
			for _, seed := range []uint64{6, 9} { // several shapes on many nodes
				w := draw.New(seed, draw.Small)
				result, err := r.Run(t.Context(), w)
				if err != nil {
					t.Fatal(err)
				}
				tell(t, w, result)
				if total.Add(&result.Report); tc.found(total) && Verdict(total) != nil {
					return
				}
			}
			t.Errorf("it was not found: %v", total)
		})
	}
}

// patched builds the scheduler after replacing one text in one file.
func patched(t *testing.T, file, from, to string) string {
	t.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, filepath.FromSlash(file))
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(content), from); n != 1 {
		t.Fatalf("%s has %d times what is to be broken:\n%s", file, n, from)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		out := filepath.Join(dir, name)
		if err := os.WriteFile(out, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return out
	}
	broken := write("broken.go", []byte(strings.Replace(string(content), from, to, 1)))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: broken}})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "scheduler")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", write("overlay.json", overlay), "-ldflags", cluster.LinkFlags(), "-o", binary, "./cmd/scheduler")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building a broken scheduler: %v\n%s", err, out)
	}
	return binary
}
