package whatif

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

// Change is one change to a pod, a pool or the limit of all pools.
type Change struct {
	// What says in a clause what would be different, and names object and field.
	What string
	// pod or pool is the changed copy.
	pod  *corev1.Pod
	pool *karpv1.NodePool
	// limit is the resource that all pools together don't limit.
	limit corev1.ResourceName
}

// Fix is a change after which the pod gets a node.
type Fix struct {
	Change
	// Place is where it runs then.
	Place Place
}

// Place is where a plan puts a pod.
type Place struct {
	// Existing is the name of a node that is there; empty: New is a node to buy.
	Existing string
	New      *offline.Node
}

// PlaceOf returns where a report puts a pod; false: nowhere.
func PlaceOf(r *offline.Report, namespace, name string) (Place, bool) {
	is := func(p offline.PodName) bool { return p.Namespace == namespace && p.Name == name }
	for i := range r.Nodes {
		if slices.ContainsFunc(r.Nodes[i].Pods, is) {
			return Place{New: &r.Nodes[i]}, true
		}
	}
	for i := range r.Existing {
		if slices.ContainsFunc(r.Existing[i].Pods, is) {
			return Place{Existing: r.Existing[i].Name}, true
		}
	}
	return Place{}, false
}

// Fixes plans for a pod that gets no node once with each of the changes that could help, and returns those that do. It stops at the end of
// the time that it is given; all is false then.
func Fixes(ctx context.Context, set *manifest.Set, s offline.Settings, pod *corev1.Pod, patience time.Duration) (fixes []Fix, all bool, err error) {
	s.Explain, s.Plan.Effort = "", 0
	end := s.Clock.Now().Add(patience)
	for _, c := range append(Changes(set, pod), totalChanges(&s)...) {
		if s.Clock.Now().After(end) {
			return fixes, false, nil
		}
		changed := s
		changed.Limits = maps.Clone(s.Limits)
		delete(changed.Limits, c.limit)
		r, err := offline.Plan(ctx, c.apply(set, pod), changed)
		if ctx.Err() != nil {
			return fixes, false, ctx.Err()
		}
		if err != nil {
			continue // the change makes an object invalid: it isn't one to recommend
		}
		if place, ok := PlaceOf(r, pod.Namespace, pod.Name); ok {
			fixes = append(fixes, Fix{c, place})
		}
	}
	return fixes, true, nil
}

// apply returns the set with the change.
func (c *Change) apply(set *manifest.Set, pod *corev1.Pod) *manifest.Set {
	return set.Edit(func(o client.Object) client.Object {
		switch o := o.(type) {
		case *corev1.Pod:
			if c.pod != nil && o.UID == pod.UID {
				return c.pod
			}
		case *karpv1.NodePool:
			if c.pool != nil && o.Name == c.pool.Name {
				return c.pool
			}
		}
		return o
	})
}

// Changes returns everything that Fixes tries: each constraint of the pod left out, and each of every pool's.
func Changes(set *manifest.Set, pod *corev1.Pod) []Change {
	pools := manifest.All[*karpv1.NodePool](set)
	p := &podChanges{pod: pod}
	p.selectors()
	p.taints(pools)
	p.requests()
	p.neighbours()
	p.volumes()
	out := p.out
	for _, np := range pools {
		out = append(out, poolChanges(np, pod)...)
	}
	return out
}

// totalChanges returns a change for each resource that all pools together limit.
func totalChanges(s *offline.Settings) (out []Change) {
	limits := s.Limits.List()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[name]
		out = append(out, Change{What: fmt.Sprintf("ProvisionArgs has a higher limit of %s than %s for all pools together (limits)", name, limit.String()), limit: name})
	}
	return out
}

// podChanges collects changes of a pod.
type podChanges struct {
	pod *corev1.Pod
	out []Change
}

func (p *podChanges) try(change func(*corev1.PodSpec), format string, args ...any) {
	changed := p.pod.DeepCopy()
	change(&changed.Spec)
	p.out = append(p.out, Change{What: "the pod " + fmt.Sprintf(format, args...), pod: changed})
}

// selectors leaves out each label that the pod asks for.
func (p *podChanges) selectors() {
	for _, key := range slices.Sorted(maps.Keys(p.pod.Spec.NodeSelector)) {
		p.try(func(s *corev1.PodSpec) { delete(s.NodeSelector, key) }, "doesn't ask for %s=%s (spec.nodeSelector)", key, p.pod.Spec.NodeSelector[key])
	}
	required := requiredTerms(&p.pod.Spec)
	var keys []string
	for i := range required {
		for _, e := range required[i].MatchExpressions {
			keys = append(keys, e.Key)
		}
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		p.try(func(s *corev1.PodSpec) {
			terms := requiredTerms(s)
			for i := range terms {
				terms[i].MatchExpressions = slices.DeleteFunc(terms[i].MatchExpressions, func(e corev1.NodeSelectorRequirement) bool { return e.Key == key })
			}
			empty := func(t corev1.NodeSelectorTerm) bool { return len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0 }
			if slices.ContainsFunc(terms, empty) { // terms are alternatives: if one of them matches every node, there is no restriction left
				s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
			}
		}, "doesn't ask for %s (spec.affinity.nodeAffinity)", key)
	}
}

func requiredTerms(s *corev1.PodSpec) []corev1.NodeSelectorTerm {
	if s.Affinity == nil || s.Affinity.NodeAffinity == nil || s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// taints tolerates each taint of the pools.
func (p *podChanges) taints(pools []*karpv1.NodePool) {
	seen := map[corev1.Taint]bool{}
	for _, np := range pools {
		for _, t := range np.Spec.Template.Spec.Taints {
			t := corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
			if seen[t] || t.Effect == corev1.TaintEffectPreferNoSchedule {
				continue
			}
			seen[t] = true
			p.try(func(s *corev1.PodSpec) {
				s.Tolerations = append(s.Tolerations, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: t.Effect})
			}, "tolerates %s (spec.tolerations)", t.ToString())
		}
	}
}

