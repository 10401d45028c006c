package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// dice makes random worlds.
type dice struct{ *rand.Rand }

func (d dice) one(in int) bool { return d.IntN(in) == 0 }

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

// world returns a random view: small, so that constraints often interact.
func (d dice) world(t testing.TB) *capacity.View {
	v := &capacity.View{}
	types := testTypes()
	for _, typ := range types {
		for i := range typ.Offers {
			o := &typ.Offers[i]
			o.Available = !d.one(8)
			o.Price *= 0.8 + 0.4*d.Float64()
		}
		if d.one(3) {
			typ.VolumeLimits = map[string]int64{"ebs": int64(1 + d.IntN(6))}
		}
		if d.one(12) {
			typ.Offers = append(typ.Offers, capacity.Offer{Zone: pick(d, testZones...), CapacityType: capacity.CapacityTypeReserved, Price: 1e-7, Available: true, ReservationID: "cr-" + typ.Name, Remaining: d.IntN(3)})
		}
	}
	for i := range 1 + d.IntN(3) {
		v.Pools = append(v.Pools, d.pool(fmt.Sprintf("pool-%d", i), int32(10*(3-i)), types))
	}
	apps := []string{"web", "db", "api", "job"}
	for i := range d.IntN(6) {
		v.Nodes = append(v.Nodes, d.node(fmt.Sprintf("node-%d", i), apps))
	}
	for i := range 1 + d.IntN(6) {
		app := apps[i%len(apps)]
		pod := asking(app, pick(d, "cpu=100m", "cpu=1", "cpu=1500m memory=2Gi", "cpu=3 memory=1Gi", "memory=9Gi", "cpu=500m memory=40Gi", "cpu=40"), d.shape(apps)...)
		pod.Name = fmt.Sprintf("%s%d", app, i)
		class, err := capacity.ClassOf(pod, d.volumes())
		if err != nil {
			continue
		}
		dem := demandOf(t, 1+d.IntN(12), pod)
		dem.Class = class
		if d.one(8) {
			dem.Gang = &capacity.Gang{Key: pick(d, "g1", "g2"), Missing: 1 + d.IntN(12)}
		}
		if d.one(10) {
			dem.Owner, dem.Ahead, dem.Pods = "owner", len(dem.Pods), nil
		}
		v.Demand = append(v.Demand, dem)
	}
	if d.one(3) {
		daemon := asking(pick(d, "agent", "agent", "db"), pick(d, "cpu=50m", "cpu=300m memory=200Mi"))
		if d.one(5) {
			away(pick(d, apps...), pick(d, capacity.LabelHostname, capacity.LabelZone))(daemon)
		}
		if d.one(2) {
			on(pick(d, corev1.LabelArchStable, "karpenter.k8s.aws/instance-family"), pick(d, "amd64", "c", "m"))(daemon)
		}
		if d.one(3) {
			hostPortOf(80)(daemon)
		}
		v.DaemonSets = append(v.DaemonSets, &capacity.DaemonSet{Namespace: "ns", Name: "agent", Class: mustClass(t, daemon)})
	}
	v.Namespaces = func(ns string) labels.Set { return labels.Set{"team": "t-" + ns} }
	if d.one(2) {
		for _, typ := range types {
			typ.Special = d.one(4)
		}
	}
	return v
}

func (d dice) pool(name string, weight int32, types []*capacity.InstanceType) *capacity.Pool {
	p := &capacity.Pool{Name: name, Weight: weight, Labels: map[string]string{"karpenter.sh/nodepool": name}, Types: types}
	if d.one(3) {
		p.Requirements = p.Requirements.And(capacity.ValueIn(capacity.LabelCapacityType, pick(d, "on-demand", "spot")))
	}
	if d.one(3) {
		p.Requirements = p.Requirements.And(capacity.ValueIn(capacity.LabelZone, pick(d, "a", "b"), "c"))
	}
	if d.one(4) {
		p.Labels["team"] = "blue"
	} else if d.one(3) {
		p.Requirements = p.Requirements.And(capacity.ValueIn("team", "blue", "red"))
	}
	if d.one(4) {
		p.Taints = append(p.Taints, corev1.Taint{Key: "special", Effect: pick(d, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)})
	}
	if d.one(4) {
		p.Limits = capacity.Resources{"cpu": int64(1000 * d.IntN(60)), capacity.ResourceNodes: int64(d.IntN(10))}
		p.Used = capacity.Resources{"cpu": int64(1000 * d.IntN(5))}
	}
	if d.one(5) {
		r, _ := capacity.NewRequirement("karpenter.k8s.aws/instance-family", capacity.Exists)
		r.MinValues = 1 + d.IntN(3)
		p.Requirements = p.Requirements.And(r)
	}
	if d.one(10) {
		p.Unready = "not today"
	}
	return p
}

