package planner

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// manyTypes returns a catalog of realistic size: families of three shapes in several generations and sizes.
func manyTypes() []*capacity.InstanceType {
	var out []*capacity.InstanceType
	for gen := range 12 {
		for _, f := range []struct {
			name string
			gi   int64
			cpu  float64
		}{{"c", 2, 0.0425}, {"m", 4, 0.048}, {"r", 8, 0.063}} {
			for _, suffix := range []struct {
				name, arch string
				factor     float64
			}{{"", "amd64", 1.06}, {"a", "amd64", 1}, {"g", "arm64", 0.87}} {
				for _, cpu := range []int64{2, 4, 8, 16, 32, 48, 64, 96} {
					out = append(out, testType(fmt.Sprintf("%s%d%s.%d", f.name, gen, suffix.name, cpu), suffix.arch, cpu, cpu*f.gi, float64(cpu)*f.cpu*suffix.factor*(1.1-0.005*float64(gen))))
				}
			}
		}
	}
	return out
}

func manyDemand(b *testing.B, classes, pods int, change ...func(*corev1.Pod)) []capacity.Demand {
	d := dice{rand.New(rand.NewPCG(1, 2))}
	var out []capacity.Demand
	for i := range classes {
		out = append(out, demandOf(b, pods/classes, asking(fmt.Sprintf("app-%d", i), pick(d, "cpu=100m memory=128Mi", "cpu=250m memory=1Gi", "cpu=500m memory=512Mi", "cpu=1 memory=4Gi", "cpu=2 memory=2Gi"), change...)))
	}
	return out
}

func benchmarkPlan(b *testing.B, v *capacity.View, opts capacity.Options) {
	pods := 0
	for _, d := range v.Demand {
		pods += len(d.Pods)
	}
	b.ReportAllocs()
	for b.Loop() {
		if p := Decide(v, opts); len(p.Placements) != pods {
			b.Fatal(len(p.Placements), p.Refused[0].Message)
		}
	}
	b.ReportMetric(float64(pods*b.N)/b.Elapsed().Seconds(), "pods/s")
}

func benchPool() *capacity.Pool {
	p := testPool("default")
	p.Types, p.Requirements = manyTypes(), nil
	return p
}

func BenchmarkPlanPlain10000(b *testing.B) {
	for _, effort := range []int{0, 50000} {
		b.Run(fmt.Sprintf("effort=%d", effort), func(b *testing.B) {
			benchmarkPlan(b, &capacity.View{Pools: []*capacity.Pool{benchPool()}, Demand: manyDemand(b, 20, 10000)}, capacity.Options{Effort: effort})
		})
	}
}

func BenchmarkPlanSpread1000Over5000Nodes(b *testing.B) {
	v := &capacity.View{Pools: []*capacity.Pool{benchPool()}, Demand: manyDemand(b, 20, 1000, withSpread(capacity.LabelZone))}
	for i := range 5000 {
		n := testNode(fmt.Sprintf("node-%d", i), testZones[i%3], 0, 0)
		for j := range 10 {
			n.Pods = append(n.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{"app": fmt.Sprintf("app-%d", (i+j)%40)}}})
		}
		v.Nodes = append(v.Nodes, n)
	}
	benchmarkPlan(b, v, capacity.Options{})
}

func BenchmarkPlanSpread1000OnFreeNodes(b *testing.B) {
	v := &capacity.View{Pools: []*capacity.Pool{benchPool()}, Demand: manyDemand(b, 20, 1000, withSpread(capacity.LabelZone))}
	for i := range 2000 {
		v.Nodes = append(v.Nodes, testNode(fmt.Sprintf("node-%d", i), testZones[i%3], 8, 16))
	}
	benchmarkPlan(b, v, capacity.Options{})
}

func BenchmarkPlanAntiAffine1000(b *testing.B) {
	benchmarkPlan(b, &capacity.View{Pools: []*capacity.Pool{benchPool()}, Demand: manyDemand(b, 20, 1000, func(p *corev1.Pod) { away(p.Labels["app"], capacity.LabelHostname)(p) })}, capacity.Options{})
}

func BenchmarkPlanHostSpread1000(b *testing.B) {
	v := &capacity.View{Pools: []*capacity.Pool{benchPool()}, Demand: manyDemand(b, 20, 1000, withSpread(capacity.LabelHostname))}
	for i := range 2000 {
		v.Nodes = append(v.Nodes, testNode(fmt.Sprintf("node-%d", i), testZones[i%3], int64(i%2)*8, 16))
	}
	benchmarkPlan(b, v, capacity.Options{})
}

// The least that a plan costs: one pod, five pools, the whole catalog.
func BenchmarkPlanOnePodFivePools(b *testing.B) {
	types := manyTypes()
	v := &capacity.View{Demand: []capacity.Demand{demandOf(b, 1, asking("web", "cpu=1 memory=1Gi"))}}
	for i := range 5 {
		p := benchPool()
		p.Name, p.Types, p.Weight = fmt.Sprintf("pool-%d", i), types, int32(-i)
		v.Pools = append(v.Pools, p)
	}
	daemon := mustClass(b, asking("agent", "cpu=100m memory=100Mi"))
	v.DaemonSets = []*capacity.DaemonSet{{Namespace: "kube-system", Name: "agent", Class: daemon}}
	planner := New()
	b.ReportAllocs()
	for b.Loop() {
		planner.Plan(v, capacity.Options{})
	}
}
