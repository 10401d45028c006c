package explain

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Answer is an answer for people and programs. docs/why.md has examples.
type Answer struct {
	// Object is kind and name, "Pod shop/web-0".
	Object string `json:"object"`
	// Kind is the kind of answer, one word.
	Kind string `json:"kind"`
	// Summary is the answer in one clause that follows Object.
	Summary string `json:"summary"`
	// Sections are details, the most useful first.
	Sections []Section `json:"sections,omitempty"`
	// Notes say what the answer assumes, and what is missing from it.
	Notes []string `json:"notes,omitempty"`
}

// Section is a paragraph, a list or a table.
type Section struct {
	Title string `json:"title"`
	// Lines are sentences without a full stop.
	Lines []string `json:"lines,omitempty"`
	// Rows are the rows of a table; the first is its heading.
	Rows [][]string `json:"rows,omitempty"`
}

func (a *Answer) section(title string, lines ...string) {
	if len(lines) > 0 {
		a.Sections = append(a.Sections, Section{Title: title, Lines: lines})
	}
}

// table adds a table if there are rows.
func (a *Answer) table(title string, heading []string, rows [][]string) {
	if len(rows) > 0 {
		a.Sections = append(a.Sections, Section{Title: title, Rows: append([][]string{heading}, rows...)})
	}
}

// advise adds what messages mean, and what a user can do about them.
func (a *Answer) advise(messages ...string) { a.adviseAll(adviceFor(messages...)) }

func (a *Answer) adviseAll(all []Advice) {
	var lines []string
	for _, ad := range all {
		switch {
		case ad.Means == "":
			lines = append(lines, ad.Do)
		case ad.Do == "":
			lines = append(lines, ad.Means)
		default:
			lines = append(lines, ad.Means+". To do: "+ad.Do)
		}
	}
	a.section("What that means, and what to do", lines...)
}

// Write writes the answer for people.
func (a *Answer) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", a.Object, a.Summary)
	for _, s := range a.Sections {
		fmt.Fprintf(&b, "\n%s:\n", s.Title)
		for _, line := range s.Lines {
			fmt.Fprintf(&b, "- %s\n", line)
		}
		t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		for _, row := range s.Rows {
			if _, err := fmt.Fprintln(t, "  "+strings.TrimRight(strings.Join(row, "\t"), "\t")); err != nil {
				return err
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(a.Notes) > 0 {
		b.WriteByte('\n')
	}
	for _, note := range a.Notes {
		fmt.Fprintf(&b, "Note: %s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
