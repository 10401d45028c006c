package offline

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Report is a plan for people and programs: docs/plan.md describes its JSON. Prices are $/h at list price.
type Report struct {
	// Nodes to launch.
	Nodes []Node `json:"nodes"`
	// Existing nodes that get pods.
	Existing []Existing `json:"existing,omitempty"`
	Refused  []Refused  `json:"refused"`
	// Pods is how many were planned for, including refused ones.
	Pods         int     `json:"pods"`
	TotalPerHour float64 `json:"totalPerHour"`
	// Commitments are those of the settings, in the order in which nodes use them.
	Commitments []Commitment `json:"commitments,omitempty"`
	// BeyondCommitmentsPerHour is TotalPerHour without the nodes that commitments pay for. It is there if there are commitments.
	BeyondCommitmentsPerHour *float64 `json:"beyondCommitmentsPerHour,omitempty"`
	// LowerBoundPerHour: no new nodes for the pods that Nodes has cost less; with other pods on existing nodes, less may be enough. 0: not known.
	LowerBoundPerHour float64 `json:"lowerBoundPerHour"`
	PlanMillis        float64 `json:"planMillis"`
	VerifyMillis      float64 `json:"verifyMillis"`
	// Verified: the scheduler's filters have accepted every placement.
	Verified bool     `json:"verified"`
	Warnings []string `json:"warnings,omitempty"`
	// Assumed is what only the AWS account knows and had to be assumed.
	Assumed []string `json:"assumed,omitempty"`
	// Limits are those of all pools together (limits of ProvisionArgs), with what nodes use of them.
	Limits []Limit `json:"limits,omitempty"`
	// Reserved is how many pods of the cluster wait for instances that are being launched for them: nothing is bought for those.
	Reserved int `json:"reserved,omitempty"`
	// Elsewhere are the schedulers of pods of the cluster without a node for which nothing is launched. They aren't planned for.
	Elsewhere []Elsewhere `json:"elsewhere,omitempty"`
	// Without is what was taken away before the plan was made.
	Without *Without `json:"without,omitempty"`
	// ZoneBalance are the pools that balance zones.
	ZoneBalance []ZoneBalance `json:"zoneBalance,omitempty"`
	// Explanation of the pod that was asked about.
	Explanation *Explanation `json:"explanation,omitempty"`

	nodesExist bool // so that other pods could have been placed on them
}

// ZoneBalance is where the nodes of a pool that balances zones are, those to launch included.
type ZoneBalance struct {
	Pool string `json:"pool"`
	// Tolerance is how much dearer a node may be for the sake of even zones, as a fraction.
	Tolerance float64 `json:"tolerance"`
	// Nodes by zone, but for Unknown new ones that may be launched in several.
	Nodes   map[string]int `json:"nodes"`
	Unknown int            `json:"unknown,omitempty"`
}

// zoneBalances returns where the nodes of pools that balance zones are, in order of the pools. Pools without a node are left out.
func zoneBalances(view *capacity.View, plan *capacity.Plan) (out []ZoneBalance) {
	counts := capacity.ZonesOf(view.Nodes, view.Pools)
	for _, n := range plan.Nodes {
		if in := counts[n.Pool.Name]; in != nil {
			in[n.Labels[capacity.LabelZone]]++
		}
	}
	for _, p := range view.Pools {
		if in := counts[p.Name]; len(in) > 0 {
			b := ZoneBalance{Pool: p.Name, Tolerance: *p.ZoneBalance, Nodes: in, Unknown: in[""]}
			delete(in, "")
			out = append(out, b)
		}
	}
	return out
}

// Without is what a plan was made without.
type Without struct {
	Nodes []string `json:"nodes"`
	// PerHour is what these nodes cost, without those whose price isn't known, of which there are Unpriced.
	PerHour  float64 `json:"perHour"`
	Unpriced int     `json:"unpriced,omitempty"`
	// InsteadPerHour is how much more is bought because they are gone.
	InsteadPerHour float64 `json:"insteadPerHour"`
	// Moved is the number of their pods that have to run elsewhere, Lost are those that nothing would create again.
	Moved int       `json:"moved"`
	Lost  []PodName `json:"lost,omitempty"`
	// Refused are pods that fit nowhere because the nodes are gone: their own, and others that would have had a place. Then nothing is saved.
	Refused []Displaced `json:"refused,omitempty"`
	// Against is what keeps the nodes from being taken away, or brings them back, as the cluster's objects say it.
	Against []string `json:"against,omitempty"`
}

// Elsewhere is how many pods without a node another scheduler places.
type Elsewhere struct {
	Scheduler string `json:"scheduler"`
	Pods      int    `json:"pods"`
}

// Displaced is a pod that fits nowhere because a node is gone.
type Displaced struct {
	PodName `json:",inline"`
	// Moved: it ran on one of the nodes; otherwise one of their pods takes its place.
	Moved bool `json:"moved"`
}