func (d dice) node(name string, apps []string) *capacity.Node {
	n := testNode(name, pick(d, "a", "b", "c", "z"), int64(d.IntN(5)), int64(d.IntN(10)))
	n.Unschedulable, n.InFlight = d.one(8), d.one(3)
	if d.one(8) {
		delete(n.Labels, capacity.LabelZone)
	}
	if d.one(4) {
		n.Labels["team"] = pick(d, "blue", "red")
	}
	if d.one(8) {
		n.Taints = append(n.Taints, corev1.Taint{Key: "special", Effect: pick(d, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)})
	}
	if d.one(3) {
		n.VolumesFree = map[string]int64{"ebs": int64(d.IntN(3))}
	}
	for range d.IntN(4) {
		p := running(pick(d, apps...))
		if d.one(4) {
			away(pick(d, apps...), pick(d, capacity.LabelHostname, capacity.LabelZone))(p)
		}
		if d.one(6) {
			hostPortOf(80)(p)
		}
		if d.one(10) {
			now := metav1.Now()
			p.DeletionTimestamp = &now
		}
		n.Pods = append(n.Pods, p)
	}
	return n
}

// shape returns what a random pod requires apart from resources.
func (d dice) shape(apps []string) []func(*corev1.Pod) {
	var out []func(*corev1.Pod)
	if d.one(4) {
		honor, min := corev1.NodeInclusionPolicyHonor, int32(1+d.IntN(3))
		policy, skew, even, least := d.one(3), int32(1+d.IntN(2)), d.one(4), d.one(4)
		out = append(out, withSpread(pick(d, capacity.LabelZone, capacity.LabelZone, capacity.LabelHostname, capacity.LabelCapacityType, "team"), func(s *corev1.TopologySpreadConstraint) {
			s.MaxSkew = skew
			if policy {
				s.NodeTaintsPolicy = &honor
			}
			if even {
				s.WhenUnsatisfiable = corev1.ScheduleAnyway
			} else if least {
				s.MinDomains = &min
			}
		}))
	}
	if d.one(5) {
		out = append(out, away(pick(d, apps...), pick(d, capacity.LabelHostname, capacity.LabelHostname, capacity.LabelZone)))
	}
	if d.one(8) {
		out = append(out, near(pick(d, apps...), pick(d, capacity.LabelHostname, capacity.LabelZone)))
	}
	if d.one(8) {
		out = append(out, on(pick(d, capacity.LabelZone, "team", capacity.LabelCapacityType, "karpenter.k8s.aws/instance-family"), pick(d, "a", "b", "blue", "spot", "c", "m"), pick(d, "c", "red", "on-demand")))
	}
	if d.one(8) {
		out = append(out, preferring(pick(d, capacity.LabelZone, "team"), pick(d, "a", "z", "blue")))
	}
	if d.one(8) {
		out = append(out, hostPortOf(int32(80+d.IntN(2))))
	}
	if d.one(4) {
		out = append(out, func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "special", Operator: corev1.TolerationOpExists}}
		})
	}
	return out
}

func (d dice) volumes() capacity.VolumeInfo {
	var v capacity.VolumeInfo
	if d.one(6) {
		v.Attach = map[string]int64{"ebs": int64(1 + d.IntN(2))}
	}
	if d.one(8) {
		v.Topology = [][]capacity.Requirements{{{capacity.LabelZone: capacity.ValueIn(capacity.LabelZone, pick(d, testZones...))}}}
	}
	return v
}

