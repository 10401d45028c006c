package planner

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// checked is a node as the checker sees it: an API object, and the pods on it.
type checked struct {
	node *corev1.Node
	free capacity.Resources
	vols map[string]int64
	pods []*corev1.Pod // including those of daemons
}

// checkTotal adds up what planned nodes may take of the limit of all pools.
func checkTotal(v *capacity.View, p *capacity.Plan) error {
	total := capacity.TotalOf(v.Pools)
	if total == nil {
		return nil
	}
	for name, limit := range total.Limits {
		sum, more := total.Used[name], int64(0)
		for _, n := range p.Nodes {
			if name == capacity.ResourceNodes {
				more++
			}
			for _, o := range n.Offers {
				if o.Type.Capacity[name] > n.Largest[name] {
					return fmt.Errorf("%s may become %s, with more %s than it is counted for", n.ID, o.Type.Name, name)
				}
			}
			more += n.Largest[name]
		}
		if more > 0 && sum+more > limit {
			return fmt.Errorf("all pools: %s %d and %d more, above the limit %d", name, sum, more, limit)
		}
	}
	return nil
}

// check replays a plan pod by pod with all nodes present, and returns what is wrong with it. Its rules are written a second time here,
// from the Kubernetes documentation and not from the planner.
func check(v *capacity.View, p *capacity.Plan, opts capacity.Options) error {
	nodes := map[string]*checked{}
	var all []*checked
	for _, n := range v.Nodes {
		c := &checked{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}, Spec: corev1.NodeSpec{Taints: n.Taints, Unschedulable: n.Unschedulable}},
			free: n.Free.Clone(), pods: slices.Clone(n.Pods), vols: map[string]int64{}}
		for d, k := range n.VolumesFree {
			c.vols[d] = k
		}
		nodes[n.Name] = c
		all = append(all, c)
	}
	if p.LowerBound > p.CostPerHour*(1+1e-6) {
		return fmt.Errorf("costs %v, less than its lower bound %v", p.CostPerHour, p.LowerBound)
	}
	used := map[string]int{}
	limits := map[string]capacity.Resources{}
	for _, n := range p.Nodes {
		if err := checkOffers(n, opts); err != nil {
			return fmt.Errorf("%s: %w", n.ID, err)
		}
		c, err := hypothetical(v, n)
		if err != nil {
			return fmt.Errorf("%s: %w", n.ID, err)
		}
		nodes[n.ID] = c
		all = append(all, c)
		if limits[n.Pool.Name] == nil {
			limits[n.Pool.Name] = n.Pool.Used.Clone()
		}
		limits[n.Pool.Name].Add(n.Largest, 1)
		limits[n.Pool.Name].Add(capacity.Resources{capacity.ResourceNodes: 1}, 1)
	}
	for _, pool := range v.Pools {
		for name, limit := range pool.Limits {
			if got, ok := limits[pool.Name]; ok && got[name] > limit {
				return fmt.Errorf("pool %s: %s %d above its limit %d", pool.Name, name, got[name], limit)
			}
		}
	}
	if err := checkTotal(v, p); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, pl := range p.Placements {
		if pl.Owner == "" {
			if seen[string(pl.Pod.UID)] {
				return fmt.Errorf("pod %s is placed twice", pl.Pod.Name)
			}
			seen[string(pl.Pod.UID)] = true
		}
		n, ok := nodes[pl.Node]
		if !ok {
			return fmt.Errorf("placement %d: no node %s", i, pl.Node)
		}
		if err := n.admit(v, pl.Class, all); err != nil {
			return fmt.Errorf("placement %d, %s on %s: %w", i, pl.Pod.Name, pl.Node, err)
		}
		used[pl.Node]++
		n.free.Sub(pl.Class.Requests)
		for d, k := range pl.Class.Volumes {
			if _, limited := n.vols[d]; limited {
				n.vols[d] -= k
			}
		}
		n.pods = append(n.pods, pl.Class.Pod)
	}
	for _, n := range p.Nodes {
		if used[n.ID] == 0 {
			return fmt.Errorf("%s is empty", n.ID)
		}
	}
	return checkAccount(v, p)
}

