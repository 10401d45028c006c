package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
)

var update = flag.Bool("update", false, "rewrite testdata/*.console with what comes out now; understand the difference before you keep it")

// dovetail runs a command line and returns what it prints, both streams in one, with the exit code if it isn't 0.
func dovetail(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "dovetail" {
		t.Fatalf("%q is no command of ours", line)
	}
	var out bytes.Buffer
	if code := run(context.Background(), words[1:], strings.NewReader(""), &out, &out); code != exitOK {
		fmt.Fprintf(&out, "exit %d\n", code)
	}
	return out.String()
}

// masked returns output without the times, which differ from run to run.
func masked(out string) string {
	for _, m := range []struct{ find, put string }{
		{`in \d+ ms`, "in N ms"}, {`(planMillis|verifyMillis)("?): [\d.]+`, "$1$2: N"},
	} {
		out = regexp.MustCompile(m.find).ReplaceAllString(out, m.put)
	}
	return out
}

// TestConsole replays files of commands ("$ ...") and what they print.
func TestConsole(t *testing.T) {
	files, err := filepath.Glob("testdata/*.console")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for line := range strings.Lines(string(want)) {
				command, ok := strings.CutPrefix(line, "$ ")
				switch {
				case ok:
					got.WriteString(line + masked(dovetail(t, command)) + "\n")
				case strings.HasPrefix(line, "# "): // an explanation for readers
					got.WriteString(line)
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

// why.console has every kind of answer about pods, nodes and pools.
func TestEveryKindOfAnswerIsGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/why.console")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !ok || !strings.Contains(command, "--catalog") {
			continue
		}
		var answer explain.Answer
		if err := json.Unmarshal([]byte(dovetail(t, command+" -o json")), &answer); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		found[answer.Kind] = true
	}
	for _, kind := range explain.Kinds() {
		if !found[kind] {
			t.Errorf("no command of why.console has an answer of kind %s", kind)
		}
	}
}
