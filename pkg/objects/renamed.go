package objects

import (
	"maps"
	"slices"
)

// renamed maps each name that the previous version wrote on objects and instances to its current name. An old name is understood wherever it
// is found, is never written, and is removed by the next write. An entry may be deleted when the previous version no longer
// writes the name.
var renamed = map[string]string{
	"dovetail.sh/wave":    AnnotationLaunchBatch, // and TagLaunchBatch
	"dovetail.sh/planned": AnnotationPlannedPods,
	"dovetail.sh/largest": AnnotationLargestCapacity,
}

// Renamed returns a copy of the map from old names to current ones.
func Renamed() map[string]string { return maps.Clone(renamed) }

// FormerNames returns the old names of a current name, sorted.
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