// checkAccount checks that every pod of the demand is placed or refused exactly once.
func checkAccount(v *capacity.View, p *capacity.Plan) error {
	want, got := 0, len(p.Placements)
	ahead := 0
	for _, d := range v.Demand {
		want += len(d.Pods)
		ahead += d.Ahead
	}
	for _, r := range p.Refused {
		got += len(r.Pods)
	}
	if got < want || got > want+ahead {
		return fmt.Errorf("%d pods asked for, %d ahead, %d answered", want, ahead, got)
	}
	return nil
}

// checkOffers checks that a planned node's offerings are as PlannedNode documents them.
func checkOffers(n *capacity.PlannedNode, opts capacity.Options) error {
	types := map[string]bool{}
	minimum := false
	for _, r := range n.Pool.Requirements {
		minimum = minimum || r.MinValues > 0
	}
	for i, o := range n.Offers {
		types[o.Type.Name] = true
		if o.Type.Special && !n.Offers[0].Type.Special && !minimum && n.CapacityType != capacity.CapacityTypeReserved {
			return fmt.Errorf("offer %v is of special hardware, the node isn't", o.Key())
		}
		if o.Offer.CapacityType != n.CapacityType || !o.Offer.Available {
			return fmt.Errorf("offer %v of another capacity type or not available", o.Key())
		}
		if i > 0 && opts.PriceFactor == nil && o.Offer.Price < n.Offers[i-1].Offer.Price && !o.Offer.Leaving {
			return fmt.Errorf("offer %v is cheaper than the one before", o.Key())
		}
		if !n.Requests.Fits(o.Type.Allocatable) || !n.Allocatable.Fits(o.Type.Allocatable) || !o.Type.Capacity.Fits(n.Largest) {
			return fmt.Errorf("offer %v: requests %v, smallest %v, largest %v don't fit together", o.Key(), n.Requests, n.Allocatable, n.Largest)
		}
		for k, want := range n.Labels {
			got, ok := o.Type.Labels[k]
			if v, offered := o.Offer.Label(k); offered {
				got, ok = v, true
			}
			if own, is := n.Pool.Labels[k]; is {
				got, ok = own, true
			}
			if r, custom := n.Pool.Requirements[k]; !ok && custom && r.Has(want) {
				got, ok = want, true
			}
			if !ok || got != want {
				return fmt.Errorf("offer %v has %s=%q, the node %q", o.Key(), k, got, want)
			}
		}
	}
	if len(n.Offers) == 0 || len(types) > capacity.MaxFleetTypes || n.Price != n.Offers[0].Offer.Price {
		return fmt.Errorf("%d offers of %d types at %v", len(n.Offers), len(types), n.Price)
	}
	for _, r := range n.Pool.Requirements {
		values := map[string]bool{}
		for _, o := range n.Offers {
			if v, ok := o.Type.Labels[r.Key]; ok {
				values[v] = true
			} else if v, ok := o.Offer.Label(r.Key); ok {
				values[v] = true
			}
		}
		if len(values) < r.MinValues {
			return fmt.Errorf("%d values of %s, the pool wants %d", len(values), r.Key, r.MinValues)
		}
	}
	return nil
}

