// Package pieces goes through many values in pieces, so that nobody has to wait until all of them have been looked at.
package pieces

// List holds values in the order in which they were added. Its rounds go through all of them, some at a time. It is not safe for concurrent use.
type List[T any] struct {
	all []T
	// A round has looked at the values before next, and keeps those before kept.
	next, kept int
}

// Add adds a value. The present round comes to it, too.
func (l *List[T]) Add(v T) { l.all = append(l.all, v) }

// Next calls visit for the round's next n values, in order, and forgets those for which it returns false. more: the round has others.
// After its last piece the next round begins.
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