// requests leaves out each resource and host port that the pod asks for.
func (p *podChanges) requests() {
	var names []string
	ports := false
	each := func(s *corev1.PodSpec, do func(*corev1.Container)) {
		for i := range s.InitContainers {
			do(&s.InitContainers[i])
		}
		for i := range s.Containers {
			do(&s.Containers[i])
		}
	}
	each(&p.pod.Spec, func(c *corev1.Container) {
		for name := range c.Resources.Requests {
			names = append(names, string(name))
		}
		ports = ports || slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort > 0 })
	})
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		text := "requests less " + name
		if strings.Contains(name, "/") {
			text = "doesn't request " + name
		}
		p.try(func(s *corev1.PodSpec) {
			each(s, func(c *corev1.Container) {
				delete(c.Resources.Requests, corev1.ResourceName(name))
				delete(c.Resources.Limits, corev1.ResourceName(name))
			})
		}, "%s (resources.requests)", text)
	}
	if ports {
		p.try(func(s *corev1.PodSpec) {
			each(s, func(c *corev1.Container) {
				for i := range c.Ports {
					c.Ports[i].HostPort = 0
				}
			})
		}, "takes no host port (ports.hostPort)")
	}
}

// neighbours leaves out each constraint on other pods.
func (p *podChanges) neighbours() {
	spec := &p.pod.Spec
	for i, c := range spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			p.try(func(s *corev1.PodSpec) { s.TopologySpreadConstraints[i].WhenUnsatisfiable = corev1.ScheduleAnyway },
				"may be spread unevenly over %s (spec.topologySpreadConstraints[%d].whenUnsatisfiable: ScheduleAnyway)", c.TopologyKey, i)
		}
	}
	if spec.Affinity == nil {
		return
	}
	if a := spec.Affinity.PodAffinity; a != nil {
		for i, term := range a.RequiredDuringSchedulingIgnoredDuringExecution {
			p.try(func(s *corev1.PodSpec) {
				remove(&s.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, i)
			},
				"needn't be with other pods over %s (spec.affinity.podAffinity[%d])", term.TopologyKey, i)
		}
	}
	if a := spec.Affinity.PodAntiAffinity; a != nil {
		for i, term := range a.RequiredDuringSchedulingIgnoredDuringExecution {
			p.try(func(s *corev1.PodSpec) {
				remove(&s.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, i)
			},
				"may be with other pods over %s (spec.affinity.podAntiAffinity[%d])", term.TopologyKey, i)
		}
	}
}

func remove(from *[]corev1.PodAffinityTerm, i int) { *from = slices.Delete(*from, i, i+1) }

// volumes leaves out each volume that may be bound to a zone or node, and each ResourceClaim.
func (p *podChanges) volumes() {
	for _, v := range p.pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			continue
		}
		p.try(func(s *corev1.PodSpec) {
			s.Volumes = slices.DeleteFunc(s.Volumes, func(o corev1.Volume) bool { return o.Name == v.Name })
		}, "doesn't need its volume %s (spec.volumes)", v.Name)
	}
	for _, c := range p.pod.Spec.ResourceClaims {
		p.try(func(s *corev1.PodSpec) {
			s.ResourceClaims = slices.DeleteFunc(s.ResourceClaims, func(o corev1.PodResourceClaim) bool { return o.Name == c.Name })
		}, "doesn't need its ResourceClaim %s (spec.resourceClaims)", c.Name)
	}
}

// poolChanges returns a change for each constraint of a pool that may be in the way.
func poolChanges(np *karpv1.NodePool, pod *corev1.Pod) (out []Change) {
	try := func(change func(*karpv1.NodePool), format string, args ...any) {
		changed := np.DeepCopy()
		change(changed)
		out = append(out, Change{What: "NodePool " + np.Name + " " + fmt.Sprintf(format, args...), pool: changed})
	}
	for _, name := range slices.Sorted(maps.Keys(np.Spec.Limits)) {
		limit := np.Spec.Limits[name]
		try(func(np *karpv1.NodePool) { delete(np.Spec.Limits, name) }, "has a higher limit of %s than %s (spec.limits)", name, limit.String())
	}
	var keys []string
	least := false
	for _, r := range np.Spec.Template.Spec.Requirements {
		keys = append(keys, r.Key)
		least = least || r.MinValues != nil
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		try(func(np *karpv1.NodePool) {
			np.Spec.Template.Spec.Requirements = slices.DeleteFunc(np.Spec.Template.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool { return r.Key == key })
		}, "leaves %s open (spec.template.spec.requirements)", key)
	}
	if least {
		try(func(np *karpv1.NodePool) {
			for i := range np.Spec.Template.Spec.Requirements {
				np.Spec.Template.Spec.Requirements[i].MinValues = nil
			}
		}, "has no minValues (spec.template.spec.requirements)")
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		value := pod.Spec.NodeSelector[key]
		if karpv1.WellKnownLabels.Has(key) || np.Spec.Template.Labels[key] == value {
			continue
		}
		try(func(np *karpv1.NodePool) {
			if np.Spec.Template.Labels == nil {
				np.Spec.Template.Labels = map[string]string{}
			}
			np.Spec.Template.Labels[key] = value
		}, "has the label %s=%s (spec.template.metadata.labels)", key, value)
	}
	return out
}
