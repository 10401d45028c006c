// Command release prepares a release of Dovetail: it checks that the version, CHANGELOG.md, .goreleaser.yaml and the Makefile agree, builds the tool
// `dovetail` for each system that .goreleaser.yaml names, and prints the release's notes.
//
// goreleaser itself, which publishes, isn't part of this: its configuration is read by its own code, so that a mistake in it shows before a release.
package main
