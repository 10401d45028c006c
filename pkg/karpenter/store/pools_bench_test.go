package store

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
)

const (
	benchPools  = 200
	benchClaims = 10_000
)

// bigStore returns a store with 200 pools of one class and 10,000 launched claims, and the class's instance types: 60 types in three
// zones, on demand and spot.
func bigStore(b *testing.B, overlays int) (*Store, func(string) ([]*capacity.InstanceType, error)) {
	s, err := newStore(newFakeAPI(), nodeclass.Kind, noSources(), events.NewFakeRecorder(1), testingclock.NewFakeClock(start))
	if err != nil {
		b.Fatal(err)
	}
	if err := s.classes.GetStore().Add(readyClass("default")); err != nil {
		b.Fatal(err)
	}
	for i := range benchPools {
		s.poolChanged(nil, benchPool(i, 0))
	}
	for i := range benchClaims {
		s.keep(benchClaim(i, 0))
	}
	for i := range overlays {
		o := testOverlay(fmt.Sprint("o", i), []string{fmt.Sprintf("karpenter.k8s.aws/instance-family In f%d", i), "karpenter.sh/capacity-type In spot"}, adjusted("-10%"))
		s.overlaid.Put(o.Name, o)
	}
	var types []*capacity.InstanceType
	for i := range 60 {
		cpu := int64(2 << (i % 5))
		t := &capacity.InstanceType{
			Name: fmt.Sprintf("f%d.%d", i/5, cpu), Labels: map[string]string{
				corev1.LabelInstanceTypeStable: fmt.Sprintf("f%d.%d", i/5, cpu), corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
				"karpenter.k8s.aws/instance-family": fmt.Sprintf("f%d", i/5), "karpenter.k8s.aws/instance-cpu": fmt.Sprint(cpu),
			},
			Capacity:    capacity.Resources{"cpu": cpu * 1000, "memory": cpu << (31 + i%3), "pods": 58},
			Allocatable: capacity.Resources{"cpu": cpu*1000 - 80, "memory": cpu<<(31+i%3) - 600<<20, "pods": 58},
		}
		for _, zone := range []string{"a", "b", "c"} {
			price := float64(cpu) * (0.03 + 0.001*float64(i))
			t.Offers = append(t.Offers, capacity.Offer{Zone: zone, CapacityType: "on-demand", Price: price, Available: true}, capacity.Offer{Zone: zone, CapacityType: "spot", Price: price / 3, Available: true})
		}
		types = append(types, t)
	}
	return s, func(string) ([]*capacity.InstanceType, error) { return types, nil }
}

func benchPool(i, version int) *karpv1.NodePool {
	return testPool(fmt.Sprintf("pool-%03d", i), func(np *karpv1.NodePool) {
		np.Generation = int64(1 + version)
		np.Spec.Template.Labels = map[string]string{"team": fmt.Sprint("team-", i)}
		np.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "team", Value: fmt.Sprint("team-", i), Effect: corev1.TaintEffectNoSchedule}}
		np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: "In", Values: []string{"amd64"}}}
		np.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: *resource.NewQuantity(int64(10_000+version), resource.DecimalSI)}
	})
}

func benchClaim(i, version int) *karpv1.NodeClaim {
	nc := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint("claim-", i), UID: types.UID(fmt.Sprint("uid-", i)), ResourceVersion: fmt.Sprint(1 + version),
		Labels: map[string]string{karpv1.NodePoolLabelKey: fmt.Sprintf("pool-%03d", i%benchPools)},
	}}
	nc.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(4+version%2), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("16Gi")}
	nc.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	return nc
}

// spent returns the CPU time of this process: on a busy machine, elapsed time says little.
func spent(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkPools measures Pools for 200 pools after one change: of what a claim takes, or of a pool's limits.
func BenchmarkPools(b *testing.B) {
	for _, overlays := range []int{0, 12} {
		b.Run(fmt.Sprintf("overlays=%d/use", overlays), func(b *testing.B) {
			s, types := bigStore(b, overlays)
			version, began := 0, spent(b)
			for b.Loop() {
				version++
				s.keep(benchClaim(version%benchClaims, version))
				s.Pools(types)
			}
			b.ReportMetric(float64((spent(b)-began).Nanoseconds())/float64(b.N)/1000, "cpu-us/op")
		})
		b.Run(fmt.Sprintf("overlays=%d/limits", overlays), func(b *testing.B) {
			s, types := bigStore(b, overlays)
			version, began := 0, spent(b)
			for b.Loop() {
				version++
				s.poolChanged(nil, benchPool(version%benchPools, version))
				s.Pools(types)
			}
			b.ReportMetric(float64((spent(b)-began).Nanoseconds())/float64(b.N)/1000, "cpu-us/op")
		})
	}
}

// BenchmarkPlanOfManyPools measures a plan for 200 teams with a pool each, five pods per team, after 50 changes of limits and 50 of
// use, with one call of Pools. The share is the part of the CPU time that Pools and processing the changes take.
func BenchmarkPlanOfManyPools(b *testing.B) {
	s, kinds := bigStore(b, 12)
	var demand []capacity.Demand
	for i := range benchPools {
		team := fmt.Sprint("team-", i)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: team}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"team": team},
			Tolerations:  []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpEqual, Value: team}},
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi")}}}},
		}}
		class, err := capacity.ClassOf(pod, capacity.VolumeInfo{})
		if err != nil {
			b.Fatal(err)
		}
		d := capacity.Demand{Class: class}
		for j := range 5 {
			d.Pods = append(d.Pods, capacity.PodRef{UID: types.UID(fmt.Sprintf("%s-%d", team, j))})
		}
		demand = append(demand, d)
	}
	p := planner.New()
	var changes, looks, plans time.Duration
	version, updates := 0, 0
	for b.Loop() {
		began := spent(b)
		for range 50 {
			version++
			s.poolChanged(nil, benchPool(version%benchPools, version))
			s.keep(benchClaim(version%benchClaims, version))
			updates += 2
		}
		changed := spent(b)
		pools := s.Pools(kinds)
		looked := spent(b)
		plan := p.Plan(&capacity.View{Pools: pools, Demand: demand}, capacity.Options{})
		done := spent(b)
		if len(plan.Placements) != 5*benchPools {
			b.Fatalf("%d placements, refused: %v", len(plan.Placements), plan.Refused[0].Message)
		}
		changes, looks, plans = changes+changed-began, looks+looked-changed, plans+done-looked
	}
	all := changes + looks + plans
	b.ReportMetric(float64(changes.Nanoseconds())/float64(updates)/1000, "cpu-us/update")
	b.ReportMetric(float64(looks.Nanoseconds())/float64(b.N)/1000, "cpu-us/pools")
	b.ReportMetric(float64(plans.Nanoseconds())/float64(b.N)/1e6, "cpu-ms/plan")
	b.ReportMetric(100*float64(looks)/float64(all), "%pools")
	b.ReportMetric(100*float64(changes)/float64(all), "%updates")
}
