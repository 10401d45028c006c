package planner

import (
	"math"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/test/pods"
)

func FuzzQuantities(f *testing.F) {
	f.Add("1000000000000000", "8Ei", "1m")
	f.Add("-1", "9223372036854775807", "0.5")
	f.Fuzz(func(t *testing.T, cpu, memory, gpu string) {
		list := corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{"cpu": cpu, "memory": memory, "example.com/gpu": gpu} {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return
			}
			list[name] = q
		}
		r := capacity.ResourcesOf(list)
		for name, q := range list {
			if q.Sign() > 0 && r[name] <= 0 || q.Sign() < 0 && r[name] > 0 {
				t.Errorf("%s of %s became %d", q.String(), name, r[name])
			}
		}
		twice := r.Clone()
		twice.Add(r, math.MaxInt64)
		for name := range r {
			if r[name] > 0 && twice[name] < r[name] {
				t.Errorf("%s: %d added many times is %d", name, r[name], twice[name])
			}
		}
		pod := pods.Of("a")
		pod.Spec.Containers[0].Resources.Requests = list
		c, err := capacity.ClassOf(pod, capacity.VolumeInfo{})
		if negative := list.Cpu().Sign() < 0 || list.Memory().Sign() < 0 || r["example.com/gpu"] < 0; negative && err == nil {
			t.Errorf("negative requests %v are taken", list)
		}
		if err != nil {
			return
		}
		v := &capacity.View{Pools: []*capacity.Pool{testPool("default")}, Nodes: []*capacity.Node{testNode("n1", "a", 4, 8)}, Demand: []capacity.Demand{{Class: c, Pods: []capacity.PodRef{{UID: "a"}, {UID: "b"}}}}}
		p := Decide(v, capacity.Options{Effort: 100})
		if err := check(v, p, capacity.Options{}); err != nil {
			t.Error(err)
		}
	})
}

func FuzzPlan(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, int64(1000), int64(1<<30), 0.1, 0.0)
	}
	f.Add(uint64(3), int64(math.MaxInt64), int64(0), math.Inf(1), -1.0)
	f.Add(uint64(4), int64(math.MinInt64), int64(math.MaxInt64), math.NaN(), 1e300)
	f.Fuzz(func(t *testing.T, seed uint64, cpu, memory int64, price, surcharge float64) {
		v := dice{rand.New(rand.NewPCG(seed, 9))}.world(t)
		// One type, one node and one limit have strange values.
		typ := v.Pools[0].Types[int(seed%uint64(len(v.Pools[0].Types)))]
		typ.Capacity, typ.Allocatable = capacity.Resources{"cpu": cpu, "memory": memory, "pods": 10}, capacity.Resources{"cpu": cpu, "memory": memory, "pods": 10}
		for i := range typ.Offers {
			typ.Offers[i].Price = price
		}
		if len(v.Nodes) > 0 {
			v.Nodes[0].Free = capacity.Resources{"cpu": memory, "memory": cpu, "pods": cpu}
		}
		v.Pools[0].Limits = capacity.Resources{"cpu": memory}
		opts := capacity.Options{NodeSurcharge: surcharge, Effort: int(seed % 500), PriceFactor: map[string]float64{"c": price}}
		p := Decide(v, opts)
		if err := check(v, p, opts); err != nil {
			t.Errorf("world %d: %v\n%s", seed, err, summary(p))
		}
	})
}
