package network

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSubnetWithTheMostAddresses(t *testing.T) {
	a := NewAddresses()
	for id, free := range map[string]int64{"small": 100, "large": 200, "elsewhere": 1} {
		a.set(id, free)
	}
	subnets := []Subnet{{ID: "large", Zone: "a"}, {ID: "small", Zone: "a"}, {ID: "elsewhere", Zone: "b"}}
	full := map[string]bool{}
	check := func(when string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for zone, s := range a.Most(subnets, func(id string) bool { return full[id] }) {
			got[zone] = s.ID
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("at first", map[string]string{"a": "large", "b": "elsewhere"})
	a.Take("large", 150)
	check("after a launch", map[string]string{"a": "small", "b": "elsewhere"})
	full["small"], full["elsewhere"] = true, true
	check("with full ones", map[string]string{"a": "large"})
	a.Take("large", 1000)
	a.set("small", 1)
	delete(full, "small")
	check("none is below zero", map[string]string{"a": "small"})
}
