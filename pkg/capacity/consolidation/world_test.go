package consolidation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

var testZones = []string{"a", "b"}

// testType returns an instance type with so many cores, on demand and, at 40 % of the price, as spot capacity, in each zone.
func testType(name string, cpu, memGi int64, price float64) *capacity.InstanceType {
	family, _, _ := strings.Cut(name, ".")
	t := &capacity.InstanceType{Name: name,
		Labels: map[string]string{corev1.LabelInstanceTypeStable: name, corev1.LabelArchStable: "amd64", "karpenter.k8s.aws/instance-family": family}}
	t.Capacity = capacity.Resources{"cpu": cpu * 1000, "memory": memGi << 30, "pods": 30}
	t.Allocatable = t.Capacity.Clone()
	for _, zone := range testZones {
		t.Offers = append(t.Offers, capacity.Offer{Zone: zone, CapacityType: "on-demand", Price: price, Available: true},
			capacity.Offer{Zone: zone, CapacityType: "spot", Price: price * 0.4, Available: true})
	}
	return t
}

// testTypes returns families with 2, 4 and 8 GiB per core, in four sizes.
func testTypes() []*capacity.InstanceType {
	var out []*capacity.InstanceType
	for _, f := range []struct {
		name  string
		gi    int64
		price float64
	}{{"c", 2, .04}, {"m", 4, .05}, {"r", 8, .065}} {
		for _, cpu := range []int64{2, 4, 8, 16} {
			out = append(out, testType(fmt.Sprintf("%s.%d", f.name, cpu), cpu, cpu*f.gi, float64(cpu)*f.price))
		}
	}
	return out
}

// testPool returns a pool of one capacity type.
func testPool(name, capacityType string, types []*capacity.InstanceType) *capacity.Pool {
	return &capacity.Pool{Name: name, Labels: map[string]string{"karpenter.sh/nodepool": name}, Types: types,
		Requirements: capacity.Requirements{}.And(capacity.ValueIn(capacity.LabelCapacityType, capacityType))}
}

