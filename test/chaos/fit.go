package chaos

import (
	"cmp"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Whether pods fit on nodes, all at the same time, as far as resources, taints, node selectors and anti-affinity between hosts are
// concerned.

// answer says whether pods fit.
type answer int

const (
	fits answer = iota
	fitsNot
	undecided // no places were found, and nothing shows that there are none
)

// free is what is free on a node, and the apps of its pods.
type free struct {
	node *corev1.Node
	left []int64 // by resource
	apps map[string]int
}

// resourcesOf returns the resources that pods request, and the number of pods, in a fixed order.
func resourcesOf(pods []*corev1.Pod) []corev1.ResourceName {
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

func requestsOf(p *corev1.Pod, names []corev1.ResourceName) []int64 {
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

// freeOn returns what is free on nodes beside these pods, which may be anywhere. Pods that are ending still count, those that have ended
// don't.
func freeOn(nodes []*corev1.Node, pods []*corev1.Pod, names []corev1.ResourceName) []*free {
	by := map[string]*free{}
	var out []*free
	for _, n := range nodes {
		f := &free{node: n, apps: map[string]int{}}
		for _, name := range names {
			f.left = append(f.left, amountOf(n.Status.Allocatable, name))
		}
		by[n.Name] = f
		out = append(out, f)
	}
	for _, p := range pods {
		f := by[p.Spec.NodeName]
		if f == nil || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		f.put(p, requestsOf(p, names), 1)
	}
	return out
}

func (f *free) put(p *corev1.Pod, requests []int64, sign int64) {
	for k := range f.left {
		f.left[k] -= sign * requests[k]
	}
	f.apps[p.Labels[appLabel]] += int(sign)
}

// takes reports whether the pod fits on the node.
func (f *free) takes(p *corev1.Pod, requests []int64) bool {
	for k := range f.left {
		if requests[k] > 0 && f.left[k] < requests[k] {
			return false
		}
	}
	for key, value := range p.Spec.NodeSelector {
		if f.node.Labels[key] != value {
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
	return tolerates(p, f.node.Spec.Taints)
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

// receives reports whether a node can be counted on for pods of other nodes: it is Ready and initialized, and is not being disrupted.
func receives(n *corev1.Node, claim *karpv1.NodeClaim) bool {
	return nodeReady(n) && n.DeletionTimestamp == nil && !n.Spec.Unschedulable && n.Labels[karpv1.NodeInitializedLabelKey] == "true" &&
		!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey }) &&
		claim != nil && claim.DeletionTimestamp == nil
}

// tries is how many orders of the pods are tried.
const tries = 300

// place looks for places for pods on nodes. It changes what is free on these.
func place(pods []*corev1.Pod, nodes []*free, names []corev1.ResourceName) answer {
	requests := map[*corev1.Pod][]int64{}
	need, have := make([]int64, len(names)), make([]int64, len(names))
	for _, p := range pods {
		requests[p] = requestsOf(p, names)
		somewhere := false
		for k := range names {
			need[k] += requests[p][k]
		}
		for _, f := range nodes {
			somewhere = somewhere || f.takes(p, requests[p])
		}
		if !somewhere {
			return fitsNot
		}
	}
	for _, f := range nodes {
		for k := range names {
			have[k] += max(0, f.left[k])
		}
	}
	for k := range names {
		if need[k] > have[k] {
			return fitsNot
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
			return fits
		}
		if len(order) < 2 {
			break
		}
		i, j := random.IntN(len(order)), random.IntN(len(order))
		order[i], order[j] = order[j], order[i]
	}
	return undecided
}

// inOrder puts each pod in turn where it leaves the least, and takes all off again.
func inOrder(order []*corev1.Pod, requests map[*corev1.Pod][]int64, nodes []*free) bool {
	type put struct {
		on *free
		p  *corev1.Pod
	}
	var done []put
	defer func() {
		for _, d := range done {
			d.on.put(d.p, requests[d.p], -1)
		}
	}()
	for _, p := range order {
		var best *free
		for _, f := range nodes {
			if f.takes(p, requests[p]) && (best == nil || f.left[0]+f.left[1]>>20 < best.left[0]+best.left[1]>>20) {
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
