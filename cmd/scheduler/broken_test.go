package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// mistake is a way to break the program. The change is made only in a build for this test.
type mistake struct {
	name, file string // file relative to the module's root
	// is occurs in the file once; when the mistake is enabled, instead runs before it, or in its place.
	is, instead string
	// seed of the first history, if not any will do.
	seed uint64
	// longer is for how long the lasting faults go on alone: a loop has to be told from what may be bought while other things fail, too.
	longer time.Duration
	// says is a regular expression of what the checker reports.
	says string
}

var mistakes = []mistake{
	{
		name: "no-token", file: "pkg/aws/launch.go",
		is: "in.ClientToken = awssdk.String(w.Token)", instead: "if !broken(%q) { in.ClientToken = awssdk.String(w.Token) }",
		says: `launch \S* was recorded for \d+ claims and has \d+ instances|claim \S+ has \d+ living instances`,
	},
	{
		name: "finalizer-dropped-early", file: "pkg/lifecycle/finalization.go",
		is: "deadline := f.deadline(l.claim)\n", instead: "if broken(%q) { dropFinalizer(l.claim); return 0, nil }\ndeadline := f.deadline(l.claim)\n",
		says: `claim \S+ is gone, its instance \S+ is not`,
	},
	{
		name: "end-not-awaited", file: "pkg/lifecycle/termination.go",
		is: "if v == unsure {\n", instead: "if broken(%q) { return 0, nil }\nif v == unsure {\n",
		says: `(claim|Node) \S+ .*is gone, its instance \S+ is not`,
	},
	{
		name: "not-drained", file: "pkg/lifecycle/termination.go",
		is: "if !objects.Posted(e.node) {", instead: "if broken(%q) { steps = []step{t.endInstance, t.removeNode} }\nif !objects.Posted(e.node) {",
		says: `nobody had asked the pods of its node \S+ to go|asks not to be disrupted and was deleted`,
	},
	{
		name: "guard-never-opens", file: "pkg/capacity/guard/breaker.go", seed: 17, longer: 4 * time.Hour,
		is: "func (b *Breaker) Open() bool { return", instead: "func (b *Breaker) Open() bool { return !broken(%q) &&",
		says: `machines were bought in vain|instances were launched: that is a loop`,
	},
	{
		name: "work-counts-as-failure", file: "pkg/capacity/guard/open.go", seed: 23,
		is:      "func (g *Guard) close(b *Breaker, now time.Time, proves func(Key) bool) {\n",
		instead: "func (g *Guard) close(b *Breaker, now time.Time, proves func(Key) bool) {\nif broken(%q) { b.fail(now); b.Message = \"NodeClaim it: has done work\"; g.note(Paused, b); return }\n",
		says:    `a pause begins, though nothing lasts`,
	},
	{
		name: "stamped-with-another-hash", file: "pkg/karpenter/claim.go",
		is: "PoolStamp(np).Put(nc.Annotations)\n", instead: "PoolStamp(np).Put(nc.Annotations)\nif broken(%q) { nc.Annotations[karpv1.NodePoolHashAnnotationKey] = \"1\" }\n",
		says: `claim \S+ has drifted, though nothing has changed: NodePoolDrifted`,
	},
	{
		name: "other-profile-unwatched", file: "plugins/binder/initializing.go", seed: 13,
		is: "g.hidden(o)); t != nil", instead: "g.hidden(o)); broken(%q) {\nreturn nil // nor is it asked what is planned there\n} else if t != nil",
		says: `of a profile without the plugins was bound to Node \S+, which no kubelet has`,
	},
}

// The checker of the chaos histories finds mistakes in the program: each is built in, enabled, and found. That the same histories pass
// without a mistake is what TestChaos shows.
func TestChaosFindsMistakes(t *testing.T) {
	binary := buildBroken(t)
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			found, out := firstMatch(t, regexp.MustCompile(m.says), binary, m)
			if !found {
				t.Errorf("not found in %d histories:\n%s", historiesPerMistake, out)
			}
		})
	}
}

// historiesPerMistake is how many histories may pass, or fail with other words, before a mistake counts as not found. What a mistake leads to
// differs between them: one that pauses launches leaves pods waiting where a lasting fault would have paused them too.
const historiesPerMistake = 20

// firstMatch runs histories with a mistake until a line of their output matches, and returns all that they have printed.
func firstMatch(t *testing.T, says *regexp.Regexp, binary string, m mistake) (found bool, out string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	histories := exec.CommandContext(ctx, binary, "-test.run", "TestChaos$", "-test.v", "-chaos.histories", fmt.Sprint(historiesPerMistake),
		"-chaos.seed", fmt.Sprint(max(m.seed, 1)), "-chaos.again", "0", "-chaos.longer", m.longer.String())
	histories.Env = append(os.Environ(), "DOVETAIL_BROKEN="+m.name)
	stdout, err := histories.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	histories.Stderr = histories.Stdout
	if err := histories.Start(); err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		printed.WriteString(line)
		if says.MatchString(line) {
			found = true
			stop()
			break
		}
		if err != nil {
			break
		}
	}
	_ = histories.Wait() // it was stopped, or what it found is in the output
	return found, printed.String()
}

// buildBroken builds this package's tests with all mistakes in the program; the environment enables one by name.
func buildBroken(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	put := func(file, text string) {
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, file)] = path
	}
	sources := map[string]string{}
	for _, m := range mistakes {
		if sources[m.file] == "" {
			text, err := os.ReadFile(filepath.Join(root, m.file))
			if err != nil {
				t.Fatal(err)
			}
			sources[m.file] = string(text)
		}
		if n := strings.Count(sources[m.file], m.is); n != 1 {
			t.Fatalf("%s: %q stands in %s %d times: say anew how to break it", m.name, m.is, m.file, n)
		}
		sources[m.file] = strings.Replace(sources[m.file], m.is, fmt.Sprintf(m.instead, m.name), 1)
	}
	for file, text := range sources {
		put(file, text)
		pkg := filepath.Base(filepath.Dir(file))
		put(filepath.Join(filepath.Dir(file), "broken.go"), "package "+pkg+"\n\nimport \"os\"\n\nfunc broken(name string) bool { return os.Getenv(\"DOVETAIL_BROKEN\") == name }\n")
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "chaos.test")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "test", "-c", "-ldflags", "-s -w", "-overlay", file, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building it with its mistakes: %v\n%s", err, out)
	}
	return binary
}