// hostable returns the least cost of one pod of a class alone on a node of the pool, with fixed labels, and on special hardware only if
// that is allowed; false: no offering can host it.
func hostable(v *capacity.View, p *capacity.Pool, c *capacity.Class, fixed map[string]string, special bool) (float64, bool) {
	best, found := math.Inf(1), false
	if p.Unready != "" {
		return 0, false
	}
	for _, typ := range p.Types {
		for _, o := range typ.Offers {
			if typ.Special && !special && o.CapacityType != capacity.CapacityTypeReserved {
				continue
			}
			if !o.Available || o.CapacityType == capacity.CapacityTypeReserved && o.Remaining == 0 {
				continue
			}
			for _, team := range []string{"", "blue", "red"} {
				l := map[string]string{capacity.LabelHostname: "new", capacity.LabelZone: o.Zone, capacity.LabelCapacityType: o.CapacityType}
				for k, val := range typ.Labels {
					l[k] = val
				}
				for k, val := range p.Labels {
					l[k] = val
				}
				if _, own := p.Labels["team"]; !own && team != "" {
					l["team"] = team
				}
				if _, asked := p.Requirements["team"]; !asked && team != "" && p.Labels["team"] == "" {
					continue
				}
				ok := p.Requirements.Match(l)
				for k, val := range fixed {
					ok = ok && l[k] == val
				}
				if !ok {
					continue
				}
				node := &checked{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new", Labels: l}, Spec: corev1.NodeSpec{Taints: p.Taints}}, free: typ.Allocatable.Clone(), vols: typ.VolumeLimits}
				for _, ds := range v.DaemonSets {
					if match, _ := nodeaffinity.GetRequiredNodeAffinity(ds.Class.Pod).Match(node.node); match && tolerated(ds.Class.Pod, node.node, corev1.TaintEffectNoSchedule) {
						ok = ok && ds.Class.Requests.Fits(node.free)
						node.free.Sub(ds.Class.Requests)
						node.pods = append(node.pods, ds.Class.Pod)
					}
				}
				alone := *c
				bare := c.Pod.DeepCopy()
				bare.Spec.TopologySpreadConstraints = nil
				if bare.Spec.Affinity != nil {
					bare.Spec.Affinity.PodAffinity, bare.Spec.Affinity.PodAntiAffinity = nil, nil
				}
				alone.Pod = bare
				if ok && node.admit(v, &alone, []*checked{node}) == nil {
					best, found = min(best, o.Price), true
				}
			}
		}
	}
	return best, found
}

// onlyWithinNodes reports whether only capacity, labels and rules within one node concern the class.
func onlyWithinNodes(v *capacity.View, c *capacity.Class) bool {
	for _, d := range v.Demand {
		for _, s := range d.Class.Spread {
			if s.TopologyKey != capacity.LabelHostname && s.Selector.Matches(labels.Set(c.Labels)) {
				return false
			}
		}
		for _, ts := range [][]capacity.PodTerm{d.Class.Affinity, d.Class.AntiAffinity} {
			for _, term := range ts {
				if term.TopologyKey != capacity.LabelHostname && term.Selector.Matches(labels.Set(c.Labels)) {
					return false
				}
			}
		}
	}
	for _, s := range c.Spread {
		if s.TopologyKey != capacity.LabelHostname {
			return false
		}
	}
	for _, term := range c.AntiAffinity {
		if term.TopologyKey != capacity.LabelHostname {
			return false
		}
	}
	for _, n := range v.Nodes {
		for _, p := range n.Pods {
			if p.Spec.Affinity != nil && p.Spec.Affinity.PodAntiAffinity != nil {
				return false
			}
		}
	}
	return len(c.Affinity) == 0
}

func checkNotRefusedInVain(v *capacity.View, p *capacity.Plan) error {
	for _, r := range p.Refused {
		if !onlyWithinNodes(v, r.Class) {
			continue
		}
		for _, d := range v.Demand {
			if d.Class == r.Class && d.Gang != nil {
				return nil
			}
		}
		for _, pool := range v.Pools {
			plain := true
			for _, req := range pool.Requirements {
				plain = plain && req.MinValues == 0
			}
			if pool.Limits != nil || !plain {
				continue
			}
			if price, ok := hostable(v, pool, r.Class, nil, true); ok {
				return fmt.Errorf("refused %s, which pool %s could host for %v: %s", r.Class.Pod.Name, pool.Name, price, r.Message)
			}
		}
	}
	return nil
}

// checkCost checks that it would not cost less to give each pod the cheapest node of its own, in the same pool and with the same labels
// that matter.
func checkCost(v *capacity.View, p *capacity.Plan) error {
	cost, alone := 0.0, 0.0
	nodes := map[string]*capacity.PlannedNode{}
	for _, n := range p.Nodes {
		nodes[n.ID] = n
		cost += n.Price
		if n.Pool.Limits != nil {
			return nil // few nodes may cost more than many
		}
		for _, r := range n.Pool.Requirements {
			if r.MinValues > 0 {
				return nil
			}
		}
	}
	for _, pl := range p.Placements {
		n, ok := nodes[pl.Node]
		if len(pl.Class.Affinity)+len(pl.Class.PreferredAffinity) > 0 || len(pl.Class.Spread) > 0 && len(p.Refused) > 0 {
			return nil // it may not be alone, or was planned together with pods that were refused in the end
		}
		if !ok {
			continue
		}
		fixed := map[string]string{capacity.LabelCapacityType: n.CapacityType}
		for _, k := range []string{capacity.LabelZone, "team"} {
			if val, ok := n.Labels[k]; ok {
				fixed[k] = val
			}
		}
		price, ok := hostable(v, n.Pool, pl.Class, fixed, n.Offers[0].Type.Special)
		if !ok {
			return fmt.Errorf("%s is on %s, which can't host it", pl.Pod.Name, n.ID)
		}
		alone += price
	}
	if cost > alone*(1+1e-9) {
		return fmt.Errorf("costs %v, %v with one node per pod", cost, alone)
	}
	return nil
}

func checkWorld(t testing.TB, seed uint64) {
	world := func() *capacity.View { return dice{rand.New(rand.NewPCG(seed, 1))}.world(t) }
	v := world()
	opts := capacity.Options{Effort: int(seed%3) * 1000}
	p := Decide(v, opts)
	for _, err := range []error{check(v, p, opts), checkNotRefusedInVain(v, p), checkCost(v, p)} {
		if err != nil {
			t.Errorf("world %d: %v\n%s", seed, err, summary(p))
		}
	}
	again := Decide(world(), opts)
	checkMemory(t, seed, v, p, opts)
	if diff := cmp.Diff(summary(p), summary(again)); diff != "" {
		t.Errorf("world %d is planned differently again (-first +second):\n%s", seed, diff)
	}
}

// checkMemory checks that a planner makes the same plan after it has made another plan for the same pools.
func checkMemory(t testing.TB, seed uint64, v *capacity.View, p *capacity.Plan, opts capacity.Options) {
	planner := New()
	d := dice{rand.New(rand.NewPCG(seed, 2))}
	before := d.world(t)
	before.Pools = nil
	for _, pool := range v.Pools {
		other := *pool
		switch d.IntN(6) {
		case 0:
			other.Used = capacity.Resources{"cpu": 1e6}
		case 1:
			other.Taints = append([]corev1.Taint{{Key: "more", Effect: corev1.TaintEffectNoSchedule}}, pool.Taints...)
		case 2:
			other.Unready = "not yet"
		case 3:
			other.Types = testTypes()
		}
		before.Pools = append(before.Pools, &other)
	}
	planner.Plan(before, opts)
	for range 2 {
		if diff := cmp.Diff(summary(p), summary(planner.Plan(v, opts))); diff != "" {
			t.Errorf("world %d is planned differently by a planner that has planned before (-fresh +before):\n%s", seed, diff)
		}
	}
}

func TestRandomWorlds(t *testing.T) {
	for seed := range uint64(300) {
		checkWorld(t, seed)
		if t.Failed() {
			return
		}
	}
}
