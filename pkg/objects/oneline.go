package objects

import "strings"

// OneLine joins the lines of a text: joined errors have several lines, but events and conditions are read as one.
func OneLine(text string) string {
	if !strings.ContainsAny(text, "\n\r") {
		return text
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
