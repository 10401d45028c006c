package capacity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSurplus(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	nodes := []StaticNode{
		{Claim: "protected", CreatedAt: at(9), Launched: true, Protected: true},
		{Claim: "dear", CreatedAt: at(8), Launched: true, Occupied: true, Cost: 5},
		{Claim: "cheap", CreatedAt: at(7), Launched: true, Occupied: true, Cost: 1},
		{Claim: "empty, old", CreatedAt: at(1), Launched: true},
		{Claim: "empty, young", CreatedAt: at(6), Launched: true},
		{Claim: "on its way", CreatedAt: at(5)},
		{Claim: "protected and full", CreatedAt: at(4), Launched: true, Occupied: true, Cost: 2, Protected: true},
		{Claim: "drifted and dear", CreatedAt: at(2), Launched: true, Occupied: true, Cost: 7, Drifted: true},
		{Claim: "drifted and empty", CreatedAt: at(2), Launched: true, Drifted: true},
		{Claim: "drifted and protected", CreatedAt: at(2), Launched: true, Occupied: true, Cost: 3, Protected: true, Drifted: true},
		{Claim: "cheap, too", CreatedAt: at(7), Launched: true, Occupied: true, Cost: 1},
	}
	order := []string{"on its way", "drifted and empty", "empty, young", "empty, old", "drifted and dear", "cheap", "cheap, too", "dear", "drifted and protected", "protected",
		"protected and full"}
	before := append([]StaticNode{}, nodes...)
	for n := -1; n <= len(nodes)+1; n++ {
		want := order[:min(max(n, 0), len(order))]
		if diff := cmp.Diff(want, append([]string{}, Surplus(nodes, n)...)); diff != "" {
			t.Errorf("%d too many (-want +got):\n%s", n, diff)
		}
	}
	if diff := cmp.Diff(before, nodes); diff != "" {
		t.Errorf("the caller's nodes were reordered (-want +got):\n%s", diff)
	}
}
