package spending

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// A breaker of one workload stops no other one whose pods have the same class.
func TestBreakerStopsOnlyItsWorkload(t *testing.T) {
	p := newPurse(t, Config{})
	p.mu.Lock()
	for i := range 3 {
		name := fmt.Sprint("m", i)
		p.state.breakers.Buy(name, guard.Bought{Purchase: guard.Purchase{Round: name, Workloads: []guard.Workload{web}}, Pool: "pool", At: p.clock.Now()})
		p.state.breakers.Fail(name, guard.Fault{Cause: "x", Message: "x"}, p.clock.Now())
		p.state.breakers.End(name, p.clock.Now())
	}
	p.mu.Unlock()
	failing, other := p.pod("a", ""), p.pod("b", "")
	other.OwnerReferences[0].Name, other.OwnerReferences[0].UID = "other", "other"
	demand := func(pods ...*corev1.Pod) []capacity.Demand {
		var out []capacity.Demand
		for _, pod := range pods { // as chunks of two buffers: each has its own class, with the same key
			out = append(out, capacity.Demand{Class: &capacity.Class{Key: "c", Pod: pod}, Pods: []capacity.PodRef{{UID: types.UID("chunk-" + pod.Name)}}})
		}
		return out
	}
	none := func(types.UID) *corev1.Pod { return nil }
	v := &capacity.View{Pools: []*capacity.Pool{{Name: "pool"}}, Demand: demand(failing, other)}
	forbidden, wait := p.Restrict(v, none, nil)
	if len(forbidden) > 0 || len(wait) != 1 || len(wait[0].Pods) != 1 || wait[0].Pods[0].UID != "chunk-a" {
		t.Errorf("forbidden %v, waiting %+v; want only the first to wait", forbidden, wait)
	}
	if len(v.Demand) != 1 || v.Demand[0].Pods[0].UID != "chunk-b" {
		t.Errorf("demand %+v, want the other one's", v.Demand)
	}
	v = &capacity.View{Pools: []*capacity.Pool{{Name: "pool"}}, Demand: demand(failing)}
	if forbidden, wait = p.Restrict(v, none, nil); len(forbidden) != 1 || len(wait) > 0 {
		t.Errorf("alone: forbidden %v, waiting %+v; want its class to be forbidden", forbidden, wait)
	}
}