// testPod returns a pod of an app that requests milli-CPU and MiB.
func testPod(app string, cpu, mib int64, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(mib<<20, resource.BinarySI)}}}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func classOf(t testing.TB, p *corev1.Pod) *capacity.Class {
	t.Helper()
	class, err := capacity.ClassOf(p, capacity.VolumeInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return class
}

// world is the input of a pass, with what makes it up.
type world struct {
	t          testing.TB
	view       *capacity.View
	candidates []Candidate
	options    *Options
	serial     int
}

func newWorld(t testing.TB, pools ...*capacity.Pool) *world {
	w := &world{t: t, view: &capacity.View{Pools: pools}, options: &Options{Now: noon, Pools: map[string]Policy{}, Accrual: &Accrual{}, Boot: time.Minute}}
	for _, p := range pools {
		policy := DefaultPolicy()
		policy.Budgets = map[Reason]int{Empty: 100, Underutilized: 100, Drifted: 100}
		w.options.Pools[p.Name] = policy
	}
	return w
}

// free makes moves cost nothing.
func (w *world) free() *world {
	for name, p := range w.options.Pools {
		p.RestartCost = 0
		w.options.Pools[name] = p
	}
	return w
}

// node adds a node of a pool's type that is two hours old.
func (w *world) node(pool *capacity.Pool, typ, zone string) *Candidate {
	i := slices.IndexFunc(pool.Types, func(t *capacity.InstanceType) bool { return t.Name == typ })
	t := pool.Types[i]
	ct, _ := pool.Requirements[capacity.LabelCapacityType].Single()
	o := t.Offers[slices.IndexFunc(t.Offers, func(o capacity.Offer) bool { return o.Zone == zone && o.CapacityType == ct })]
	name := fmt.Sprintf("node-%d", len(w.view.Nodes))
	n := &capacity.Node{Name: name, Labels: map[string]string{corev1.LabelHostname: name, capacity.LabelZone: zone, capacity.LabelCapacityType: ct},
		Allocatable: t.Allocatable, Free: t.Allocatable.Clone()}
	for _, labels := range []map[string]string{pool.Labels, t.Labels} {
		for k, v := range labels {
			n.Labels[k] = v
		}
	}
	for _, d := range w.view.DaemonSets {
		n.Free.Sub(d.Class.Requests)
	}
	w.view.Nodes = append(w.view.Nodes, n)
	w.candidates = append(w.candidates, Candidate{Node: name, Pool: pool.Name, Price: o.Price, CapacityType: ct, CreatedAt: noon.Add(-2 * time.Hour)})
	return &w.candidates[len(w.candidates)-1]
}

// put puts n pods of a class on the node added last.
func (w *world) put(class *capacity.Class, n int) *world {
	c, v := &w.candidates[len(w.candidates)-1], w.view.Nodes[len(w.view.Nodes)-1]
	for range n {
		w.serial++
		name := fmt.Sprintf("%s-%d", class.Pod.Name, w.serial)
		c.Pods = append(c.Pods, Pod{Ref: capacity.PodRef{UID: types.UID(name), Namespace: "default", Name: name}, Class: class, Cost: 1})
		v.Free.Sub(class.Requests)
	}
	return w
}

// add adds a node with n pods of a class.
func (w *world) add(pool *capacity.Pool, typ string, class *capacity.Class, n int) *world {
	w.node(pool, typ, "a")
	return w.put(class, n)
}

func (w *world) propose() *Proposal {
	w.t.Helper()
	out := New().Propose(w.view, w.candidates, w.options)
	w.check(out)
	return out
}

// pass makes a pass so much later.
func (w *world) pass(after time.Duration) *Proposal {
	w.t.Helper()
	w.options.Now = w.options.Now.Add(after)
	out := w.propose()
	w.options.Accrual.Observe(out.Rates, w.candidates, w.options.Now)
	return out
}

// kept returns why a node is kept.
func (w *world) kept(p *Proposal, node int) Kept {
	w.t.Helper()
	name := w.candidates[node].Node
	for _, k := range p.Kept {
		if k.Node == name {
			return k
		}
	}
	w.t.Fatalf("%s isn't kept: %+v", name, p.Moves)
	return Kept{}
}

// drawn returns a random world: pools of all policies, pods with all kinds of constraints, nodes in all kinds of states.
func drawn(t testing.TB, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	types := testTypes()
	pools := []*capacity.Pool{testPool("one", "on-demand", types), testPool("two", pick(r, "on-demand", "spot"), types)}
	if r.IntN(3) == 0 {
		pools[1].Weight, pools[1].Taints = 10, []corev1.Taint{{Key: "team", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
		slices.Reverse(pools)
	}
	if r.IntN(4) == 0 {
		pools[0].Limits = capacity.Resources{"cpu": int64(r.IntN(200)) * 1000}
	}
	w := newWorld(t, pools...)
	if r.IntN(2) == 0 {
		agent := testPod("agent", 100, 128, func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} })
		w.view.DaemonSets = []*capacity.DaemonSet{{Namespace: "default", Name: "agent", Class: classOf(t, agent)}}
	}
	for _, pool := range pools {
		p := w.options.Pools[pool.Name]
		p.Consolidate = pick(r, WhenEmptyOrUnderutilized, WhenEmptyOrUnderutilized, Balanced, WhenEmpty)
		p.RestartCost = pick(r, 0, 0, time.Minute, 10*time.Minute)
		p.SpotFlexibility = pick(r, 1, 3, 15)
		p.Budgets = map[Reason]int{Empty: r.IntN(4), Underutilized: pick(r, 0, 1, 2, 5, 100), Drifted: r.IntN(3)}
		w.options.Pools[pool.Name] = p
	}
	w.draw(r, pools)
	return w
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// draw fills the world with nodes and pods.
func (w *world) draw(r *rand.Rand, pools []*capacity.Pool) {
	var classes []*capacity.Class
	for i := range 2 + r.IntN(8) {
		classes = append(classes, classOf(w.t, drawnPod(r, fmt.Sprintf("app%d", i))))
	}
	for range 2 + r.IntN(14) {
		pool := pick(r, pools...)
		w.node(pool, pick(r, pool.Types...).Name, pick(r, testZones...))
		n := w.view.Nodes[len(w.view.Nodes)-1]
		n.Taints = pool.Taints
		for range r.IntN(8) {
			class := pick(r, classes...)
			if class.Requests.Fits(n.Free) && capacity.Untolerated(class.Tolerations, n.Taints) == nil && capacity.MatchAny(class.Terms, n.Label) && !w.conflicts(class) {
				w.put(class, 1)
			}
		}
		c := &w.candidates[len(w.candidates)-1]
		for i := range c.Pods {
			c.Pods[i].Cost = pick(r, 1, 1, 1, 2.5, 0, -3)
			if r.IntN(10) == 0 {
				c.Pods[i].Restart = new(time.Duration(r.IntN(100)) * time.Minute)
			}
		}
		switch r.IntN(12) {
		case 0:
			c.Blocked = &Kept{Kind: pick(r, Protected, BlockedByPDB, Unmovable, NotQuiet)}
		case 1:
			c.CreatedAt = noon.Add(-time.Minute)
		case 2:
			c.Price = math.Inf(1)
		case 3:
			c.Forced = pick(r, Drifted, Expired)
		case 4:
			c.ReceivedUntil = noon.Add(24 * time.Hour)
		case 5:
			n.Closed = true
		}
	}
	w.options.Accrual.accounts = map[string]account{}
	for i := range w.candidates { // as after some passes
		w.options.Accrual.accounts[w.candidates[i].Node] = account{pool: w.candidates[i].Pool, saved: r.Float64() * 0.2, at: noon}
	}
}

func drawnPod(r *rand.Rand, app string) *corev1.Pod {
	p := testPod(app, pick[int64](r, 100, 250, 500, 1000, 2000, 3000), pick[int64](r, 128, 512, 2048, 8192))
	same := &metav1.LabelSelector{MatchLabels: p.Labels}
	if r.IntN(3) == 0 {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
	}
	switch r.IntN(10) {
	case 0:
		p.Spec.NodeSelector = map[string]string{capacity.LabelZone: pick(r, testZones...)}
	case 1:
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: pick(r, capacity.LabelZone, capacity.LabelHostname), MaxSkew: 1,
			WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: same}}
	case 2:
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{LabelSelector: same, TopologyKey: capacity.LabelHostname}}}}
	case 3:
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: int32(8000 + r.IntN(2)), ContainerPort: 80}}
	case 4:
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 5, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: capacity.LabelZone, Operator: corev1.NodeSelectorOpIn, Values: []string{pick(r, testZones...)}}}}}}}}
	case 5:
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{LabelSelector: same, TopologyKey: pick(r, capacity.LabelHostname, capacity.LabelZone)}}}}
	}
	return p
}

// conflicts reports whether a pod of the class may not join those on the node added last.
func (w *world) conflicts(class *capacity.Class) bool {
	for _, p := range w.candidates[len(w.candidates)-1].Pods {
		if apart(class, p.Class) {
			return true
		}
	}
	return false
}

// apart reports whether pods of the classes must not share a node.
func apart(a, b *capacity.Class) bool {
	spread := a == b && slices.ContainsFunc(a.Spread, func(s capacity.SpreadConstraint) bool { return s.Hard && s.TopologyKey == capacity.LabelHostname })
	return spread || capacity.Apart(a, b) || capacity.PortsConflict(a.HostPorts, b.HostPorts)
}
