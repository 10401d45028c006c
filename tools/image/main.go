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
  image build --out FOLDER [--ldflags FLAGS] [--arch amd64,arm64]
      builds dovetail-scheduler for Linux, and writes an OCI image layout into FOLDER/image and an SBOM (SPDX) for each architecture beside it
  image push [--username NAME --password-stdin] [--insecure] FOLDER REPOSITORY:TAG
      pushes what build has written; without a name, with the credentials of Docker's configuration file
  image notice [--check]
      writes NOTICE; --check writes nothing, and fails if the file differs
`

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	switch name, rest := args[0], args[1:]; name {
	case "build":
		return runBuild(root, rest, out)
	case "push":
		return runPush(rest, in, out)
	case "notice":
		return runNotice(root, rest, out)
	default:
		return fmt.Errorf("unknown command %q\n%s", name, usage)
	}
}

// moduleRoot returns the folder of Dovetail's own module, at or above the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for Dovetail's module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "scheduler")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no cmd/scheduler in the working directory or above it")
		}
		dir = parent
	}
}

func runBuild(root string, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	folder := flags.String("out", "", "folder to write to")
	ldflags := flags.String("ldflags", "", "flags of the linker")
	arch := flags.String("arch", "amd64,arm64", "architectures")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the flags of build: %w", err)
	}
	if *folder == "" {
		return fmt.Errorf("build needs --out\n%s", usage)
	}
	p, err := productOf(root)
	if err != nil {
		return err
	}
	var binaries []binary
	for a := range strings.SplitSeq(*arch, ",") {
		fmt.Fprintf(out, "building dovetail-scheduler for linux/%s\n", a)
		b, err := compile(out, root, "./cmd/scheduler", filepath.Join(*folder, "dovetail-scheduler-linux-"+a), a, *ldflags)
		if err != nil {
			return err
		}
		binaries = append(binaries, b)
	}
	digest, err := p.write(*folder, binaries)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s\n", filepath.Join(*folder, layoutFolder), digest)
	return nil
}
