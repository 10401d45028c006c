package pieces

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever comes and goes between the pieces of a round: each value is visited once in a round, in the order in which it was added, and
// is forgotten only when visit says so.
func TestEachRoundVisitsAllOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var l List[int]
		var present []int // in order
		gone := map[int]bool{}
		added := 0
		add := func(n int) {
			for range n {
				l.Add(added)
				present = append(present, added)
				added++
			}
		}
		add(r.IntN(50))
		for round := range 5 {
			var visited []int
			for more := true; more; {
				more = l.Next(1+r.IntN(10), func(v int) bool {
					visited = append(visited, v)
					return !gone[v]
				})
				if more {
					add(r.IntN(3))
				}
			}
			if !slices.Equal(visited, present) {
				t.Fatalf("round %d visits\n%v, want\n%v", round, visited, present)
			}
			present = slices.DeleteFunc(present, func(v int) bool { return gone[v] })
			for _, v := range present {
				if r.IntN(4) == 0 {
					gone[v] = true
				}
			}
			add(r.IntN(20))
		}
	}
}

// A list that shrinks keeps nothing of what it has forgotten.
func TestForgottenValuesAreReleased(t *testing.T) {
	var l List[*int]
	for i := range 8 {
		l.Add(&i)
	}
	l.Next(8, func(v *int) bool { return *v == 5 })
	if len(l.all) != 1 || *l.all[0] != 5 {
		t.Fatalf("keeps %d values", len(l.all))
	}
	if rest := l.all[1:8]; slices.ContainsFunc(rest, func(v *int) bool { return v != nil }) {
		t.Errorf("still points to what it has forgotten: %v", rest)
	}
}
