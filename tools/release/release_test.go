package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const flags = "-s -w -X example.com/v.version=1"

// repository writes a small repository that is fit for release, and returns its folder.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{
		"pkg/version/version.go":         "package version\n\n// Version of Dovetail.\nconst Version = \"0.2.0\"\n",
		"CHANGELOG.md":                   "# Changes\n\n## 0.2.0 - 2026-12-31\n\nSecond.\n\n## 0.1.0 - 2026-11-30\n\nFirst.\n",
		"LICENSE":                        "licence",
		"go.mod":                         "module example.com/small\n\ngo 1.26\n",
		"cmd/dovetail/main.go":           "package main\n\nfunc main() {}\n",
		"charts/dovetail/Chart.yaml":     "version: 0.2.0\nappVersion: \"0.2.0\"\n",
		"charts/dovetail-crd/Chart.yaml": "version: 0.2.0\nappVersion: 0.2.0\n",
		".goreleaser.yaml": "version: 2\nbuilds:\n  - id: tool\n    main: ./cmd/dovetail\n    binary: dovetail\n    env: [CGO_ENABLED=0]\n    goos: [linux, windows]\n    goarch: [amd64, arm64]\n" +
			"    ignore: [{goos: windows, goarch: arm64}]\n    ldflags: [\"" + flags + "\"]\narchives:\n  - id: tool\n    files: [LICENSE]\n",
	} {
		write(t, filepath.Join(root, path), text)
	}
	return root
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCheckNamesWhatDoesNotAgree(t *testing.T) {
	for _, tc := range []struct{ name, file, old, new, want string }{
		{name: "all agrees"},
		{"other flags", ".goreleaser.yaml", "version=1", "version=2", ".goreleaser.yaml: builds[tool].ldflags are"},
		{"an unknown field", ".goreleaser.yaml", "goos:", "gooses:", "field gooses not found"},
		{"no such main package", ".goreleaser.yaml", "./cmd/dovetail", "./cmd/other", "builds[tool].main: there is no folder ./cmd/other"},
		{"no such file", ".goreleaser.yaml", "[LICENSE]", "[LICENCE]", "archives[tool].files: there is no LICENCE"},
		{"a version without notes", "pkg/version/version.go", "0.2.0", "0.3.0", `CHANGELOG.md has no heading "## 0.3.0 - DATE"`},
		{"an empty section", "CHANGELOG.md", "Second.\n", "", "the section of 0.2.0 is empty"},
		{"a date that is none", "CHANGELOG.md", "2026-12-31", "soon", `the date of 0.2.0 is "soon"`},
		{"not yet released", "CHANGELOG.md", "2026-12-31", "unreleased", ""},
		{"a chart of another version", "charts/dovetail-crd/Chart.yaml", "appVersion: 0.2.0", "appVersion: 0.1.0", "charts/dovetail-crd/Chart.yaml: appVersion isn't 0.2.0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := repository(t)
			if tc.file != "" {
				text, err := os.ReadFile(filepath.Join(root, tc.file))
				if err != nil || !strings.Contains(string(text), tc.old) {
					t.Fatalf("%s has no %q: %v", tc.file, tc.old, err)
				}
				write(t, filepath.Join(root, tc.file), strings.ReplaceAll(string(text), tc.old, tc.new))
			}
			t.Chdir(root)
			if err := os.MkdirAll("cmd/scheduler", 0o755); err != nil {
				t.Fatal(err)
			}
			err := run([]string{"check", "--ldflags", flags}, os.Stdout)
			if got := ""; err != nil {
				got = err.Error()
				if tc.want == "" || !strings.Contains(got, tc.want) {
					t.Errorf("%s, want %q", got, tc.want)
				}
			} else if tc.want != "" {
				t.Errorf("nothing is wrong, want %q", tc.want)
			}
		})
	}
}

func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	root := repository(t)
	for version, want := range map[string]string{"0.2.0": "Second.\n", "0.1.0": "First.\n"} {
		if got, _, err := changelogSection(root, version); got != want || err != nil {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
}

func TestBuildsForEachTarget(t *testing.T) {
	root, folder := repository(t), t.TempDir()
	var out bytes.Buffer
	if err := build(root, folder, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, path := range []string{"linux_amd64/dovetail", "linux_arm64/dovetail", "windows_amd64/dovetail.exe"} {
		if _, err := os.Stat(filepath.Join(folder, path)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "windows_arm64")); err == nil {
		t.Error("built what is ignored")
	}
	if err := builtFor(filepath.Join(folder, "linux_arm64", "dovetail"), target{"linux", "amd64"}); err == nil {
		t.Error("a binary for arm64 counts as one for amd64")
	}
}

func TestRepositoryNamesThePlatformsThatTheDocsPromise(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	project, err := loadConfig(root)
	if err != nil {
		t.Fatal(err)
	}
	got := map[target]bool{}
	for _, b := range project.Builds {
		for _, one := range targets(b) {
			got[one] = true
		}
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			if !got[target{system, arch}] {
				t.Errorf("%s/%s isn't built", system, arch)
			}
		}
	}
}
