package planner

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

var testZones = []string{"a", "b", "c"}

// testType returns an instance type "family.cpuXmemGi" with on-demand offerings and, at a third of the price, spot offerings in every
// zone.
func testType(name, arch string, cpu, memGi int64, price float64) *capacity.InstanceType {
	family, _, _ := strings.Cut(name, ".")
	t := &capacity.InstanceType{
		Name: name,
		Labels: map[string]string{corev1.LabelInstanceTypeStable: name, corev1.LabelArchStable: arch, corev1.LabelOSStable: "linux",
			"karpenter.k8s.aws/instance-family": family, "karpenter.k8s.aws/instance-cpu": fmt.Sprint(cpu)},
		Capacity:    capacity.Resources{"cpu": cpu * 1000, "memory": memGi << 30, "pods": 30, "ephemeral-storage": 20 << 30},
		Allocatable: capacity.Resources{"cpu": cpu*1000 - 100, "memory": memGi<<30 - 500<<20, "pods": 30, "ephemeral-storage": 18 << 30},
	}
	for _, z := range testZones {
		t.Offers = append(t.Offers, capacity.Offer{Zone: z, CapacityType: "on-demand", Price: price, Available: true},
			capacity.Offer{Zone: z, CapacityType: "spot", Price: price / 3, Available: true})
	}
	return t
}

// testTypes returns the families c, m and r in four sizes, and ca on arm64.
func testTypes() []*capacity.InstanceType {
	var out []*capacity.InstanceType
	for _, f := range []struct {
		name, arch string
		gi         int64
		price      float64 // per cpu
	}{{"c", "amd64", 2, 0.040}, {"m", "amd64", 4, 0.048}, {"r", "amd64", 8, 0.063}, {"ca", "arm64", 2, 0.034}} {
		for _, cpu := range []int64{2, 4, 8, 16} {
			out = append(out, testType(fmt.Sprintf("%s.%d", f.name, cpu), f.arch, cpu, cpu*f.gi, float64(cpu)*f.price))
		}
	}
	return out
}

// testPool returns an on-demand pool of amd64 types.
func testPool(name string) *capacity.Pool {
	return &capacity.Pool{Name: name, Labels: map[string]string{"karpenter.sh/nodepool": name}, Types: testTypes(),
		Requirements: capacity.Requirements{}.And(capacity.ValueIn(capacity.LabelCapacityType, "on-demand"), capacity.ValueIn(corev1.LabelArchStable, "amd64"))}
}

// withOfferLabels adds the labels that depend on the offering, and for each on-demand offering a dearer one on dedicated hardware.
func withOfferLabels(v *capacity.View) *capacity.View {
	for _, t := range v.Pools[0].Types {
		for i := range t.Offers {
			o := &t.Offers[i]
			o.Labels = map[string]string{"topology.k8s.aws/zone-id": "id-" + o.Zone, "karpenter.k8s.aws/instance-tenancy": "default"}
			if o.CapacityType != "on-demand" {
				continue
			}
			own := *o
			own.Price, own.Tenancy = 1.1*o.Price, "dedicated"
			own.Labels = map[string]string{"topology.k8s.aws/zone-id": "id-" + o.Zone, "karpenter.k8s.aws/instance-tenancy": "dedicated"}
			t.Offers = append(t.Offers, own)
		}
	}
	return v
}

// testNode returns an existing node in a zone with that much free capacity.
func testNode(name, zone string, cpu, gi int64, pods ...*corev1.Pod) *capacity.Node {
	room := capacity.Resources{"cpu": cpu * 1000, "memory": gi << 30, "pods": 30}
	return &capacity.Node{Name: name, Labels: map[string]string{capacity.LabelHostname: name, capacity.LabelZone: zone, capacity.LabelCapacityType: "on-demand"}, Allocatable: room, Free: room, Pods: pods}
}

// demandOf returns the demand of n pods like the one given.
func demandOf(t testing.TB, n int, pod *corev1.Pod) capacity.Demand {
	t.Helper()
	d := capacity.Demand{Class: mustClass(t, pod)}
	for i := range n {
		d.Pods = append(d.Pods, capacity.PodRef{UID: types.UID(fmt.Sprintf("%s-%d", pod.Name, i)), Namespace: pod.Namespace, Name: fmt.Sprintf("%s-%d", pod.Name, i)})
	}
	return d
}

// summary prints a plan with one line per node, refusals last.
func summary(p *capacity.Plan) string {
	var b strings.Builder
	on := map[string]map[string]int{}
	for _, pl := range p.Placements {
		if on[pl.Node] == nil {
			on[pl.Node] = map[string]int{}
		}
		on[pl.Node][pl.Class.Labels["app"]]++
	}
	seen := map[string]bool{}
	for _, pl := range p.Placements {
		if !seen[pl.Node] && !strings.HasPrefix(pl.Node, "planned/") {
			seen[pl.Node] = true
			fmt.Fprintf(&b, "%s: %v\n", pl.Node, on[pl.Node])
		}
	}
	for _, n := range p.Nodes {
		line := fmt.Sprintf("%s %s %s %s: %v %s", n.Pool.Name, n.CapacityType, n.Offers[0].Type.Name, n.Labels[capacity.LabelZone], on[n.ID], n.Offers[0].Offer.Tenancy)
		fmt.Fprintln(&b, strings.TrimSpace(line))
	}
	for _, r := range p.Refused {
		fmt.Fprintf(&b, "refused %d %s: %s\n", len(r.Pods), r.Class.Labels["app"], r.Message)
	}
	return b.String()
}
