package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

const (
	configFile    = ".goreleaser.yaml"
	changelogFile = "CHANGELOG.md"
	unreleased    = "unreleased"
)

// check returns what doesn't agree; the error: that it could not be found out.
func check(root, ldflags string) ([]error, error) {
	version, err := productVersion(root)
	if err != nil {
		return nil, err
	}
	project, err := loadConfig(root)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, b := range project.Builds {
		if got := words(strings.Join(b.Ldflags, " ")); !slices.Equal(got, words(ldflags)) {
			problems = append(problems, fmt.Errorf("%s: builds[%s].ldflags are %q, those of the Makefile %q", configFile, b.ID, strings.Join(got, " "), ldflags))
		}
		if info, err := os.Stat(filepath.Join(root, b.Main)); err != nil || !info.IsDir() {
			problems = append(problems, fmt.Errorf("%s: builds[%s].main: there is no folder %s", configFile, b.ID, b.Main))
		}
	}
	for _, a := range project.Archives {
		for _, file := range a.Files {
			if _, err := os.Stat(filepath.Join(root, file.Source)); err != nil {
				problems = append(problems, fmt.Errorf("%s: archives[%s].files: there is no %s", configFile, a.ID, file.Source))
			}
		}
	}
	notes, date, err := changelogSection(root, version)
	if err != nil {
		return append(problems, err), nil
	}
	if strings.TrimSpace(notes) == "" {
		problems = append(problems, fmt.Errorf("%s: the section of %s is empty", changelogFile, version))
	}
	if date != unreleased && !regexp.MustCompile(`^\d{4}-\d\d-\d\d$`).MatchString(date) {
		problems = append(problems, fmt.Errorf("%s: the date of %s is %q, which is neither like 2026-12-31 nor %q", changelogFile, version, date, unreleased))
	}
	for _, chart := range []string{"charts/dovetail/Chart.yaml", "charts/dovetail-crd/Chart.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, chart))
		if err != nil {
			return nil, fmt.Errorf("reading a chart's version: %w", err)
		}
		for _, key := range []string{"version", "appVersion"} {
			if !regexp.MustCompile(`(?m)^` + key + `: "?` + regexp.QuoteMeta(version) + `"?$`).Match(text) {
				problems = append(problems, fmt.Errorf("%s: %s isn't %s", chart, key, version))
			}
		}
	}
	return problems, nil
}

// loadConfig reads goreleaser's configuration as goreleaser does, for which an unknown field is an error.
func loadConfig(root string) (config.Project, error) {
	project, err := config.Load(filepath.Join(root, configFile))
	if err != nil {
		return config.Project{}, fmt.Errorf("%s: %w", configFile, err)
	}
	if len(project.Builds) == 0 {
		return config.Project{}, fmt.Errorf("%s: has no builds", configFile)
	}
	return project, nil
}

var versionConstant = regexp.MustCompile(`(?m)^const Version = "([^"]+)"$`)

// productVersion returns Dovetail's version, as pkg/version has it.
func productVersion(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "pkg", "version", "version.go"))
	if err != nil {
		return "", fmt.Errorf("reading the version: %w", err)
	}
	m := versionConstant.FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("pkg/version/version.go has no line %q", `const Version = "..."`)
	}
	return string(m[1]), nil
}

var changelogHeading = regexp.MustCompile(`(?m)^## (\S+) - (\S+)$`)

// changelogSection returns what CHANGELOG.md says about a version, without its heading, and the date in that.
func changelogSection(root, version string) (notes, date string, err error) {
	text, err := os.ReadFile(filepath.Join(root, changelogFile))
	if err != nil {
		return "", "", fmt.Errorf("reading the release notes: %w", err)
	}
	headings := changelogHeading.FindAllSubmatchIndex(text, -1)
	for i, h := range headings {
		if string(text[h[2]:h[3]]) != version {
			continue
		}
		end := len(text)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		return strings.TrimSpace(string(text[h[1]:end])) + "\n", string(text[h[4]:h[5]]), nil
	}
	return "", "", fmt.Errorf("%s has no heading \"## %s - DATE\"", changelogFile, version)
}
