package planner

import (
	"fmt"
	"strings"
)

// suggestLabel returns a hint with the known label key that is closest to an unknown one: the same name with another prefix or none, a
// name that ends in it, or one within an edit distance of two. It returns "" when no key is close.
func suggestLabel(key string, known []string) string {
	name := nameOf(key)
	best, rank := "", 4
	better := func(k string, as int) {
		if as < rank {
			best, rank = k, as
		}
	}
	for _, k := range known {
		switch of := nameOf(k); {
		case of == name:
			better(k, 0)
		case strings.HasSuffix(of, "-"+name):
			better(k, 1)
		case len(name) >= 4 && editDistance(name, of) <= 1:
			better(k, 2)
		case len(name) >= 8 && editDistance(name, of) <= 2:
			better(k, 3)
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (is %s meant?)", best)
}

func nameOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// editDistance returns how many letters must be inserted, removed or replaced to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal, row[j+1] = row[j+1], min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
