// Package script runs tests that are written as stories: steps in, and what came of each step out, both as plain text that a bug report
// can contain. A script is a file:
//
//	# What the story is about, and why it came out otherwise once.
//	submit web-1 web-2
//	    plan for web-1 web-2
//
//	node claim-1
//	commit web-1@claim-1 web-2@claim-1
//
// A line that begins in the first column is a step: its name and its arguments, separated by spaces; "double quotes" keep spaces. The
// indented lines below it are what came of it. Empty lines and lines that begin with # are for the reader. Each package has steps of its
// own; a step without indented lines is one without consequences.
//
// It is no language: there are no variables, conditions or loops. What needs them is a Go test.
package script
