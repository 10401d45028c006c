// Package pieces goes through many values in pieces, so that a lock need not be held until all of them have been looked at.
package pieces

import (
	"iter"
	"slices"
)

// Found returns the values of a map for which is returns true, in the order of compare.
func Found[K comparable, T any](all map[K]T, is func(T) bool, compare func(a, b T) int) (found []T) {
	for _, v := range all {
		if is(v) {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, compare)
	return found
}

// Still yields, in their order, those of the found values for which is still returns true when their turn comes.
func Still[T any](found []T, is func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, v := range found {
			if is(v) && !yield(v) {
				return
			}
		}
	}
}

// List holds values in the order in which they were added. Its rounds go through all of them, some at a time. It is not safe for concurrent use.
type List[T any] struct {
	all []T
	// Indices in all: the present round has visited the values before next, and has moved those that it keeps to the places before kept.
	next, kept int
}

// Add adds a value. The present round comes to it, too.
func (l *List[T]) Add(v T) { l.all = append(l.all, v) }

// Begins reports whether the next call of Next begins a round.
func (l *List[T]) Begins() bool { return l.next == 0 }

// Next calls visit for the round's next n values, in order, and forgets those for which it returns false. more: the round has values left;
// otherwise the next call begins a new round.
func (l *List[T]) Next(n int, visit func(T) (keep bool)) (more bool) {
	for ; n > 0 && l.next < len(l.all); n-- {
		v := l.all[l.next]
		if l.next++; visit(v) {
			l.all[l.kept] = v
			l.kept++
		}
	}
	if l.next < len(l.all) {
		return true
	}
	clear(l.all[l.kept:])
	l.all = l.all[:l.kept]
	l.next, l.kept = 0, 0
	return false
}
