package capacity

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxOpenWorkloads is how many workloads the text of an OpenArchitecture names.
const MaxOpenWorkloads = 5

// OpenArchitecture is a pool that requires no architecture, with the workloads that require none either: nodes were planned for their pods that
// may be arm64. Only a registry can tell whether an image has a manifest for arm64. A container whose image has none fails on such a node.
type OpenArchitecture struct {
	Pool      string
	Workloads []string // in the order of the plan
}

func (o OpenArchitecture) String() string {
	named, others := o.Workloads, ""
	if len(named) > MaxOpenWorkloads {
		named, others = named[:MaxOpenWorkloads], " and others"
	}
	return fmt.Sprintf("pool %s does not fix kubernetes.io/arch, and neither do pods of %s%s: they may run on arm64. Unless their images are built for it, "+
		"require amd64 in the pool or in the pods", o.Pool, strings.Join(named, ", "), others)
}

// LeavesArchitectureOpen reports whether nodes of the pool may be arm64 although its requirements don't list arm64. A pool that lists both
// architectures has chosen them, so it leaves nothing open.
func (p *Pool) LeavesArchitectureOpen() bool {
	r, ok := p.Requirements[corev1.LabelArchStable]
	if !ok {
		return true
	}
	_, excluded := r.Values()
	return excluded && r.Has("amd64") && r.Has("arm64")
}

// OpenArchitectures returns the open architectures of a plan, sorted by pool.
func OpenArchitectures(plan *Plan) []OpenArchitecture {
	mayBeARM := map[string]string{} // planned node to pool
	for _, n := range plan.Nodes {
		if n.Pool.LeavesArchitectureOpen() &&
			slices.ContainsFunc(n.Offers, func(o NodeOffer) bool { return o.Type.Labels[corev1.LabelArchStable] == "arm64" }) {
			mayBeARM[n.ID] = n.Pool.Name
		}
	}
	var out []OpenArchitecture
	at := map[string]int{} // by pool
	seen := map[[2]string]bool{}
	for _, pl := range plan.Placements {
		pool, ok := mayBeARM[pl.Node]
		if !ok || !slices.ContainsFunc(pl.Class.Terms, withoutArchitecture) && len(pl.Class.Terms) > 0 {
			continue
		}
		name := pl.Class.Workload(pl.Pod)
		if seen[[2]string{pool, name}] {
			continue
		}
		seen[[2]string{pool, name}] = true
		if _, ok := at[pool]; !ok {
			at[pool] = len(out)
			out = append(out, OpenArchitecture{Pool: pool})
		}
		one := &out[at[pool]]
		one.Workloads = append(one.Workloads, name)
	}
	slices.SortFunc(out, func(a, b OpenArchitecture) int { return strings.Compare(a.Pool, b.Pool) })
	return out
}

func withoutArchitecture(term Requirements) bool {
	_, ok := term[corev1.LabelArchStable]
	return !ok
}

// Workload returns the name of what a pod of the class belongs to, as its user knows it.
func (c *Class) Workload(pod PodRef) string {
	if c.Pod == nil || metav1.GetControllerOfNoCopy(c.Pod) == nil {
		return c.Namespace + "/" + pod.Name
	}
	owner := metav1.GetControllerOfNoCopy(c.Pod)
	name := owner.Name
	if hash := c.Pod.Labels["pod-template-hash"]; owner.Kind == "ReplicaSet" && hash != "" {
		name = strings.TrimSuffix(name, "-"+hash)
	}
	return c.Namespace + "/" + name
}
