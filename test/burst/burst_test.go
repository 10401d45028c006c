package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

func TestArrivalsHaveThePodsThatTheirNamesSay(t *testing.T) {
	all, left := arrivals([]int{100, 300, 5000}, []int{25, 100, 500})
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
	for name, pods := range map[string]int{"mixed-100-at-25": 100, "mixed-300-at-25": 300, "mixed-5000-at-100": 5000, "mixed-5000-at-500": 5000, "zones-300-at-500": 300, "sequence-300-at-100": 300, "six-in-160ms": 6} {
		if got := selected(all, name); len(got) != 1 || got[0].pods() != pods {
			t.Errorf("%s: %+v, want one burst with %d pods", name, got, pods)
		}
	}
	if !slices.Equal(left, []string{"mixed-5000-at-25"}) || len(selected(all, left[0])) > 0 {
		t.Errorf("%v are left out; 5,000 pods at 25 per second would take too long", left)
	}
}

// The same plan is what all runs are compared with, and the plan that knows all pods is not dearer than plans for two halves.
func TestOnePlanIsTheYardstick(t *testing.T) {
	few, _ := arrivals([]int{100}, []int{25})
	whole := selected(few, "mixed-100-at-25")[0]
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
	r := report{compared: true, lone: result{ours: decided(300, 200, 900), baseline: decided(250)}, results: []result{
		{arrival: arrival{name: "a"}, planned: 1, ours: []outcome{of(1.21, 3*time.Second), of(1, 5*time.Second)}, baseline: []outcome{of(2, time.Second), of(2, 4*time.Second)}},
		{arrival: arrival{name: "b"}, planned: 2, ours: []outcome{of(2.2, time.Second)}, baseline: []outcome{of(4, 2*time.Second)}},
	}}
	var out bytes.Buffer
	r.print(&out, verdict{failures: []string{"something"}})
	text := out.String()
	if !strings.HasSuffix(text, "\nburst: cost 1.100 worst 1.100 lonePodMillis 300\n") {
		t.Errorf("the last line of\n%s", text)
	}
	for _, want := range []string{"baseline: cost 2.000 worst 2.000 lonePodMillis 250", "+1.5", "-1.0", "WRONG: something\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q isn't in\n%s", want, text)
		}
	}
	if row := strings.Fields(strings.Split(text, "\n")[1]); len(row) < 6 || row[4] != "1.100" || row[5] != "1.210" {
		t.Errorf("the mean of the runs is 1.1 and the worst 1.21: %v", row)
	}
}

func decided(millis ...int) (out []outcome) {
	for _, one := range millis {
		out = append(out, outcome{decided: time.Duration(one) * time.Millisecond})
	}
	return out
}

// runs are of a burst whose plan costs 1: their costs, and when all pods are bound.
func runs(costs ...float64) (out []outcome) {
	for _, cost := range costs {
		out = append(out, outcome{cost: cost, bound: 10 * time.Second, created: 150 * time.Millisecond})
	}
	return out
}

