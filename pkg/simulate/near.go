package simulate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// near shows PreFilter only the nodes of an overlay that decide what the filters say of some nodes, the targets.
//
// InterPodAffinity counts in PreFilter the pods of all nodes by topology domain, which costs as much as the whole cluster for each class. Its Filter
// then reads the counts of one node's domains, so for pods with anti-affinity only pods in the domains of the targets matter: where
// they keep apart by host, those on the targets themselves. Affinity and spread constraints compare with all domains. Other in-tree plugins don't read
// the list of nodes in PreFilter.
type near struct {
	*overlay
	nodes, antiAffine []fwk.NodeInfo
}

func (n *near) NodeInfos() fwk.NodeInfoLister { return n }

func (n *near) List() ([]fwk.NodeInfo, error) { return n.nodes, nil }

// HavePodsWithRequiredAntiAffinityList implements fwk.NodeInfoLister.
func (n *near) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return n.antiAffine, nil
}

// surroundings finds the nodes near a trial's targets, each kind once per trial. Which nodes these are doesn't change during a trial: pods are placed
// on targets only, and targets are always near.
type surroundings struct {
	overlay *overlay
	targets map[int]bool // positions in the overlay's list
	// byKeys are the positions of the nodes in the targets' domains, by topology keys.
	byKeys map[string][]int
	// antiAffine are the positions of the nodes with pods whose required anti-affinity reaches into the targets' domains; nil: not searched yet.
	antiAffine []int
}

// surroundingsOf returns the surroundings of the nodes on which pods are tried.
func surroundingsOf(o *overlay, steps []capacity.Step) *surroundings {
	names := sets.New[string]()
	for i := range steps {
		names.Insert(steps[i].Node)
	}
	s := &surroundings{overlay: o, targets: map[int]bool{}, byKeys: map[string][]int{}}
	for name := range names {
		if at, ok := o.position[name]; ok {
			s.targets[at] = true
		}
	}
	for at := len(o.position); at < len(o.list); at++ { // hypothetical nodes stand behind those of the snapshot
		if names.Has(o.list[at].Node().Name) {
			s.targets[at] = true
		}
	}
	return s
}

// of returns what decides about the pod on the targets; nil: that may be all nodes. For a pod with required spread constraints by host it decides
// as long as some host has none of the counted pods (class.cautious).
func (s *surroundings) of(pod *corev1.Pod) *near {
	if len(pod.Spec.ResourceClaims) > 0 || 2*len(s.targets) > len(s.overlay.list) { // with so many targets there is nothing to gain
		return nil
	}
	keys := sets.New[string]() // none: no list of nodes is read
	for _, c := range pod.Spec.TopologySpreadConstraints {
		switch {
		case c.WhenUnsatisfiable != corev1.DoNotSchedule:
		case c.TopologyKey != corev1.LabelHostname:
			return nil
		default:
			keys.Insert(c.TopologyKey)
		}
	}
	if a := pod.Spec.Affinity; a != nil {
		if a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			return nil
		}
		if a.PodAntiAffinity != nil {
			for _, term := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				keys.Insert(term.TopologyKey)
			}
		}
	}
	n := &near{overlay: s.overlay, nodes: s.infos(s.sharing(keys))}
	for _, info := range s.infos(s.withAntiAffinity()) {
		if len(info.GetPodsWithRequiredAntiAffinity()) > 0 {
			n.antiAffine = append(n.antiAffine, info)
		}
	}
	return n
}

// infos returns the nodes at these positions as they are now: a node that gets its first pod is replaced in the list.
func (s *surroundings) infos(at []int) []fwk.NodeInfo {
	out := make([]fwk.NodeInfo, len(at))
	for i, p := range at {
		out[i] = s.overlay.list[p]
	}
	return out
}

// domains returns the targets' values of a label.
func (s *surroundings) domains(key string) sets.Set[string] {
	out := sets.New[string]()
	for at := range s.targets {
		if value, ok := s.overlay.list[at].Node().Labels[key]; ok {
			out.Insert(value)
		}
	}
	return out
}

// sharing returns the nodes in the targets' domains of any of the keys, in the order of the list.
func (s *surroundings) sharing(keys sets.Set[string]) []int {
	if len(keys) == 0 {
		return nil
	}
	all := strings.Join(sets.List(keys), ",")
	if out, ok := s.byKeys[all]; ok {
		return out
	}
	domains := map[string]sets.Set[string]{}
	for key := range keys {
		domains[key] = s.domains(key)
	}
	out := []int{}
	for at, info := range s.overlay.list {
		labels := info.Node().Labels
		for key, in := range domains {
			if value, ok := labels[key]; ok && in.Has(value) {
				out = append(out, at)
				break
			}
		}
	}
	s.byKeys[all] = out
	return out
}

// withAntiAffinity returns the targets, and the nodes with pods whose anti-affinity reaches into the targets' domains, in the order of the list.
func (s *surroundings) withAntiAffinity() []int {
	if s.antiAffine != nil {
		return s.antiAffine
	}
	s.antiAffine = []int{}
	domains := map[string]sets.Set[string]{}
	reaches := func(info fwk.NodeInfo) bool {
		labels := info.Node().Labels
		for _, pod := range info.GetPodsWithRequiredAntiAffinity() {
			for _, term := range pod.GetRequiredAntiAffinityTerms() {
				in, ok := domains[term.TopologyKey]
				if !ok {
					in = s.domains(term.TopologyKey)
					domains[term.TopologyKey] = in
				}
				if value, ok := labels[term.TopologyKey]; ok && in.Has(value) {
					return true
				}
			}
		}
		return false
	}
	for at, info := range s.overlay.list {
		if s.targets[at] || reaches(info) {
			s.antiAffine = append(s.antiAffine, at)
		}
	}
	return s.antiAffine
}
