package objects

import (
	"maps"
	"slices"
)

// renamed has the names that the version before wrote on objects and instances, each with the name of today. Objects of that version are
// read: an old name is understood wherever it is found, never written, and removed with the next write. A row may go when the version
// before no longer writes it.
var renamed = map[string]string{
	"dovetail.sh/wave":    AnnotationLaunchBatch, // and TagLaunchBatch
	"dovetail.sh/planned": AnnotationPlannedPods,
	"dovetail.sh/largest": AnnotationLargestCapacity,
}

// Renamed is a copy of the table of old names, each with the name of today.
func Renamed() map[string]string { return maps.Clone(renamed) }

// FormerNames are the old names of a name of today, sorted.
func FormerNames(name string) []string {
	var out []string
	for old, now := range renamed {
		if now == name {
			out = append(out, old)
		}
	}
	slices.Sort(out)
	return out
}

// UseNewNames renames annotations or tags that have an old name, and reports whether it found any. If both names are there, the old one's
// value counts: today's version removes the old name when it writes, so an earlier version must have written last.
func UseNewNames(m map[string]string) bool {
	found := false
	for old, now := range renamed {
		if value, ok := m[old]; ok {
			m[now] = value
			delete(m, old)
			found = true
		}
	}
	return found
}
