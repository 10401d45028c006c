package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

const usage = `usage:
  chart template [-f FILE]... [--set NAME=VALUE]... [--namespace NAMESPACE] [--kube-version VERSION] [--notes] CHART
      prints what helm would apply of a chart (a folder of charts/, or its package); --notes prints helm's notes instead
  chart manifests [--check]
      renders the plain manifests from charts/dovetail; --check writes nothing, and fails if a file differs
  chart package --out FOLDER
      packages both charts
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
	switch name, rest := args[0], args[1:]; name {
	case "template":
		return runTemplate(rest, out)
	case "manifests":
		return runManifests(root, rest, out)
	case "package":
		return runPackage(root, rest, out)
	default:
		return fmt.Errorf("unknown command %q\n%s", name, usage)
	}
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

func runTemplate(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("template", flag.ContinueOnError)
	r := release{name: "dovetail"}
	var files, sets list
	flags.Var(&files, "f", "file of values")
	flags.Var(&sets, "set", "NAME=VALUE")
	flags.StringVar(&r.namespace, "namespace", "kube-system", "namespace of the release")
	flags.StringVar(&r.kubeVersion, "kube-version", kubeVersion, "version of the API server")
	notes := flags.Bool("notes", false, "print the notes")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the flags of template: %w", err)
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("template needs one chart\n%s", usage)
	}
	values, err := readValues(files, sets)
	if err != nil {
		return err
	}
	rendered, err := r.render(flags.Arg(0), values)
	if err != nil {
		return err
	}
	text := rendered.documents()
	if *notes {
		text = rendered.notes()
	}
	_, err = io.WriteString(out, text)
	return err
}
