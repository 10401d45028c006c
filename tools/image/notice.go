package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/licenseclassifier/v2/assets"
)

// module is a module whose code is in one of the shipped programs.
type module struct {
	Path, Version, Dir string
	Replace            *module
}

// source is what is compiled: the module, or what replaces it.
func (m *module) source() *module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

// shipped are the packages of programs whose licences NOTICE lists, and architectures those that they are built for.
var (
	shipped       = []string{"./cmd/scheduler", "./cmd/dovetail"}
	architectures = []string{"amd64", "arm64"}
)

// linkedModules returns the modules that the shipped programs are made of, sorted by path, without Dovetail's own.
func linkedModules(root string) ([]*module, error) {
	found := map[string]*module{}
	for _, arch := range architectures {
		cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Module"}, shipped...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		data, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("listing the modules of %s: %w\n%s", strings.Join(shipped, ", "), err, stderr.Bytes())
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		for {
			var pkg struct{ Module *module }
			if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("reading the list of modules: %w", err)
			}
			if pkg.Module != nil && pkg.Module.Path != own {
				found[pkg.Module.Path] = pkg.Module
			}
		}
	}
	var all []*module
	for _, m := range found {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *module) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

var (
	licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)
	docsLicence = regexp.MustCompile(`(?i)\.docs$`) // of the module's documentation, which isn't linked
	noticeName  = regexp.MustCompile(`(?i)^notice(\..*)?$`)
)

// texts returns the files at the top of a module whose name matches, by name.
func (m *module) texts(name *regexp.Regexp) (map[string][]byte, error) {
	entries, err := os.ReadDir(m.source().Dir)
	if err != nil {
		return nil, fmt.Errorf("reading module %s: %w", m.Path, err)
	}
	texts := map[string][]byte{}
	for _, e := range entries {
		if e.Type().IsRegular() && name.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" && !docsLicence.MatchString(e.Name()) {
			if texts[e.Name()], err = os.ReadFile(filepath.Join(m.source().Dir, e.Name())); err != nil {
				return nil, fmt.Errorf("reading a licence of module %s: %w", m.Path, err)
			}
		}
	}
	return texts, nil
}

// licenceFiles returns Dovetail's licence and NOTICE, and licences and notices of all modules as they are, by path.
func licenceFiles(root string, modules []*module) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range []string{"LICENSE", "NOTICE"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("reading Dovetail's licence: %w", err)
		}
		files[name] = data
	}
	for _, m := range modules {
		for _, pattern := range []*regexp.Regexp{licenceName, noticeName} {
			texts, err := m.texts(pattern)
			if err != nil {
				return nil, err
			}
			if len(texts) == 0 && pattern == licenceName {
				return nil, fmt.Errorf("module %s has no file with its licence", m.Path)
			}
			for name, text := range texts {
				files[m.Path+"/"+name] = text
			}
		}
	}
	return files, nil
}

// accepted are licences under which a module may be linked into a program of Apache-2.0 that is given away as a binary.
var accepted = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "CC0-1.0", "Unlicense", "0BSD", "Zlib"}

// knownLicences takes seconds to load.
var knownLicences = sync.OnceValues(assets.DefaultClassifier)

// ids returns the SPDX identifiers of the licences in the texts, sorted.
func ids(texts map[string][]byte) ([]string, error) {
	classifier, err := knownLicences()
	if err != nil {
		return nil, fmt.Errorf("loading the licences that are known: %w", err)
	}
	var found []string
	for _, text := range texts {
		for _, match := range classifier.Match(text).Matches {
			if match.MatchType == "License" && match.Confidence >= 0.9 && !slices.Contains(found, match.Name) {
				found = append(found, match.Name)
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

const noticeHead = `Dovetail
Licensed under the Apache License, Version 2.0; see LICENSE.

Written by ` + "`make notice`" + `; make test fails if it isn't current.

The programs dovetail-scheduler and dovetail contain code of the Go standard library (BSD-3-Clause) and of the modules below, under the
licences named. The image of dovetail-scheduler has their texts in /licenses.

`

// notice returns the content of NOTICE: each module with its version and licences, and the notices that modules ask to pass on.
func notice(modules []*module) ([]byte, error) {
	var list, notices bytes.Buffer
	for _, m := range modules {
		texts, err := m.texts(licenceName)
		if err != nil {
			return nil, err
		}
		licences, err := ids(texts)
		if err != nil {
			return nil, err
		}
		if len(licences) == 0 {
			return nil, fmt.Errorf("module %s: its licence is not one that is known", m.Path)
		}
		for _, id := range licences {
			if !slices.Contains(accepted, id) {
				return nil, fmt.Errorf("module %s has the licence %s: may it be linked? accepted are %s", m.Path, id, strings.Join(accepted, ", "))
			}
		}
		fmt.Fprintf(&list, "%s %s: %s\n", m.source().Path, m.source().Version, strings.Join(licences, ", "))
		passed, err := m.texts(noticeName)
		if err != nil {
			return nil, err
		}
		for _, text := range passed {
			fmt.Fprintf(&notices, "\n---- %s ----\n\n%s\n", m.Path, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")))
		}
	}
	return []byte(noticeHead + list.String() + notices.String()), nil
}

func runNotice(root string, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("notice", flag.ContinueOnError)
	check := flags.Bool("check", false, "write nothing, and fail if the file differs")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the flags of notice: %w", err)
	}
	modules, err := linkedModules(root)
	if err != nil {
		return err
	}
	want, err := notice(modules)
	if err != nil {
		return err
	}
	path := filepath.Join(root, "NOTICE")
	if got, err := os.ReadFile(path); err == nil && bytes.Equal(got, want) {
		return nil
	}
	if *check {
		return errors.New("NOTICE is not current: make notice writes it")
	}
	if err := os.WriteFile(path, want, 0o644); err != nil {
		return fmt.Errorf("writing NOTICE: %w", err)
	}
	fmt.Fprintf(out, "wrote NOTICE: %d modules\n", len(modules))
	return nil
}
