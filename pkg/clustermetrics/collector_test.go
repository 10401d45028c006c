package clustermetrics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	facts "github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// world is a cluster in memory.
type world struct {
	*Source
	nodes, pods cache.Indexer
	clock       *clocktesting.FakeClock
	pools       poolList
	claims      []*capacity.Claim
	types       []*capacity.InstanceType
	problem     error
	waiting     ledger.Summary
}

// poolList lists NodePools.
type poolList struct {
	client.Reader
	items []karpv1.NodePool
}

func (l *poolList) List(_ context.Context, out client.ObjectList, _ ...client.ListOption) error {
	out.(*karpv1.NodePoolList).Items = l.items
	return nil
}

func newWorld() *world {
	w := &world{nodes: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), pods: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		clock: clocktesting.NewFakeClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))}
	w.Source = &Source{
		Clock: w.clock, Nodes: corelisters.NewNodeLister(w.nodes), Pods: corelisters.NewPodLister(w.pods), Objects: &w.pools,
		Claims: func() []*capacity.Claim { return w.claims },
		Pools: func() []*capacity.Pool {
			return []*capacity.Pool{{Name: "first", Types: w.types}, {Name: "second", Types: w.types}}
		},
		Cost:    func([]*capacity.Claim) map[string]float64 { return map[string]float64{"default": 1.5} },
		Problem: func() error { return w.problem }, Ledger: func() ledger.Summary { return w.waiting },
	}
	return w
}

func (w *world) node(name string, labels map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(w.clock.Now().Add(-time.Minute))},
		Status: corev1.NodeStatus{Capacity: list2("4", "16Gi"), Allocatable: list2("3500m", "15Gi")}}
	_ = w.nodes.Add(n)
	return n
}

func (w *world) pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", CreationTimestamp: metav1.NewTime(w.clock.Now().Add(-10 * time.Second))},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list2("500m", "1Gi"), Limits: list2("1", "2Gi")}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for _, f := range change {
		f(p)
	}
	_ = w.pods.Add(p)
	return p
}

