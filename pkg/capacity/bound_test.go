package capacity

import "testing"

// The lower bound is of what is bought: pods that limits leave out cost nothing, and those that go to the next pool cost
// what they cost there.
func TestLowerBoundIsOfWhatIsBought(t *testing.T) {
	for _, tc := range []struct {
		name    string
		pools   []*Pool
		refused bool
	}{
		{"all of it", []*Pool{testPool("open")}, false},
		{"a limit", []*Pool{limited(0)}, true},
		{"a limit, and another pool", []*Pool{limited(10), testPool("open")}, false},
	} {
		for _, effort := range []int{0, 20000} {
			v := &View{Pools: tc.pools, Demand: []Demand{demandOf(t, 40, asking("web", "cpu=900m memory=1Gi"))}}
			p := Decide(v, Options{Effort: effort})
			if got := len(p.Refused) > 0; got != tc.refused {
				t.Fatalf("%s: refused %v, want %v", tc.name, got, tc.refused)
			}
			if p.CostPerHour == 0 || p.LowerBound > p.CostPerHour || p.LowerBound < 0.8*p.CostPerHour {
				t.Errorf("%s, effort %d: costs %v, lower bound %v: want it just below", tc.name, effort, p.CostPerHour, p.LowerBound)
			}
		}
	}
}

// limited is a pool with room for a quarter of the pods.
func limited(weight int32) *Pool {
	p := testPool("limited")
	p.Weight, p.Limits = weight, Resources{"cpu": 10_000}
	return p
}