// hypothetical returns the planned node as it will be, with its daemons.
func hypothetical(v *capacity.View, n *capacity.PlannedNode) (*checked, error) {
	l := map[string]string{capacity.LabelHostname: n.ID}
	for k, val := range n.Labels {
		l[k] = val
	}
	c := &checked{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.ID, Labels: l}, Spec: corev1.NodeSpec{Taints: n.Pool.Taints}}, free: n.Allocatable.Clone(), vols: map[string]int64{}}
	for d, k := range n.VolumeLimits {
		c.vols[d] = k
	}
	for _, o := range n.Offers {
		full := c.node.DeepCopy()
		for k, val := range o.Type.Labels {
			full.Labels[k] = val
		}
		full.Labels[capacity.LabelZone], full.Labels[capacity.LabelCapacityType] = o.Offer.Zone, o.Offer.CapacityType
		for _, d := range v.DaemonSets {
			match, _ := nodeaffinity.GetRequiredNodeAffinity(d.Class.Pod).Match(full)
			runs := match && tolerated(d.Class.Pod, full, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
			if runs != slices.Contains(n.Daemons, d) {
				return nil, fmt.Errorf("offer %v: daemon %s runs there: %v", o.Key(), d.Name, runs)
			}
		}
	}
	for _, d := range n.Daemons {
		c.free.Sub(d.Class.Requests)
		c.pods = append(c.pods, d.Class.Pod)
	}
	return c, nil
}

func tolerated(pod *corev1.Pod, node *corev1.Node, effects ...corev1.TaintEffect) bool {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		ok := slices.ContainsFunc(pod.Spec.Tolerations, func(tol corev1.Toleration) bool { return tol.ToleratesTaint(klog.Background(), t, false) })
		if slices.Contains(effects, t.Effect) && !ok {
			return false
		}
	}
	return true
}

// admit returns why kube-scheduler would not put a pod of the class on the node now.
func (c *checked) admit(v *capacity.View, class *capacity.Class, all []*checked) error {
	pod := class.Pod
	if !class.Requests.Fits(c.free) {
		return fmt.Errorf("asks for %v, free is %v", class.Requests, c.free)
	}
	for d, k := range class.Volumes {
		if left, limited := c.vols[d]; limited && k > left {
			return fmt.Errorf("%d volumes of %s, %d can be attached", k, d, left)
		}
	}
	if match, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(c.node); !match {
		return fmt.Errorf("node selector or affinity does not match %v", c.node.Labels)
	}
	if len(class.Terms) > 0 && !slices.ContainsFunc(class.Terms, func(t capacity.Requirements) bool { return t.Match(c.node.Labels) }) {
		return fmt.Errorf("volumes are not reachable from %v", c.node.Labels)
	}
	if !tolerated(pod, c.node, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute) || c.node.Spec.Unschedulable {
		return fmt.Errorf("taints are not tolerated")
	}
	var taken []corev1.ContainerPort
	for _, p := range c.pods {
		taken = append(taken, capacity.HostPorts(p)...)
	}
	for _, a := range capacity.HostPorts(pod) {
		for _, b := range taken {
			if a.HostPort == b.HostPort && a.Protocol == b.Protocol && (a.HostIP == "" || b.HostIP == "" || a.HostIP == "0.0.0.0" || b.HostIP == "0.0.0.0" || a.HostIP == b.HostIP) {
				return fmt.Errorf("host port %d is taken", a.HostPort)
			}
		}
	}
	if err := c.admitSpread(pod, all); err != nil {
		return err
	}
	return c.admitPods(v, pod, all)
}

