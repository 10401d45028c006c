package pieces

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSorted(t *testing.T) {
	type value struct{ key, id int }
	byKey := func(a, b value) int { return cmp.Compare(a.key, b.key) }
	r := rand.New(rand.NewPCG(3, 4))
	var list, want []value
	for id := range 2000 {
		if v := (value{r.IntN(20), id}); r.IntN(3) > 0 {
			list, want = Insert(list, v, byKey), append(want, v)
		} else {
			list = Remove(list, v, byKey) // isn't there
		}
		if len(want) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(want))
			list, want = Remove(list, want[i], byKey), slices.Delete(want, i, i+1)
		}
		if !slices.IsSortedFunc(list, byKey) {
			t.Fatalf("not in order: %v", list)
		}
		byID := func(a, b value) int { return cmp.Compare(a.id, b.id) }
		if got := slices.SortedFunc(slices.Values(list), byID); !slices.Equal(got, slices.SortedFunc(slices.Values(want), byID)) {
			t.Fatalf("has %v, want %v", got, want)
		}
	}
}
