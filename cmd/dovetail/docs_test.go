package main

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/launch"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

// The commands of docs/plan.md work as they are written there. What the planner makes of the example may improve; the form of
// what is printed is that of the page.
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
		for j, want := range lines[i+1 : i+3] { // the warning and the heading
			if got := out[j]; strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
				t.Errorf("%s\nprints %q, the page says %q", command, got, want)
			}
		}
	}
	if commands < 2 {
		t.Errorf("only %d commands were found", commands)
	}
}

// Every field of the JSON is on the page.
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
	for budget, want := range map[time.Duration]int{0: 0, defaultBudget: launch.DefaultEffort, time.Second: 1_000_000, 1 << 62: 1<<31 - 1} {
		if got := effortOf(budget); got != want {
			t.Errorf("%s is an effort of %d, want %d", budget, got, want)
		}
	}
}
