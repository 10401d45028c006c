package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWorkloadsFromFiles measures workloads that were written to files, against bounds from a file.
func TestWorkloadsFromFiles(t *testing.T) {
	folder := t.TempDir()
	if err := run([]string{"-write", folder, "-seed", "3"}, nil); err != nil {
		t.Fatal(err)
	}
	bounds := filepath.Join(folder, "bounds")
	if err := os.WriteFile(bounds, []byte("few-big-pods\tpods=1\tlower=100\tmaster=7\nfew-big-pods\tlower=50\nother\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	args := []string{"-catalog", filepath.Join(folder, "catalog.json_"), "-bounds", bounds, "-seconds", "0", filepath.Join(folder, "few-big-pods.json")}
	if err := run(args, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[2], "| few-big-pods | ") || !strings.Contains(lines[2], "| 100.00 |") {
		t.Errorf("table:\n%s", out.String())
	}
}

func TestInputThatIsRefused(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"a workload that isn't there", []string{filepath.Join(folder, "none.json")}, "no such file"},
		{"a folder without workloads", []string{t.TempDir()}, "no workloads in"},
		{"a workload that isn't one", []string{file("text.json", "pods")}, "text.json: decoding workload"},
		{"a negative request", []string{file("negative.json", `{"name":"w","groups":[{"app":"a","count":1,"cpu":-1}]}`)}, "workload w: group 0 of app a"},
		{"a workload without pods", []string{file("empty.json", `{"name":"w"}`)}, "workload w has no pods"},
		{"a catalogue without types", []string{"-catalog", file("catalog", `{"meta":{"region":"r"}}`)}, "instanceTypes is empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := run(tc.args, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