func TestJudge(t *testing.T) {
	burst := func(name string, ours, baseline []outcome) result {
		return result{arrival: arrival{name: name}, planned: 1, ours: ours, baseline: baseline}
	}
	slower := func(by ...time.Duration) (out []outcome) {
		for i, o := range runs(make([]float64, len(by))...) {
			o.cost, o.bound = 1, o.bound+by[i]
			out = append(out, o)
		}
		return out
	}
	changed := func(o outcome, f func(*outcome)) []outcome {
		f(&o)
		return []outcome{o}
	}
	lone := result{ours: decided(150, 160, 900)}
	for _, tc := range []struct {
		name     string
		report   report
		off      bool
		failures []string
		late     int
		unjudged []string
	}{
		{name: "the default", report: report{lone: lone, results: []result{burst("a", runs(1.02), nil), burst("b", runs(1.019), nil)}},
			unjudged: []string{"times of the bursts (no baseline)"}},
		{name: "dear in all", report: report{lone: lone, results: []result{burst("a", runs(1.0203), nil)}},
			failures: []string{"cost 1.0203, want at most 1.02"}, unjudged: []string{"times of the bursts (no baseline)"}},
		{name: "one burst is dear", report: report{lone: lone, results: []result{burst("a", runs(1.041), nil), burst("b", runs(0.99), nil)}},
			failures: []string{"worst 1.0410, want at most 1.04"}, unjudged: []string{"times of the bursts (no baseline)"}},
		{name: "one run is dear", report: report{lone: lone, results: []result{burst("a", runs(1.05, 1, 1), nil)}}, unjudged: []string{"times of the bursts (no baseline)"}},
		{name: "two pairs are too few", report: report{compared: true, lone: lone, results: []result{burst("a", slower(time.Minute, time.Minute), runs(1, 1))}},
			unjudged: []string{"times of the bursts (2 pairs of each, want 3)"}},
		{name: "slower", report: report{compared: true, lone: lone, results: []result{burst("a", slower(time.Minute, 1100*time.Millisecond, 0), runs(1, 1, 1))}},
			failures: []string{"a takes 1.10 s longer than with the baseline, want at most 1.00"}},
		{name: "slower once", report: report{compared: true, lone: lone, results: []result{burst("a", slower(time.Minute, time.Second, 0), runs(9, 9, 9))}}},
		{name: "a lone pod waits", report: report{compared: true, lone: result{ours: decided(401, 401, 1)}, results: []result{burst("a", runs(1, 1, 1), runs(1, 1, 1))}},
			failures: []string{"lonePodMillis 401, want at most 400"}},
		{name: "only two lone pods", report: report{lone: result{ours: decided(900, 900)}},
			unjudged: []string{"costs (no burst was run)", "lonePodMillis (2 lone pods, want 3)", "times of the bursts (no baseline)"}},
		{name: "created late", report: report{lone: lone, results: []result{burst("a", changed(runs(1)[0], func(o *outcome) { o.created = 201 * time.Millisecond }), nil)}},
			late: 1, unjudged: []string{"times of the bursts (no baseline)"}},
		{name: "instances end", off: true, report: report{lone: lone, results: []result{burst("a", runs(1), changed(runs(1)[0], func(o *outcome) { o.ended = 2 }))}},
			failures: []string{"a, baseline, run 1: 2 instances have ended, although nothing disrupts them"}, unjudged: []string{"all figures (-judge=false)"}},
		{name: "not judged", off: true, report: report{results: []result{burst("a", runs(2), nil)}}, unjudged: []string{"all figures (-judge=false)"}},
	} {
		v := tc.report.judge(!tc.off)
		if !slices.Equal(v.failures, tc.failures) || !slices.Equal(v.unjudged, tc.unjudged) || len(v.late) != tc.late {
			t.Errorf("%s: %+v", tc.name, v)
		}
		if err := v.err(); (err != nil) != (len(tc.failures) > 0) {
			t.Errorf("%s: the program ends with %v", tc.name, err)
		}
		var out strings.Builder
		v.print(&out)
		if n := strings.Count(out.String(), "NOT AT ONCE: a: creating its Deployments took up to 201 ms"); n != tc.late {
			t.Errorf("%s: %q", tc.name, out.String())
		}
	}
}

// All Deployments are created at once, except where they come apart or where their order counts. A create takes 30 ms of virtual time.
func TestDeploymentsAreCreatedAtOnce(t *testing.T) {
	all, _ := arrivals([]int{300}, []int{100})
	for name, want := range map[string]time.Duration{
		"mixed-300-at-100": 30 * time.Millisecond, "sequence-300-at-100": 180 * time.Millisecond, "six-in-160ms": 190 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			a := selected(all, name)[0]
			var mu sync.Mutex
			var made []string
			took, err := a.create(t.Context(), func(_ context.Context, d *appsv1.Deployment) error {
				<-time.After(30 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				made = append(made, d.Name)
				return nil
			})
			if err != nil || took != want || len(made) != len(a.workloads) {
				t.Errorf("%s: %d of %d Deployments existed after %s, want %s: %v", name, len(made), len(a.workloads), took, want, err)
			}
			for i := range a.workloads {
				if (a.sequence || a.apart > 0) && made[i] != a.workloads[i].name {
					t.Errorf("%s: created in the order %v", name, made)
				}
			}
		})
	}
}
