package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/pkg/whatif"
)

// Overview is what a cluster costs and holds at one moment.
type Overview struct {
	Nodes []NodeUse
	// PerHour is what the nodes cost at list price, without those whose price isn't known, of which there are Unpriced.
	PerHour  float64
	Unpriced int
	Least
	// Running is the number of pods on nodes, NoSuchNode of those on nodes that don't exist; Waiting are those without one.
	Running    int
	NoSuchNode int
	Waiting    []Waiting
	// Limits says what is used of each limit of all pools together: "cpu 96 of 100".
	Limits []string
	// Commitments says what is used of each commitment: "compute-sp $1.2000/h of $2.0000/h".
	Commitments []string
	// HeldBack names what keeps pools from launching nodes.
	HeldBack []string
}

// Least is what the pods on nodes of pools cost at least, beside what these nodes cost.
type Least struct {
	// Bound is what the pods of Managed nodes and NodeClaims of pools cost at least, however they were packed on new nodes, and ManagedPerHour what these
	// nodes cost; Bound 0: not known. ManagedClaims of them have no Node.
	Bound, ManagedPerHour  float64
	Managed, ManagedClaims int
	// BoundOnSpot: the nodes that the bound is about may be spot instances. NotCounted says which pods the bound leaves out, so that it can't be compared
	// with ManagedPerHour; empty: none. NoBound is why Bound isn't known; empty: it is, or wasn't asked for.
	BoundOnSpot         bool
	NotCounted, NoBound string
	// BoundAt is when the look was that this comes from; zero: it is of the same one as the rest of the Overview.
	BoundAt time.Time
}

// Above returns by how many percent the nodes cost more than the bound; false: they can't be compared.
func (l *Least) Above() (percent float64, ok bool) {
	if l.Bound <= 0 || l.NotCounted != "" {
		return 0, false
	}
	return 100 * max(l.ManagedPerHour/l.Bound-1, 0), true
}

// NodeUse is a node, or a NodeClaim without one yet.
type NodeUse struct {
	Name, Pool, Type, Zone, CapacityType, State string
	Created                                     time.Time
	Age                                         time.Duration
	Price                                       float64
	Priced                                      bool
	Pods                                        int
	// Requested is what pods on it ask for, Reserved what is kept for pods that are planned there, also for those that their controllers have yet to create
	// when a node ends that is replaced. Kept is kept for pods of DaemonSets that are still to come.
	Requested, Reserved, Kept, Allocatable corev1.ResourceList
}

// Free returns what of a resource is neither requested nor reserved nor kept.
func (n *NodeUse) Free(name corev1.ResourceName) int64 {
	amount := func(of corev1.ResourceList) int64 { q := of[name]; return q.MilliValue() }
	return max(amount(n.Allocatable)-amount(n.Requested)-amount(n.Reserved)-amount(n.Kept), 0)
}

// Waiting is pods that wait for the same reason.
type Waiting struct {
	Reason string
	Pods   int
	// First is one of them, Oldest how long the oldest has waited.
	First  string
	Oldest time.Duration
}

// Overview adds up the cluster. An error means that ctx has ended: what a plan can't say is left out, with its reason in Waiting.
func (c *Cluster) Overview(ctx context.Context) (*Overview, error) {
	o := &Overview{}
	c.nodes(o)
	if err := c.waitingPods(ctx, o); err != nil {
		return nil, err
	}
	for _, row := range totalLimits(offline.TotalOf(c.Set, &c.Settings)) {
		o.Limits = append(o.Limits, fmt.Sprintf("%s %s of %s", row[0], row[1], row[2]))
	}
	if coverage := c.coverage(); coverage != nil {
		for i, m := range coverage.Commitments {
			o.Commitments = append(o.Commitments, fmt.Sprintf("%s %s/h of %s/h", m.Name, dollars(float64(coverage.Used[i])/1e6), dollars(float64(m.MicroDollars)/1e6)))
		}
	}
	for _, np := range manifest.All[*karpv1.NodePool](c.Set) {
		if why := c.heldBack(np.Name); why != "" {
			o.HeldBack = append(o.HeldBack, "pool "+np.Name+": "+why)
		}
	}
	return o, nil
}

