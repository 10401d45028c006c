package capacity

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func FuzzRequirement(f *testing.F) {
	f.Add("In", "a,b", "Gt", "1", "3")
	f.Add("NotIn", "", "Lte", "-9223372036854775808", "x")
	f.Fuzz(func(t *testing.T, op1, values1, op2, values2, probe string) {
		a, err := NewRequirement("k", Operator(op1), strings.Split(values1, ",")...)
		if err != nil {
			return
		}
		b, err := NewRequirement("k", Operator(op2), strings.Split(values2, ",")...)
		if err != nil {
			return
		}
		both, turned := a.Intersect(b), b.Intersect(a)
		if both.Has(probe) != (a.Has(probe) && b.Has(probe)) || both.Has(probe) != turned.Has(probe) {
			t.Errorf("%s and %s: %q is in %v, %v, both %v, turned round %v", a, b, probe, a.Has(probe), b.Has(probe), both.Has(probe), turned.Has(probe))
		}
		if both.AllowsAbsent() != (a.AllowsAbsent() && b.AllowsAbsent()) || both.Impossible() && both.Has(probe) {
			t.Errorf("%s and %s: %s", a, b, both)
		}
		_, _ = both.Values()
		_, _ = both.Single()
	})
}

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
		r := ResourcesOf(list)
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
		pod := testPod("a")
		pod.Spec.Containers[0].Resources.Requests = list
		c, err := ClassOf(pod, VolumeInfo{})
		if negative := list.Cpu().Sign() < 0 || list.Memory().Sign() < 0 || r["example.com/gpu"] < 0; negative && err == nil {
			t.Errorf("negative requests %v are taken", list)
		}
		if err != nil {
			return
		}
		v := &View{Pools: []*Pool{testPool("default")}, Nodes: []*Node{testNode("n1", "a", 4, 8)}, Demand: []Demand{{Class: c, Pods: []PodRef{{UID: "a"}, {UID: "b"}}}}}
		p := Decide(v, Options{Effort: 100})
		if err := check(v, p, Options{}); err != nil {
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
		typ.Capacity, typ.Allocatable = Resources{"cpu": cpu, "memory": memory, "pods": 10}, Resources{"cpu": cpu, "memory": memory, "pods": 10}
		for i := range typ.Offers {
			typ.Offers[i].Price = price
		}
		if len(v.Nodes) > 0 {
			v.Nodes[0].Free = Resources{"cpu": memory, "memory": cpu, "pods": cpu}
		}
		v.Pools[0].Limits = Resources{"cpu": memory}
		opts := Options{NodeSurcharge: surcharge, Effort: int(seed % 500), PriceFactor: map[string]float64{"c": price}}
		p := Decide(v, opts)
		if err := check(v, p, opts); err != nil {
			t.Errorf("world %d: %v\n%s", seed, err, p.summary())
		}
	})
}