func list2(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func ofDaemonSet(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent"}}
}

// Of several Dovetails each exports its own nodes as managed, and the pods there, and each pool's lower bound is about its own nodes.
func TestNodesOfAnotherDovetail(t *testing.T) {
	w := newWorld()
	w.NodeClass.ManagedBy = "red"
	for _, by := range []string{"red", "blue"} {
		w.node(by, map[string]string{karpv1.NodePoolLabelKey: "first", facts.LabelManagedBy: by})
		w.pod("on-"+by, by)
	}
	var managed []string
	for _, line := range text(t, &state{source: w.Source}, "karpenter_nodes_current_lifetime", "karpenter_pods_state") {
		if strings.Contains(line, `managed="true"`) {
			managed = append(managed, line)
		}
	}
	want(t, managed,
		`karpenter_nodes_current_lifetime_seconds{managed="true",node_name="red",nodepool="first"} 60`,
		`karpenter_pods_state{managed="true",name="on-red",namespace="shop",node="red",nodepool="first",phase="Pending",ready="false",scheduled="true"} 1`,
	)
	if got, err := demands(w.Source); err != nil || got["first"].cpu != 500 {
		t.Errorf("the pods of the pool's nodes request %v thousandths of a CPU, %v; want 500", got["first"].cpu, err)
	}
}

// text returns series as Prometheus writes them, sorted, of the metrics that begin with one of the prefixes.
func text(t *testing.T, s *state, prefixes ...string) []string {
	t.Helper()
	var out []string
	for _, m := range s.collect() {
		name := m.(*series).of.name()
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		var read dto.Metric
		if err := m.Write(&read); err != nil {
			t.Fatal(err)
		}
		var labels []string
		for _, l := range read.Label {
			labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
		if !slices.IsSorted(labels) {
			t.Errorf("labels of %s are not sorted: %q", name, labels)
		}
		out = append(out, fmt.Sprintf("%s{%s} %v", name, strings.Join(labels, ","), read.Gauge.GetValue()))
	}
	slices.Sort(out)
	return out
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

func TestNodesAndPods(t *testing.T) {
	w := newWorld()
	w.node("a", map[string]string{karpv1.NodePoolLabelKey: "default", corev1.LabelTopologyZone: "us-west-2a", corev1.LabelArchStable: "amd64",
		corev1.LabelInstanceTypeStable: "m5.xlarge", karpv1.CapacityTypeLabelKey: "spot", "app": "no label of the series"})
	w.node("other", nil)
	w.pod("web", "a", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1"}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	})
	w.pod("agent", "a", ofDaemonSet)
	w.pod("done", "a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }) // requests nothing any more
	w.pod("waits", "")
	s := &state{source: w.Source}

	const a = `arch="amd64",capacity_type="spot",instance_type="m5.xlarge",managed="true",node_name="a",nodepool="default"`
	got := text(t, s, "karpenter_nodes_")
	var ofA []string
	for _, line := range got {
		if strings.Contains(line, `node_name="a"`) {
			ofA = append(ofA, strings.Replace(line, a, "A", 1))
		}
	}
	want(t, ofA,
		`karpenter_nodes_allocatable{A,resource_type="cpu",zone="us-west-2a"} 3.5`,
		`karpenter_nodes_allocatable{A,resource_type="memory",zone="us-west-2a"} 1.610612736e+10`,
		`karpenter_nodes_current_lifetime_seconds{A,zone="us-west-2a"} 60`,
		`karpenter_nodes_system_overhead{A,resource_type="cpu",zone="us-west-2a"} 0.5`,
		`karpenter_nodes_system_overhead{A,resource_type="memory",zone="us-west-2a"} 1.073741824e+09`,
		`karpenter_nodes_total_daemon_limits{A,resource_type="cpu",zone="us-west-2a"} 1`,
		`karpenter_nodes_total_daemon_limits{A,resource_type="memory",zone="us-west-2a"} 2.147483648e+09`,
		`karpenter_nodes_total_daemon_limits{A,resource_type="pods",zone="us-west-2a"} 1`,
		`karpenter_nodes_total_daemon_requests{A,resource_type="cpu",zone="us-west-2a"} 0.5`,
		`karpenter_nodes_total_daemon_requests{A,resource_type="memory",zone="us-west-2a"} 1.073741824e+09`,
		`karpenter_nodes_total_daemon_requests{A,resource_type="pods",zone="us-west-2a"} 1`,
		`karpenter_nodes_total_pod_limits{A,resource_type="cpu",zone="us-west-2a"} 2`,
		`karpenter_nodes_total_pod_limits{A,resource_type="memory",zone="us-west-2a"} 4.294967296e+09`,
		`karpenter_nodes_total_pod_limits{A,resource_type="pods",zone="us-west-2a"} 2`,
		`karpenter_nodes_total_pod_requests{A,resource_type="cpu",zone="us-west-2a"} 1`,
		`karpenter_nodes_total_pod_requests{A,resource_type="memory",zone="us-west-2a"} 2.147483648e+09`,
		`karpenter_nodes_total_pod_requests{A,resource_type="pods",zone="us-west-2a"} 2`,
	)
	want(t, text(t, s, "karpenter_pods_"),
		`karpenter_pods_state{arch="amd64",capacity_type="spot",instance_type="m5.xlarge",managed="true",name="agent",namespace="shop",node="a",nodepool="default",owner="/apis/apps/v1/namespaces/shop/daemonsets/agent",phase="Pending",ready="false",scheduled="true",zone="us-west-2a"} 1`,
		`karpenter_pods_state{arch="amd64",capacity_type="spot",instance_type="m5.xlarge",managed="true",name="done",namespace="shop",node="a",nodepool="default",phase="Succeeded",ready="false",scheduled="true",zone="us-west-2a"} 1`,
		`karpenter_pods_state{arch="amd64",capacity_type="spot",instance_type="m5.xlarge",managed="true",name="web",namespace="shop",node="a",nodepool="default",owner="/apis/apps/v1/namespaces/shop/replicasets/web-1",phase="Running",ready="true",scheduled="true",zone="us-west-2a"} 1`,
		`karpenter_pods_state{managed="false",name="waits",namespace="shop",phase="Pending",ready="false",scheduled="false"} 1`,
		`karpenter_pods_unbound_time_seconds{name="waits",namespace="shop"} 10`,
		`karpenter_pods_unstarted_time_seconds{name="agent",namespace="shop"} 10`,
		`karpenter_pods_unstarted_time_seconds{name="waits",namespace="shop"} 10`,
	)
	want(t, text(t, s, "karpenter_cluster_utilization"),
		`karpenter_cluster_utilization_percent{resource_type="cpu"} 14.285714285714286`,
		`karpenter_cluster_utilization_percent{resource_type="memory"} 6.666666666666667`,
	)
	if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, `managed="false",node_name="other"`) }) {
		t.Errorf("a node of no pool has no series: %q", got)
	}
}

func TestPoolsAndOfferings(t *testing.T) {
	w := newWorld()
	w.pools.items = []karpv1.NodePool{{ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:   karpv1.NodePoolSpec{Limits: karpv1.Limits(list2("100", "400Gi"))},
		Status: karpv1.NodePoolStatus{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7500m"), "nodes": resource.MustParse("2"), corev1.ResourceEphemeralStorage: resource.MustParse("20Gi")}}}}
	w.types = []*capacity.InstanceType{{Name: "m5.xlarge", Capacity: capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 16 << 30}, Offers: []capacity.Offer{
		{Zone: "a", CapacityType: "spot", Price: 0.07, Available: true}, {Zone: "a", CapacityType: "on-demand", Price: 0.192},
		{Zone: "a", CapacityType: "on-demand", Price: 0.3, Tenancy: "dedicated", Available: true}, {Zone: "b", CapacityType: "spot", Price: math.Inf(1)}}}}
	s := &state{source: w.Source}
	want(t, text(t, s, "karpenter_nodepools_", "karpenter_cloudprovider_"),
		`karpenter_cloudprovider_instance_type_cpu_cores{instance_type="m5.xlarge"} 4`,
		`karpenter_cloudprovider_instance_type_memory_bytes{instance_type="m5.xlarge"} 1.7179869184e+10`,
		`karpenter_cloudprovider_instance_type_offering_available{capacity_type="on-demand",instance_type="m5.xlarge",zone="a"} 0`,
		`karpenter_cloudprovider_instance_type_offering_available{capacity_type="spot",instance_type="m5.xlarge",zone="a"} 1`,
		`karpenter_cloudprovider_instance_type_offering_available{capacity_type="spot",instance_type="m5.xlarge",zone="b"} 0`,
		`karpenter_cloudprovider_instance_type_offering_price_estimate{capacity_type="on-demand",instance_type="m5.xlarge",zone="a"} 0.192`,
		`karpenter_cloudprovider_instance_type_offering_price_estimate{capacity_type="spot",instance_type="m5.xlarge",zone="a"} 0.07`,
		`karpenter_nodepools_cost_total{nodepool="default"} 1.5`,
		`karpenter_nodepools_limit{nodepool="default",resource_type="cpu"} 100`,
		`karpenter_nodepools_limit{nodepool="default",resource_type="memory"} 4.294967296e+11`,
		`karpenter_nodepools_usage{nodepool="default",resource_type="cpu"} 7.5`,
		`karpenter_nodepools_usage{nodepool="default",resource_type="ephemeral_storage"} 2.147483648e+10`,
		`karpenter_nodepools_usage{nodepool="default",resource_type="nodes"} 2`,
	)
}

func TestStateOfTheCluster(t *testing.T) {
	w := newWorld()
	w.node("a", nil)
	w.claims = []*capacity.Claim{{Pool: "p", NodeName: "a", Launched: true, Registered: true}, {Pool: "p", Launched: true}, {Pool: "p"}, {Pool: "p", Deleting: true},
		{Pool: "q", NodeName: "gone", Launched: true, Registered: true, Initialized: true}}
	w.waiting = ledger.Summary{Pods: map[string]int{"queued": 3, "refused": 2, "planned": 7}}
	w.problem = errors.New("NodeClaims can't be read")
	s := &state{source: w.Source, since: w.clock.Now()}
	w.clock.Step(30 * time.Second)
	want(t, text(t, s, "karpenter_cluster_state", "karpenter_scheduler", "dovetail_pods", "dovetail_nodes"),
		`dovetail_nodes_in_flight{nodepool="p",state="booting"} 1`,
		`dovetail_nodes_in_flight{nodepool="p",state="initializing"} 1`,
		`dovetail_nodes_in_flight{nodepool="p",state="launching"} 1`,
		`dovetail_nodes_in_flight{nodepool="q",state="booting"} 0`,
		`dovetail_nodes_in_flight{nodepool="q",state="initializing"} 0`,
		`dovetail_nodes_in_flight{nodepool="q",state="launching"} 0`,
		`dovetail_pods{state="assumed"} 0`, `dovetail_pods{state="open"} 0`, `dovetail_pods{state="planned"} 7`, `dovetail_pods{state="queued"} 3`, `dovetail_pods{state="refused"} 2`,
		`karpenter_cluster_state_node_count{} 3`, `karpenter_cluster_state_synced{} 0`, `karpenter_cluster_state_unsynced_time_seconds{} 30`,
		`karpenter_scheduler_queue_depth{controller="provisioner"} 3`, `karpenter_scheduler_unschedulable_pods_count{controller="provisioner"} 2`,
	)
	w.problem = nil
	w.clock.Step(time.Minute)
	want(t, text(t, s, "karpenter_cluster_state_s", "karpenter_cluster_state_u"), `karpenter_cluster_state_synced{} 1`, `karpenter_cluster_state_unsynced_time_seconds{} 0`)
}

// The series of an object end with it, and scrapes that follow each other closely share a computation.
func TestSeriesEnd(t *testing.T) {
	w := newWorld()
	n := w.node("a", nil)
	p := w.pod("web", "a")
	s := &state{source: w.Source}
	if len(text(t, s, "karpenter_nodes_allocatable", "karpenter_pods_state")) != 3 {
		t.Fatal("no series of the node and its pod")
	}
	_ = w.nodes.Delete(n)
	_ = w.pods.Delete(p)
	if got := text(t, s, "karpenter_nodes_", "karpenter_pods_"); len(got) == 0 {
		t.Error("two scrapes at the same time computed everything twice")
	}
	w.clock.Step(Freshness)
	want(t, text(t, s, "karpenter_nodes_", "karpenter_pods_"), nil...)
}

func TestObjectless(t *testing.T) {
	w := newWorld()
	w.Objectless = true
	w.node("a", nil)
	w.pod("web", "a")
	s := &state{source: w.Source}
	want(t, text(t, s, "karpenter_nodes_", "karpenter_pods_"), nil...)
	if got := text(t, s, "karpenter_cluster_utilization"); len(got) != 2 {
		t.Errorf("sums are missing, too: %q", got)
	}
}

// Only a process that leads exports the cluster's state; the registry accepts all of it.
func TestOnlyTheLeaderExports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.node("a", map[string]string{karpv1.NodePoolLabelKey: "default"})
		w.pod("web", "a")
		w.pod("web-2", "")
		w.types = []*capacity.InstanceType{{Name: "m5.large", Offers: []capacity.Offer{{Zone: "a", CapacityType: "spot", Price: 1}}}}
		exported := func() (n int) {
			families, err := legacyregistry.DefaultGatherer.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if slices.ContainsFunc(gauges, func(g *gauge) bool { return g.name() == f.GetName() }) {
					n++
				}
			}
			return n
		}
		if n := exported(); n != 0 {
			t.Errorf("a replica that doesn't lead exports %d metrics of the cluster's state", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go Serve(ctx, w.Source)
		synctest.Wait()
		if n := exported(); n < 20 {
			t.Errorf("the leader exports only %d metrics of the cluster's state", n)
		}
		cancel()
		synctest.Wait()
		if n := exported(); n != 0 {
			t.Errorf("a replica that has led exports %d metrics of the cluster's state", n)
		}
	})
}

func BenchmarkScrape(b *testing.B) {
	w := newObservedWorld(b)
	for i := range 2000 {
		n := w.node(fmt.Sprintf("node-%d", i), map[string]string{karpv1.NodePoolLabelKey: "default", corev1.LabelTopologyZone: "us-west-2a", corev1.LabelArchStable: "amd64",
			corev1.LabelInstanceTypeStable: "m5.xlarge", karpv1.CapacityTypeLabelKey: "spot", corev1.LabelTopologyRegion: "us-west-2", corev1.LabelOSStable: "linux"})
		c := w.claim("default", "True", "Is", 0)
		c.Name, c.Status.Conditions = n.Name, slices.Repeat(c.Status.Conditions, 8)
		for range 4 { // as the kubelet posts
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Pressure", Status: "False", Reason: "None", LastTransitionTime: w.at(0)})
		}
		w.claims.put(c)
		w.observed.put(n)
		for j := range 10 {
			w.pod(fmt.Sprintf("pod-%d-%d", i, j), fmt.Sprintf("node-%d", i))
		}
	}
	s := &state{source: w.Source}
	b.ReportAllocs()
	for b.Loop() {
		w.clock.Step(Freshness)
		s.collect()
	}
	b.ReportMetric(float64(len(s.latest)), "series")
}
