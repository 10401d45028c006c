package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const usage = `usage:
  release check --ldflags FLAGS
      fails if the version, CHANGELOG.md, .goreleaser.yaml and the linker's flags of the Makefile don't agree
  release build --out FOLDER
      builds the tool for each system of .goreleaser.yaml into FOLDER
  release notes
      prints the section of CHANGELOG.md for this version
`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	ldflags := flags.String("ldflags", "", "flags of the linker, as the Makefile has them")
	folder := flags.String("out", "", "folder to write to")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s takes no arguments: %q\n%s", args[0], flags.Arg(0), usage)
	}
	switch args[0] {
	case "check":
		problems, err := check(root, *ldflags)
		if err != nil {
			return err
		}
		return errors.Join(problems...)
	case "build":
		if *folder == "" {
			return fmt.Errorf("build needs --out\n%s", usage)
		}
		return build(root, *folder, out)
	case "notes":
		version, err := productVersion(root)
		if err != nil {
			return err
		}
		notes, _, err := changelogSection(root, version)
		if err != nil {
			return err
		}
		_, err = io.WriteString(out, notes)
		return err
	default:
		return fmt.Errorf("unknown command %q\n%s", args[0], usage)
	}
}

// moduleRoot returns the folder of Dovetail's own module, at or above the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for Dovetail's module: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "scheduler")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no cmd/scheduler in the working directory or above it")
		}
	}
}

// words splits flags at white space, as the go command does with flags that have no quotes.
func words(flags string) []string { return strings.Fields(flags) }