// nodes adds all nodes and NodeClaims.
func (c *Cluster) nodes(o *Overview) {
	var all []*NodeUse
	byName := map[string]*NodeUse{}
	claims := map[string]*karpv1.NodeClaim{}
	add := func(name string, labels map[string]string, created time.Time, allocatable corev1.ResourceList) *NodeUse {
		n := &NodeUse{Name: name, Pool: labels[karpv1.NodePoolLabelKey], Type: labels[corev1.LabelInstanceTypeStable], Zone: labels[corev1.LabelTopologyZone],
			CapacityType: capacityTypeOf(labels), Created: created, Age: c.Now.Sub(created), Allocatable: allocatable, Requested: corev1.ResourceList{}, Reserved: corev1.ResourceList{}, Kept: corev1.ResourceList{}}
		n.Price, n.Priced = c.Price(labels)
		if o.PerHour += n.Price; !n.Priced {
			o.Unpriced++
		}
		all = append(all, n)
		return n
	}
	for _, nc := range manifest.All[*karpv1.NodeClaim](c.Set) {
		claims[nc.Status.NodeName] = nc
	}
	for _, n := range manifest.All[*corev1.Node](c.Set) {
		byName[n.Name] = add(n.Name, n.Labels, n.CreationTimestamp.Time, n.Status.Allocatable)
		byName[n.Name].State = nodeStateOf(n, claims[n.Name])
	}
	launching := map[string]*NodeUse{}
	for _, nc := range manifest.All[*karpv1.NodeClaim](c.Set) {
		if byName[nc.Status.NodeName] == nil {
			launching[nc.Name] = add(nc.Name, nc.Labels, nc.CreationTimestamp.Time, nc.Status.Allocatable)
			launching[nc.Name].State = stateLaunching
		}
	}
	for _, pod := range manifest.All[*corev1.Pod](c.Set) {
		if objects.Ended(pod) {
			continue
		}
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		if n := byName[pod.Spec.NodeName]; n != nil {
			n.Pods++
			o.Running++
			Add(n.Requested, requests)
			continue
		}
		if pod.Spec.NodeName != "" {
			o.NoSuchNode++
			continue
		}
		b, ok := c.bookings[pod.UID]
		if !ok {
			if n := byName[ownNode(pod)]; n != nil && objects.OfDaemonSet(pod) {
				Add(n.Kept, requests)
			}
			continue
		}
		n := launching[b.Claim.Name]
		if b.Node != nil {
			n = byName[b.Node.Name]
		}
		if n != nil {
			Add(n.Reserved, requests)
		}
	}
	for _, nc := range manifest.All[*karpv1.NodeClaim](c.Set) {
		n := cmp.Or(byName[nc.Status.NodeName], launching[nc.Name])
		for _, p := range c.promised[nc.Name] {
			for range p.pods {
				Add(n.Reserved, p.requests)
			}
		}
		n.rest(nc)
	}
	slices.SortFunc(all, func(a, b *NodeUse) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(b.Price, a.Price), cmp.Compare(a.Name, b.Name))
	})
	for _, n := range all {
		o.Nodes = append(o.Nodes, *n)
	}
}

// rest takes over what the NodeClaim of a node that isn't initialized requests beyond the pods that are known: it is kept for the DaemonSets' pods that the
// node will get, or, for a NodeClaim that doesn't name the pods for which it was launched (Karpenter's don't), reserved for those.
func (n *NodeUse) rest(nc *karpv1.NodeClaim) {
	if conditionTrue(nc, karpv1.ConditionTypeInitialized) {
		return
	}
	into := n.Kept
	if _, names := nc.Annotations[objects.AnnotationPlannedPods]; !names {
		into = n.Reserved
	}
	for name, more := range nc.Spec.Resources.Requests {
		more = more.DeepCopy() // Sub may change what the NodeClaim itself has
		for _, known := range []corev1.ResourceList{n.Requested, n.Reserved, n.Kept} {
			more.Sub(known[name])
		}
		if more.Sign() > 0 {
			Add(into, corev1.ResourceList{name: more})
		}
	}
}

// ownNode returns the node for which the DaemonSet controller made a pod, as it writes that; empty: none.
func ownNode(pod *corev1.Pod) string {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
					return f.Values[0]
				}
			}
		}
	}
	return ""
}

