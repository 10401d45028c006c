package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

// target is a system and architecture that the tool is built for.
type target struct{ os, arch string }

// targets returns what a build is for, without the pairs that it ignores.
func targets(b config.Build) []target {
	var out []target
	for _, system := range b.Goos {
		for _, arch := range b.Goarch {
			ignored := false
			for _, i := range b.Ignore {
				ignored = ignored || (i.Goos == "" || i.Goos == system) && (i.Goarch == "" || i.Goarch == arch)
			}
			if !ignored {
				out = append(out, target{system, arch})
			}
		}
	}
	return out
}

// build builds everything that goreleaser would, with the same flags, and reads from each binary what it was built for.
func build(root, folder string, out io.Writer) error {
	project, err := loadConfig(root)
	if err != nil {
		return err
	}
	folder, err = filepath.Abs(folder)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	for _, b := range project.Builds {
		for _, t := range targets(b) {
			path := filepath.Join(folder, t.os+"_"+t.arch, b.Binary)
			if t.os == "windows" {
				path += ".exe"
			}
			if _, err := fmt.Fprintf(out, "%s for %s/%s\n", b.Binary, t.os, t.arch); err != nil {
				return err
			}
			args := append([]string{"build", "-o", path, "-ldflags", strings.Join(b.Ldflags, " ")}, b.Flags...)
			cmd := exec.Command("go", append(args, b.Main)...)
			cmd.Dir, cmd.Stdout, cmd.Stderr = root, out, out
			cmd.Env = append(append(os.Environ(), b.Env...), "GOOS="+t.os, "GOARCH="+t.arch)
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("building %s for %s/%s: %w", b.Binary, t.os, t.arch, err)
			}
			if err := builtFor(path, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func builtFor(path string, t target) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading what %s was built from: %w", path, err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if got := (target{settings["GOOS"], settings["GOARCH"]}); got != t {
		return fmt.Errorf("%s is for %s/%s, not for %s/%s", path, got.os, got.arch, t.os, t.arch)
	}
	if settings["CGO_ENABLED"] != "0" {
		return fmt.Errorf("%s is built with cgo", path)
	}
	return nil
}
