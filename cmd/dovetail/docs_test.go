package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// The commands of docs/plan.md work as they are written there, and print what the page says, except for times and column widths: costs and
// bounds are the first numbers that a newcomer compares.
func TestDocumentedCommandsWork(t *testing.T) {
	t.Chdir("../..")
	page, err := os.ReadFile("docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	lines := strings.Split(string(page), "\n")
	for i, line := range lines {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		commands++
		out := strings.Split(dovetail(t, command), "\n")
		if len(out) < 4 || out[len(out)-2] != "exit 3" {
			t.Errorf("%s\nprints:\n%s\nwant a plan with a refused pod", command, strings.Join(out, "\n"))
			continue
		}
		end := slices.Index(lines[i:], "```")
		if diff := cmp.Diff(words(lines[i+1:i+end]), words(out[:len(out)-2])); diff != "" {
			t.Errorf("%s (-page +printed):\n%s", command, diff)
		}
	}
	if commands < 2 {
		t.Errorf("only %d commands were found", commands)
	}
}

// The commands in docs/why.md print what the page says, with these objects as the cluster. Notes are left out there.
func TestWhyPageShowsWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../docs/why.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	updated := string(page)
	lines := strings.Split(updated, "\n")
	for i, line := range lines {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		commands++
		out := strings.Split(dovetail(t, command+" --existing testdata/live.yaml --existing testdata/live-nodes.yaml --catalog testdata/catalog.json"), "\n")
		out = slices.DeleteFunc(out, func(l string) bool { return strings.HasPrefix(l, "Note: ") })
		end := slices.Index(lines[i:], "```")
		if *update {
			updated = strings.Replace(updated, strings.Join(lines[i:i+end+1], "\n"), line+"\n"+strings.TrimSpace(strings.Join(out, "\n"))+"\n```", 1)
			continue
		}
		if diff := cmp.Diff(strings.TrimSpace(strings.Join(lines[i+1:i+end], "\n")), strings.TrimSpace(strings.Join(out, "\n"))); diff != "" {
			t.Errorf("%s (-page +printed):\n%s", command, diff)
		}
	}
	if commands < 6 {
		t.Errorf("only %d commands were found", commands)
	}
	if *update {
		if err := os.WriteFile("../../docs/why.md", []byte(updated), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// words returns lines with single spaces, and without the times that differ from run to run.
func words(lines []string) []string {
	var out []string
	for _, line := range lines {
		out = append(out, strings.Join(strings.Fields(masked(line)), " "))
	}
	return out
}

// docs/plan.md lists every field of the JSON.
func TestDocumentedFields(t *testing.T) {
	page, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[reflect.Type]bool{}
	var check func(reflect.Type)
	check = func(of reflect.Type) {
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if name == "" {
				continue
			}
			if !regexp.MustCompile("(`|\\.|[{ ])" + name + "(`|\\[\\]|[,}])").Match(page) {
				t.Errorf("%s.%s is not described", of, name)
			}
			check(of.Field(i).Type)
		}
	}
	check(reflect.TypeFor[offline.Report]())
}

func TestBudget(t *testing.T) {
	for budget, want := range map[time.Duration]int{0: 0, defaultBudget: provisioning.DefaultEffort, time.Second: 1_000_000, 1 << 62: 1<<31 - 1} {
		if got := effortOf(budget); got != want {
			t.Errorf("%s is an effort of %d, want %d", budget, got, want)
		}
	}
}
