package outside

import (
	"cmp"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// appLabel is the label of pods that says which app they belong to.
const appLabel = "app"

// Whether pods fit on nodes, all at the same time, as far as resources, taints, node selectors and anti-affinity between hosts are
// concerned.

// Answer says whether pods fit.
type Answer int

const (
	// Fits: there are places for all of them.
	Fits Answer = iota
	FitsNot
	Undecided // no places were found, and nothing shows that there are none
)

// Free is what is free on a node, and the apps of its pods.
type Free struct {
	Node *corev1.Node
	Left []int64 // by resource
	apps map[string]int
}

// Resources returns the resources that pods request, and the number of pods, in a fixed order.
func Resources(pods []*corev1.Pod) []corev1.ResourceName {
	out := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}
	for _, p := range pods {
		for i := range p.Spec.Containers {
			for name := range p.Spec.Containers[i].Resources.Requests {
				if !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
	}
	slices.Sort(out[3:])
	return out
}

func amountOf(list corev1.ResourceList, name corev1.ResourceName) int64 {
	q, ok := list[name]
	if !ok {
		return 0
	}
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// Requests returns how much of each resource a pod requests.
func Requests(p *corev1.Pod, names []corev1.ResourceName) []int64 {
	out := make([]int64, len(names))
	for k, name := range names {
		for i := range p.Spec.Containers {
			out[k] += amountOf(p.Spec.Containers[i].Resources.Requests, name)
		}
		if name == corev1.ResourcePods {
			out[k] = 1
		}
	}
	return out
}

// FreeOn returns what is free on nodes beside these pods, which may be anywhere. Pods that are ending still count, those that have ended
// don't.
func FreeOn(nodes []*corev1.Node, pods []*corev1.Pod, names []corev1.ResourceName) []*Free {
	by := map[string]*Free{}
	var out []*Free
	for _, n := range nodes {
		f := &Free{Node: n, apps: map[string]int{}}
		for _, name := range names {
			f.Left = append(f.Left, amountOf(n.Status.Allocatable, name))
		}
		by[n.Name] = f
		out = append(out, f)
	}
	for _, p := range pods {
		f := by[p.Spec.NodeName]
		if f == nil || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		f.put(p, Requests(p, names), 1)
	}
	return out
}

func (f *Free) put(p *corev1.Pod, requests []int64, sign int64) {
	for k := range f.Left {
		f.Left[k] -= sign * requests[k]
	}
	f.apps[p.Labels[appLabel]] += int(sign)
}

// takes reports whether the pod fits on the node.
func (f *Free) takes(p *corev1.Pod, requests []int64) bool {
	for k := range f.Left {
		if requests[k] > 0 && f.Left[k] < requests[k] {
			return false
		}
	}
	for key, value := range p.Spec.NodeSelector {
		if f.Node.Labels[key] != value {
			return false
		}
	}
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil && f.apps[p.Labels[appLabel]] > 0 {
		for _, term := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			if term.TopologyKey == corev1.LabelHostname { // the apps here only keep apart from themselves
				return false
			}
		}
	}
	return tolerates(p, f.Node.Spec.Taints)
}

func tolerates(p *corev1.Pod, taints []corev1.Taint) bool {
	for i := range taints {
		if taints[i].Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, &taints[i], false) }) {
			return false
		}
	}
	return true
}

// Receives reports whether a node can be counted on for pods of other nodes: it is Ready and initialized, and is not being disrupted.
func Receives(n *corev1.Node, claim *karpv1.NodeClaim) bool {
	return Ready(n) && n.DeletionTimestamp == nil && !n.Spec.Unschedulable && n.Labels[karpv1.NodeInitializedLabelKey] == "true" &&
		!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey }) &&
		claim != nil && claim.DeletionTimestamp == nil
}

// Ready reports whether a node is Ready.
func Ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// tries is how many orders of the pods are tried.
const tries = 300

// Place looks for places for pods on nodes. It changes what is free on these.
func Place(pods []*corev1.Pod, nodes []*Free, names []corev1.ResourceName) Answer {
	requests := map[*corev1.Pod][]int64{}
	need, have := make([]int64, len(names)), make([]int64, len(names))
	for _, p := range pods {
		requests[p] = Requests(p, names)
		somewhere := false
		for k := range names {
			need[k] += requests[p][k]
		}
		for _, f := range nodes {
			somewhere = somewhere || f.takes(p, requests[p])
		}
		if !somewhere {
			return FitsNot
		}
	}
	for _, f := range nodes {
		for k := range names {
			have[k] += max(0, f.Left[k])
		}
	}
	for k := range names {
		if need[k] > have[k] {
			return FitsNot
		}
	}
	share := func(p *corev1.Pod) float64 {
		sum := 0.0
		for k := range names {
			sum += float64(requests[p][k]) / float64(max(1, have[k]))
		}
		return sum
	}
	order := slices.Clone(pods)
	slices.SortStableFunc(order, func(a, b *corev1.Pod) int { return cmp.Compare(share(b), share(a)) })
	random := rand.New(rand.NewPCG(1, 1))
	for range tries {
		if inOrder(order, requests, nodes) {
			return Fits
		}
		if len(order) < 2 {
			break
		}
		i, j := random.IntN(len(order)), random.IntN(len(order))
		order[i], order[j] = order[j], order[i]
	}
	return Undecided
}

// inOrder puts each pod in turn where it leaves the least, and takes all off again.
func inOrder(order []*corev1.Pod, requests map[*corev1.Pod][]int64, nodes []*Free) bool {
	type put struct {
		on *Free
		p  *corev1.Pod
	}
	var done []put
	defer func() {
		for _, d := range done {
			d.on.put(d.p, requests[d.p], -1)
		}
	}()
	for _, p := range order {
		var best *Free
		for _, f := range nodes {
			if f.takes(p, requests[p]) && (best == nil || f.Left[0]+f.Left[1]>>20 < best.Left[0]+best.Left[1]>>20) {
				best = f
			}
		}
		if best == nil {
			return false
		}
		best.put(p, requests[p], 1)
		done = append(done, put{best, p})
	}
	return true
}