// stateLaunching is the state of a NodeClaim without a Node.
const stateLaunching = "Launching"

// nodeStateOf returns the state of a node in a word.
func nodeStateOf(n *corev1.Node, nc *karpv1.NodeClaim) string {
	switch {
	case !n.DeletionTimestamp.IsZero() || nc != nil && !nc.DeletionTimestamp.IsZero():
		return "Draining"
	case slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey }):
		return "Disrupted"
	case nc != nil && !conditionTrue(nc, karpv1.ConditionTypeInitialized):
		return "Starting"
	case !objects.Ready(n):
		return "NotReady"
	case nc != nil && conditionTrue(nc, karpv1.ConditionTypeDrifted):
		return "Drifted"
	case n.Spec.Unschedulable:
		return "Cordoned"
	}
	return "Ready"
}

// waitingPods groups the pods without a node by what they wait for.
func (c *Cluster) waitingPods(ctx context.Context, o *Overview) error {
	reasons := map[string]string{} // by namespace/name
	s := c.Settings
	s.Explain, s.Plan.Effort = "", 0
	r, err := offline.Plan(ctx, c.withPromises(c.Plannable()), s)
	other := "it is planned with the next burst"
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, offline.ErrNoPool):
		other = "there is no node pool"
	case err != nil:
		other = "no plan can be made: " + objects.OneLine(err.Error())
	default:
		there := map[string]bool{}
		for _, n := range manifest.All[*corev1.Node](c.Set) {
			there[n.Name] = true
		}
		for i := range r.Nodes {
			for _, p := range r.Nodes[i].Pods {
				reasons[p.Namespace+"/"+p.Name] = "a node would be bought: " + r.Nodes[i].InstanceType + " in pool " + r.Nodes[i].Pool
			}
		}
		for i := range r.Existing {
			for _, p := range r.Existing[i].Pods {
				reasons[p.Namespace+"/"+p.Name] = fits(there[r.Existing[i].Name])
			}
		}
		for i := range r.Refused {
			reasons[r.Refused[i].Namespace+"/"+r.Refused[i].Name] = shortReason(&r.Refused[i])
		}
	}
	groups := map[string]*Waiting{}
	for _, pod := range manifest.All[*corev1.Pod](c.Set) {
		if pod.Spec.NodeName != "" || objects.Ended(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		name := pod.Namespace + "/" + pod.Name
		reason := cmp.Or(reasons[name], other)
		switch _, reserved := c.bookings[pod.UID]; {
		case reserved:
			reason = "its instance is starting"
		case objects.OfDaemonSet(pod):
			reason = "a DaemonSet's pod waits for capacity on its own node"
		case c.foreign(pod):
			reason = fmt.Sprintf("it is placed by scheduler %s, for which nothing is launched", pod.Spec.SchedulerName)
		case unknown(&c.Settings, pod.Spec.SchedulerName) && (reason == fits(true) || reason == fits(false)):
			reason = "it waits for scheduler " + pod.Spec.SchedulerName + ", which places it"
		}
		g := groups[reason]
		if g == nil {
			g = &Waiting{Reason: reason, First: name}
			groups[reason] = g
		}
		g.Pods++
		if created := pod.CreationTimestamp.Time; !created.IsZero() {
			g.Oldest = max(g.Oldest, c.Now.Sub(created))
		}
	}
	for _, g := range groups {
		o.Waiting = append(o.Waiting, *g)
	}
	slices.SortFunc(o.Waiting, func(a, b Waiting) int { return cmp.Or(b.Pods-a.Pods, cmp.Compare(a.Reason, b.Reason)) })
	return nil
}

// fits says that a pod fits on a node, or on a NodeClaim that has none yet.
func fits(isThere bool) string {
	if isThere {
		return "it fits on a node that is there"
	}
	return "it fits on a NodeClaim whose instance is starting"
}

// mostReason is how long a reason may be in a table. 'dovetail why pod' has all of it.
const mostReason = 160

// notTolerated is the end of the planner's reason for a pool with a taint.
const notTolerated = "is not tolerated"

