package main

import (
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func runPush(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("push", flag.ContinueOnError)
	username := flags.String("username", "", "name at the registry")
	stdin := flags.Bool("password-stdin", false, "read the password from standard input")
	insecure := flags.Bool("insecure", false, "the registry may speak plain HTTP")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the flags of push: %w", err)
	}
	if flags.NArg() != 2 || *stdin != (*username != "") {
		return fmt.Errorf("push needs a folder and a repository with a tag, and both of --username and --password-stdin or neither\n%s", usage)
	}
	var options []name.Option
	if *insecure {
		options = append(options, name.Insecure)
	}
	target, err := name.NewTag(flags.Arg(1), append(options, name.StrictValidation)...)
	if err != nil {
		return fmt.Errorf("repository: %w", err)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(flags.Arg(0), layoutFolder))
	if err != nil {
		return fmt.Errorf("reading the image (make image builds it): %w", err)
	}
	auth := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if *stdin {
		password, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("reading the password: %w", err)
		}
		auth = remote.WithAuth(&authn.Basic{Username: *username, Password: strings.TrimSpace(string(password))})
	}
	if err := remote.WriteIndex(target, index, auth); err != nil {
		return fmt.Errorf("pushing to %s: %w", target, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("reading the digest of the image: %w", err)
	}
	fmt.Fprintf(out, "%s@%s\n", target.Context(), digest)
	return nil
}
