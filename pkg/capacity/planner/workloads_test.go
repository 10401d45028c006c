package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// workloads returns kinds of demand that users have.
func workloads(t testing.TB) map[string][]capacity.Demand {
	out := map[string][]capacity.Demand{}
	for name, w := range map[string]struct {
		apps        int
		counts      []int
		cpu, memory []string
		change      func(d dice, app string) []func(*corev1.Pod)
	}{
		"many small services": {100, []int{2, 5, 10, 40}, []string{"50m", "100m", "250m", "500m", "1"}, []string{"128Mi", "256Mi", "512Mi", "1Gi", "2Gi"}, nil},
		"memory-heavy":        {30, []int{5, 10, 20}, []string{"250m", "500m", "1", "2"}, []string{"4Gi", "8Gi", "12Gi", "16Gi"}, nil},
		"cpu-heavy":           {30, []int{5, 10, 20}, []string{"1", "2", "3", "4", "7"}, []string{"512Mi", "1Gi", "2Gi", "4Gi"}, nil},
		"spread over zones": {40, []int{3, 6, 30}, []string{"250m", "500m", "1", "2"}, []string{"512Mi", "1Gi", "4Gi"}, func(_ dice, _ string) []func(*corev1.Pod) {
			return []func(*corev1.Pod){withSpread(capacity.LabelZone)}
		}},
		"one per host": {40, []int{3, 5, 10}, []string{"250m", "500m", "1", "2"}, []string{"512Mi", "1Gi", "4Gi"}, func(d dice, app string) []func(*corev1.Pod) {
			if d.one(2) {
				return []func(*corev1.Pod){away(app, capacity.LabelHostname)}
			}
			return nil
		}},
		"selectors, and spot where it is allowed": {60, []int{5, 10, 20}, []string{"250m", "500m", "1", "2", "4"}, []string{"512Mi", "1Gi", "2Gi", "8Gi"}, func(d dice, _ string) []func(*corev1.Pod) {
			switch d.IntN(5) {
			case 0:
				return []func(*corev1.Pod){on(corev1.LabelArchStable, "amd64")}
			case 1:
				return []func(*corev1.Pod){on(capacity.LabelCapacityType, "on-demand")}
			case 2:
				return []func(*corev1.Pod){on(capacity.LabelZone, "a")}
			}
			return nil
		}},
		"few large pods": {30, []int{1, 2, 3, 5}, []string{"8", "16", "24", "30", "48"}, []string{"16Gi", "32Gi", "64Gi", "128Gi"}, nil},
	} {
		d := dice{rand.New(rand.NewPCG(11, 12))}
		for i := range w.apps {
			app := fmt.Sprintf("app-%d", i)
			var change []func(*corev1.Pod)
			if w.change != nil {
				change = w.change(d, app)
			}
			out[name] = append(out[name], demandOf(t, 5*pick(d, w.counts...), asking(app, "cpu="+pick(d, w.cpu...)+" memory="+pick(d, w.memory...), change...)))
		}
	}
	return out
}

func TestCostOverTheLowerBound(t *testing.T) {
	log, n := 0.0, 0
	pool := benchPool()
	for name, demand := range workloads(t) {
		v := &capacity.View{Pools: []*capacity.Pool{pool}, Demand: demand}
		bound := Decide(v, capacity.Options{Effort: 150000}).LowerBound
		p := Decide(v, capacity.Options{Effort: 20000})
		if err := check(v, p, capacity.Options{}); err != nil || len(p.Refused) > 0 {
			t.Fatalf("%s: %v, %d refused", name, err, len(p.Refused))
		}
		ratio := p.CostPerHour / bound
		t.Logf("%-40s %8.2f $/h, bound %8.2f, ratio %.4f", name, p.CostPerHour, bound, ratio)
		most := 1.06
		if name == "few large pods" {
			most = 1.10 // the bound allows fractions of pods where the best content of a node is hard to find
		}
		if ratio > most {
			t.Errorf("%s: costs %.4f of its lower bound, want %.2f at most", name, ratio, most)
		}
		log += math.Log(ratio)
		n++
	}
	if mean := math.Exp(log / float64(n)); mean > 1.035 {
		t.Errorf("workloads cost %.4f of their lower bounds on average, want 1.035 at most", mean)
	}
}