// Compare fills in what the nodes that are gone make of the plan: report is the plan without them, now the plan with them. moved are their pods.
func (w *Without) Compare(report, now *Report, moved []PodName) {
	w.InsteadPerHour = round(report.TotalPerHour - now.TotalPerHour)
	before := map[PodName]bool{}
	for i := range now.Refused {
		before[now.Refused[i].pod()] = true
	}
	for i := range report.Refused {
		if pod := report.Refused[i].pod(); !before[pod] {
			w.Refused = append(w.Refused, Displaced{pod, slices.Contains(moved, pod)})
		}
	}
}

// Commitment is how much of a commitment is used, in $/h: by nodes that exist or are being launched, and by the plan's nodes at the price of their
// cheapest offering.
type Commitment struct {
	Name           string  `json:"name"`
	DollarsPerHour float64 `json:"dollarsPerHour"`
	UsedPerHour    float64 `json:"usedPerHour"`
	PlannedPerHour float64 `json:"plannedPerHour"`
}

// Limit is a limit of all pools together.
type Limit struct {
	Resource string `json:"resource"`
	// Used is what nodes have that exist or are being launched, Planned what those of the plan will have, each as the largest of its instance types.
	Used    resource.Quantity `json:"used"`
	Planned resource.Quantity `json:"planned"`
	Limit   resource.Quantity `json:"limit"`
}

