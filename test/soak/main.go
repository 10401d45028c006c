package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

func main() {
	set, err := readSettings()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	standalone.Main("soak", func(ctx context.Context, dir string) error { return run(ctx, dir, set) })
}

// run runs the three parts and prints the table; it returns an error if one of them fails.
func run(ctx context.Context, dir string, set settings) error {
	s, err := begin(ctx, set, dir)
	if err != nil {
		return err
	}
	defer s.Stop()
	parts, err := s.parts(ctx)
	if err != nil {
		return err
	}
	fmt.Println()
	table(os.Stdout, parts)
	var problems []error
	for _, p := range parts {
		for _, problem := range p.judge() {
			problems = append(problems, fmt.Errorf("%s: %s", p.name, problem))
		}
	}
	if len(problems) == 0 {
		fmt.Println("\nall of it holds")
	}
	return errors.Join(problems...)
}
