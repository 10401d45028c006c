package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestArrivalsHaveThePodsThatTheirNamesSay(t *testing.T) {
	all := arrivals([]int{100, 300, 5000}, []int{25, 500})
	names := map[string]bool{}
	for _, a := range all {
		if names[a.name] {
			t.Errorf("two bursts are called %s", a.name)
		}
		names[a.name] = true
		for _, w := range a.workloads {
			if w.pods < 1 || w.cpu < 1 || w.memory < 1 {
				t.Errorf("%s: %+v", a.name, w)
			}
		}
	}
	for name, pods := range map[string]int{"mixed-100-at-25": 100, "mixed-300-at-25": 300, "mixed-5000-at-500": 5000, "zones-300-at-500": 300, "sequence-300-at-100": 300, "six-in-160ms": 6} {
		if got := selected(all, name); len(got) != 1 || got[0].pods() != pods {
			t.Errorf("%s: %+v, want one burst with %d pods", name, got, pods)
		}
	}
	if got := selected(all, "mixed-5000-at-25"); len(got) > 0 {
		t.Errorf("5,000 pods at 25 per second would take too long: %+v", got)
	}
}

// The same plan is what all runs are compared with, and the plan that knows all pods is not dearer than plans for two halves.
func TestOnePlanIsTheYardstick(t *testing.T) {
	whole := selected(arrivals([]int{100}, []int{25}), "mixed-100-at-25")[0]
	first, second := whole, whole
	first.name, second.name = "first", "second"
	first.workloads, second.workloads = whole.workloads[:2], whole.workloads[2:]
	cost := map[string]float64{}
	for _, a := range []arrival{whole, first, second} {
		for range 2 {
			c, err := planned(t.Context(), t.TempDir(), &a)
			if err != nil {
				t.Fatal(err)
			}
			if before := cost[a.name]; before != 0 && before != c {
				t.Errorf("%s: $%v and then $%v", a.name, before, c)
			}
			cost[a.name] = c
		}
	}
	if halves := cost["first"] + cost["second"]; cost[whole.name] > halves*1.001 || cost[whole.name] <= 0 {
		t.Errorf("one plan costs $%v, two for its halves $%v", cost[whole.name], halves)
	}
}

func TestReport(t *testing.T) {
	of := func(cost float64, bound time.Duration) outcome { return outcome{cost: cost, bound: bound} }
	r := report{compared: true, lone: []time.Duration{300 * time.Millisecond, 200 * time.Millisecond, 900 * time.Millisecond}, loneBaseline: []time.Duration{250 * time.Millisecond}, results: []result{
		{arrival: arrival{name: "a"}, planned: 1, ours: []outcome{of(1.21, 3*time.Second), of(1, 5*time.Second)}, baseline: []outcome{of(2, time.Second), of(2, 4*time.Second)}},
		{arrival: arrival{name: "b"}, planned: 2, ours: []outcome{of(2.2, time.Second)}, baseline: []outcome{of(4, 2*time.Second)}},
	}}
	var out bytes.Buffer
	r.print(&out)
	text := out.String()
	if !strings.HasSuffix(text, "\nburst: cost 1.100 worst 1.100 lonePodMillis 300\n") {
		t.Errorf("the last line of\n%s", text)
	}
	for _, want := range []string{"baseline: cost 2.000 worst 2.000 lonePodMillis 250", "+1.5", "-1.0"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q isn't in\n%s", want, text)
		}
	}
}
