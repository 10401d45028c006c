// Package kept words the annotation that says why a node is kept, and says when it is worth another write. It reads and writes nothing.
package kept

import (
	"strings"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
)

const (
	// Every is how long an annotation stays at least; textEvery likewise, if only numbers in it change.
	Every     = time.Minute
	textEvery = 15 * time.Minute
)

// Note is why a node is kept, and what was last written about it.
type Note struct {
	Now     consolidation.Kept
	written time.Time
	subject string // of the reason that was written
}

// Wrote records that Now was written.
func (n *Note) Wrote(now time.Time) { n.written, n.subject = now, subjectOf(&n.Now) }

// Due reports whether a claim is to be annotated with text. old is the annotation's present value.
func (n *Note) Due(old, text string, now time.Time) bool {
	if old == text {
		if n.subject == "" {
			n.subject = subjectOf(&n.Now)
		}
		return false
	}
	if n.written.IsZero() && old != "" && KindOf(old) == string(n.Now.Kind) { // an earlier process wrote it: its subject isn't known
		n.Wrote(now)
		return false
	}
	since := now.Sub(n.written)
	if KindOf(old) != string(n.Now.Kind) || n.subject != subjectOf(&n.Now) {
		return since >= Every
	}
	return since >= textEvery
}

// Text returns the annotation's value.
func Text(k *consolidation.Kept) string { return string(k.Kind) + ": " + k.Text() }

// KindOf returns the kind that an annotation begins with.
func KindOf(text string) string {
	kind, _, _ := strings.Cut(text, ":")
	return kind
}

// subjectOf returns what a reason is about, apart from numbers that change all the time: the pod, the name, and when it ends. That end doesn't
// count for a busy node (NotQuiet), because it changes with each pod that comes or goes.
func subjectOf(k *consolidation.Kept) string {
	until := ""
	if k.Kind != consolidation.NotQuiet && !k.Until.IsZero() {
		until = k.Until.UTC().Format(time.RFC3339)
	}
	return k.Pod.Namespace + "/" + k.Pod.Name + " " + k.Name + " " + until
}