// shortReason returns why a pod is refused, each reason once with the pools that have it. Those of pools that are for other pods come last.
func shortReason(r *offline.Refused) string {
	text := r.Reason
	if rows, _ := byReason(r.Pools); len(rows) > 0 {
		// A taint says that a pool isn't meant for the pod: what the other pools lack comes first.
		slices.SortStableFunc(rows, func(a, b []string) int {
			return cmp.Compare(strings.Count(a[1], notTolerated), strings.Count(b[1], notTolerated))
		})
		var parts []string
		for _, row := range rows {
			parts = append(parts, row[0]+": "+row[1])
		}
		text = strings.Join(parts, "; ")
	}
	if len(text) > mostReason {
		text = strings.ToValidUTF8(text[:mostReason], "") + " ..."
	}
	return text
}

// AddBound works out what the pods of nodes of pools would cost at least on new nodes. It plans for all of them, which takes seconds on a large cluster. The
// bound stays unknown if the price of such a node is; one that is being launched and whose type isn't known yet is left out.
func (c *Cluster) AddBound(ctx context.Context, o *Overview) error {
	counted := map[string]bool{}
	var unpriced []string
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if n.Pool == "" || !n.Priced && n.State == stateLaunching {
			continue
		}
		o.Managed++
		if n.State == stateLaunching {
			o.ManagedClaims++
		}
		o.ManagedPerHour += n.Price
		if !n.Priced {
			unpriced = append(unpriced, cmp.Or(n.Type, "unknown"))
		}
		counted[n.Name] = true
	}
	slices.Sort(unpriced)
	switch {
	case len(counted) == 0:
		o.NoBound = "no node is of a pool"
		return nil
	case len(unpriced) > 0:
		o.NoBound = "these types of pools' nodes have no known price: " + few(slices.Compact(unpriced))
		return nil
	}
	s := c.Settings
	// The pods run already: what they cost at least depends on no limit, and on no namespace that is left out.
	s.Explain, s.NoVerify, s.Limits, s.NamespaceSelector = "", true, nil, nil
	r, err := offline.Plan(ctx, anew(c, counted), s)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, offline.ErrNoPool):
		o.NoBound = "there is no node pool"
		return nil
	case err != nil:
		o.NoBound = "no plan can be made: " + objects.OneLine(err.Error())
		return nil
	}
	example := ""
	if len(r.Refused) > 0 {
		example = fmt.Sprintf(" (for example %s/%s: %s)", r.Refused[0].Namespace, r.Refused[0].Name, shortReason(&r.Refused[0]))
	}
	switch o.Bound = r.LowerBoundPerHour; {
	case r.Pods == 0:
		o.NoBound = "the nodes of pools have no pods but those of DaemonSets"
	case r.Pods == len(r.Refused):
		o.NoBound = fmt.Sprintf("a plan of new nodes alone has no place for any of their %d pods%s", r.Pods, example)
	case o.Bound == 0:
		o.NoBound = "a plan of new nodes for them would use what is paid for already (capacity reservations, commitments), or prices that can't be compared"
	case len(r.Refused) > 0:
		o.NotCounted = plural(len(r.Refused), "pod") + " for which a plan of new nodes alone has no place" + example
	}
	o.BoundOnSpot = slices.ContainsFunc(r.Nodes, func(n offline.Node) bool { return n.CapacityType == karpv1.CapacityTypeSpot })
	return nil
}

// anew returns the cluster with the pods of some nodes without a node, and without all nodes, whose free capacity would make new ones look cheaper. Its pools
// have no limits.
func anew(c *Cluster, counted map[string]bool) *manifest.Set {
	return c.after.Edit(func(o client.Object) client.Object {
		switch o := o.(type) {
		case *corev1.Node, *karpv1.NodeClaim:
			return nil
		case *karpv1.NodePool:
			np := o.DeepCopy()
			np.Spec.Limits = nil
			return np
		case *legacy.Provisioner:
			p := o.DeepCopy()
			p.Spec.Limits = nil
			return p
		case *corev1.Pod:
			if !counted[o.Spec.NodeName] || !whatif.Counts(o) {
				return nil
			}
			pod := whatif.Anew(o)
			if c.foreign(pod) {
				pod.Spec.SchedulerName = c.Settings.Pools[0].Scheduler // it runs on a node that is counted, so it is planned whichever scheduler has placed it
			}
			return pod
		}
		return o
	})
}