func (c *checked) admitSpread(pod *corev1.Pod, all []*checked) error {
	var hard []corev1.TopologySpreadConstraint
	for _, s := range pod.Spec.TopologySpreadConstraints {
		if s.WhenUnsatisfiable == corev1.DoNotSchedule {
			hard = append(hard, s)
		}
	}
	for _, s := range hard {
		sel, _ := metav1.LabelSelectorAsSelector(s.LabelSelector)
		for _, k := range s.MatchLabelKeys {
			if val, ok := pod.Labels[k]; ok {
				r, _ := labels.NewRequirement(k, "in", []string{val})
				sel = sel.Add(*r)
			}
		}
		counts := map[string]int{}
	nodes:
		for _, n := range all {
			for _, o := range hard {
				if _, ok := n.node.Labels[o.TopologyKey]; !ok {
					continue nodes
				}
			}
			if s.NodeAffinityPolicy == nil || *s.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
				if match, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.node); !match {
					continue
				}
			}
			if s.NodeTaintsPolicy != nil && *s.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor {
				if !tolerated(pod, n.node, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute) {
					continue
				}
			}
			d := n.node.Labels[s.TopologyKey]
			counts[d] += 0
			for _, p := range n.pods {
				if p.Namespace == pod.Namespace && p.DeletionTimestamp == nil && sel.Matches(labels.Set(p.Labels)) {
					counts[d]++
				}
			}
		}
		d, ok := c.node.Labels[s.TopologyKey]
		if !ok {
			return fmt.Errorf("spread: the node has no %s", s.TopologyKey)
		}
		least := -1
		for _, k := range counts {
			if least < 0 || k < least {
				least = k
			}
		}
		if s.MinDomains != nil && len(counts) < int(*s.MinDomains) {
			least = 0
		}
		self := 0
		if sel.Matches(labels.Set(pod.Labels)) {
			self = 1
		}
		if counts[d]+self-max(least, 0) > int(s.MaxSkew) {
			return fmt.Errorf("spread over %s: %v in %s, least %d", s.TopologyKey, counts[d], d, least)
		}
	}
	return nil
}

func termMatches(v *capacity.View, t *corev1.PodAffinityTerm, owner, other *corev1.Pod) bool {
	sel, _ := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if !sel.Matches(labels.Set(other.Labels)) {
		return false
	}
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		return other.Namespace == owner.Namespace
	}
	if slices.Contains(t.Namespaces, other.Namespace) {
		return true
	}
	if t.NamespaceSelector == nil {
		return false
	}
	ns, _ := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
	var l labels.Set
	if v.Namespaces != nil {
		l = v.Namespaces(other.Namespace)
	}
	return ns.Matches(l)
}

func (c *checked) admitPods(v *capacity.View, pod *corev1.Pod, all []*checked) error {
	same := func(key string, n *checked) bool {
		a, ok := c.node.Labels[key]
		b, has := n.node.Labels[key]
		return ok && has && a == b
	}
	anti := func(p *corev1.Pod) []corev1.PodAffinityTerm {
		if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
			return nil
		}
		return p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	for _, n := range all {
		for _, p := range n.pods {
			for _, t := range anti(pod) {
				if same(t.TopologyKey, n) && termMatches(v, &t, pod, p) {
					return fmt.Errorf("anti-affinity to %s on %s", p.Name, n.node.Name)
				}
			}
			for _, t := range anti(p) {
				if same(t.TopologyKey, n) && termMatches(v, &t, p, pod) {
					return fmt.Errorf("anti-affinity of %s on %s", p.Name, n.node.Name)
				}
			}
		}
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return nil
	}
	terms := pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	matchesAll := func(p *corev1.Pod) bool { // podMatchesAllAffinityTerms of kube-scheduler
		return !slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return !termMatches(v, &t, pod, p) })
	}
	self, anywhere := matchesAll(pod), false
	var missing []string
	for _, t := range terms {
		here := false
		for _, n := range all {
			for _, p := range n.pods {
				if _, ok := n.node.Labels[t.TopologyKey]; ok && matchesAll(p) {
					anywhere = true
					here = here || same(t.TopologyKey, n)
				}
			}
		}
		if _, ok := c.node.Labels[t.TopologyKey]; !ok {
			return fmt.Errorf("affinity: the node has no %s", t.TopologyKey)
		}
		if !here {
			missing = append(missing, t.TopologyKey)
		}
	}
	if len(missing) > 0 && (anywhere || !self) {
		return fmt.Errorf("affinity over %s finds nothing", strings.Join(missing, ","))
	}
	return nil
}