// Node is a node to launch.
type Node struct {
	Pool string `json:"pool"`
	// InstanceType and Zone are the cheapest offering for it, and PricePerHour its price.
	InstanceType string  `json:"instanceType"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	PricePerHour float64 `json:"pricePerHour"`
	// Commitment pays for it; empty: none does.
	Commitment string `json:"commitment,omitempty"`
	// Zones it may be launched in: one if a pod depends on it.
	Zones []string `json:"zones"`
	// CPUUse and MemoryUse are the requests of pods and daemons, as a share of the allocatable of InstanceType.
	CPUUse    float64 `json:"cpuUse"`
	MemoryUse float64 `json:"memoryUse"`
	// Alternatives are the other instance types that it may get, cheapest first.
	Alternatives []Alternative `json:"alternatives"`
	Pods         []PodName     `json:"pods"`

	classes []*capacity.Class // of Pods
}

// Alternative is another instance type for a node.
type Alternative struct {
	InstanceType string  `json:"instanceType"`
	PricePerHour float64 `json:"pricePerHour"`
}

// Existing is an existing node that gets pods.
type Existing struct {
	Name string    `json:"name"`
	Pods []PodName `json:"pods"`

	classes []*capacity.Class
}

// PodName names a pod.
type PodName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Refused is a pod for which there is no node.
type Refused struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Reason    string `json:"reason"`
	// Pools are the reasons of each pool that could serve the pod; empty if the pod itself is the reason.
	Pools []PoolReason `json:"pools,omitempty"`
}

func (r *Refused) pod() PodName { return PodName{r.Namespace, r.Name} }

// PoolReason is the first constraint of a pod that nothing in a pool meets.
type PoolReason struct {
	Pool   string `json:"pool"`
	Reason string `json:"reason"`
}

// Explanation is why a pod is placed where it is.
type Explanation struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Lines     []string `json:"lines"`
}

func newReport(view *capacity.View, plan *capacity.Plan, refused []Refused) *Report {
	r := &Report{Nodes: []Node{}, Refused: []Refused{}, TotalPerHour: round(plan.CostPerHour), LowerBoundPerHour: round(plan.LowerBound), ZoneBalance: zoneBalances(view, plan), nodesExist: len(view.Nodes) > 0}
	r.commitments(view.Coverage, plan)
	new, there := map[string]int{}, map[string]int{}
	for _, n := range plan.Nodes {
		new[n.ID] = len(r.Nodes)
		r.Nodes = append(r.Nodes, nodeOf(n))
	}
	for _, n := range view.Nodes {
		there[n.Name] = -1
	}
	for _, pl := range plan.Placements {
		name := PodName{pl.Pod.Namespace, pl.Pod.Name}
		if i, ok := new[pl.Node]; ok {
			r.Nodes[i].Pods, r.Nodes[i].classes = append(r.Nodes[i].Pods, name), append(r.Nodes[i].classes, pl.Class)
			continue
		}
		i := there[pl.Node]
		if i < 0 {
			i = len(r.Existing)
			there[pl.Node] = i
			r.Existing = append(r.Existing, Existing{Name: pl.Node})
		}
		r.Existing[i].Pods, r.Existing[i].classes = append(r.Existing[i].Pods, name), append(r.Existing[i].classes, pl.Class)
	}
	for _, one := range plan.Refused {
		for _, pod := range one.Pods {
			refusal := Refused{Namespace: pod.Namespace, Name: pod.Name, Reason: one.Message}
			for _, why := range one.Reasons {
				refusal.Pools = append(refusal.Pools, PoolReason(why))
			}
			r.Refused = append(r.Refused, refusal)
		}
	}
	r.Refused = append(r.Refused, refused...)
	r.sort()
	r.Pods = len(plan.Placements) + len(r.Refused)
	return r
}

// sort orders the report so that a change of the plan changes few lines, and two reports can be compared. Pods stay in the order in
// which they are bound.
func (r *Report) sort() {
	slices.SortStableFunc(r.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.CapacityType, b.CapacityType), cmp.Compare(a.InstanceType, b.InstanceType),
			slices.Compare(a.Zones, b.Zones), slices.CompareFunc(a.Pods, b.Pods, compareNames))
	})
	slices.SortStableFunc(r.Existing, func(a, b Existing) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(r.Refused, func(a, b Refused) int {
		return compareNames(PodName{a.Namespace, a.Name}, PodName{b.Namespace, b.Name})
	})
}

func compareNames(a, b PodName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func nodeOf(n *capacity.PlannedNode) Node {
	best := n.Offers[0]
	out := Node{
		Pool: n.Pool.Name, InstanceType: best.Type.Name, Zone: best.Offer.Zone, CapacityType: n.CapacityType, PricePerHour: round(n.Price), Commitment: n.Covered.Commitment,
		CPUUse: use(n, best.Type, corev1.ResourceCPU), MemoryUse: use(n, best.Type, corev1.ResourceMemory), Alternatives: []Alternative{},
	}
	seen := map[string]bool{best.Type.Name: true}
	for _, o := range n.Offers {
		if !slices.Contains(out.Zones, o.Offer.Zone) {
			out.Zones = append(out.Zones, o.Offer.Zone)
		}
		if !seen[o.Type.Name] {
			seen[o.Type.Name] = true
			out.Alternatives = append(out.Alternatives, Alternative{o.Type.Name, round(o.Offer.Price)})
		}
	}
	slices.Sort(out.Zones)
	return out
}

// limits adds the limit of all pools; nil: there is none.
func (r *Report) limits(total *capacity.Total, plan *capacity.Plan) {
	if total == nil {
		return
	}
	planned := capacity.Resources{capacity.ResourceNodes: int64(len(plan.Nodes))}
	for _, n := range plan.Nodes {
		planned.Add(n.Largest, 1)
	}
	for _, name := range slices.Sorted(maps.Keys(total.Limits)) {
		quantity := func(of capacity.Resources) resource.Quantity { return capacity.Resources{name: of[name]}.List()[name] }
		r.Limits = append(r.Limits, Limit{Resource: string(name), Used: quantity(total.Used), Planned: quantity(planned), Limit: quantity(total.Limits)})
	}
}

func use(n *capacity.PlannedNode, t *capacity.InstanceType, name corev1.ResourceName) float64 {
	if t.Allocatable[name] <= 0 {
		return 0
	}
	const digits = 1e4
	return math.Round(float64(n.Requests[name])/float64(t.Allocatable[name])*digits) / digits
}

// round keeps sums of prices readable: millionths of a dollar.
func round(v float64) float64 { return math.Round(v*1e6) / 1e6 }

func millis(d time.Duration) float64 { return math.Round(float64(d)/float64(time.Millisecond)*10) / 10 }

// explain adds the explanation of the pod's placement.
func (r *Report) explain(pod *corev1.Pod, plan *capacity.Plan) {
	e := &Explanation{Namespace: pod.Namespace, Name: pod.Name}
	r.Explanation = e
	if pod.Spec.NodeName != "" {
		e.Lines = []string{"it is bound to node " + pod.Spec.NodeName + " already"}
		return
	}
	placed := slices.ContainsFunc(plan.Placements, func(p capacity.Placement) bool { return p.Pod.UID == pod.UID })
	for _, one := range plan.Explanations {
		if one.Pod.UID == pod.UID && placed == (one.Node != "") { // a pod that the filters refused in the end has an explanation as if it were placed
			e.Lines = one.Lines
		}
	}
	for _, one := range r.Refused {
		if len(e.Lines) == 0 && one.Namespace == pod.Namespace && one.Name == pod.Name {
			e.Lines = []string{"it gets no node: " + one.Reason}
		}
	}
}

// commitments adds what the commitments pay for.
func (r *Report) commitments(c *capacity.Coverage, plan *capacity.Plan) {
	if c == nil {
		return
	}
	beyond := 0.0
	planned := map[string]float64{}
	for _, n := range plan.Nodes {
		if n.Covered.Commitment == "" {
			beyond += n.Price
		}
		planned[n.Covered.Commitment] += n.Price
	}
	beyond = round(beyond)
	r.BeyondCommitmentsPerHour = &beyond
	const micro = 1e6
	for i := range c.Commitments {
		m := &c.Commitments[i]
		r.Commitments = append(r.Commitments, Commitment{Name: m.Name, DollarsPerHour: float64(m.MicroDollars) / micro, UsedPerHour: float64(c.Used[i]) / micro,
			PlannedPerHour: round(planned[m.Name] * m.RateFactor)})
	}
}
