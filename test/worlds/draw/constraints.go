package draw

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// constrain draws where the pods of an application may be placed. Every draw can be satisfied by instances that never run out.
func (g *generator) constrain(app string, p *corev1.PodSpec, replicas *int32) {
	self := &metav1.LabelSelector{MatchLabels: map[string]string{AppLabel: app}}
	if g.maybe(0.3) {
		g.spread(corev1.LabelTopologyZone, self, p)
	}
	if g.maybe(0.15) {
		g.spread(corev1.LabelHostname, self, p)
	}
	switch {
	case g.maybe(0.15):
		*replicas = min(*replicas, 6)
		p.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(corev1.LabelHostname, self)}}
		g.tell("%s one a node", app)
	case g.maybe(0.1):
		p.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(corev1.LabelTopologyZone, self)}}
		p.TopologySpreadConstraints = nil // they would contradict the affinity
		g.tell("%s together in a zone", app)
	case g.maybe(0.1):
		p.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 10, PodAffinityTerm: terms(corev1.LabelHostname, self)[0]}}}}
	case len(g.apps) > 0 && g.maybe(0.15):
		other := &metav1.LabelSelector{MatchLabels: map[string]string{AppLabel: pick(g, g.apps...)}}
		p.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(corev1.LabelHostname, other)}}
		g.tell("%s not beside %s", app, other.MatchLabels[AppLabel])
	}
	switch {
	case g.gpu && g.maybe(0.3):
		*replicas = min(*replicas, 3)
		p.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
		p.Tolerations = append(p.Tolerations, corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists})
		g.tell("%s on gpus", app)
	case g.arm && g.maybe(0.4):
		p.NodeSelector = map[string]string{corev1.LabelArchStable: "arm64"}
		p.Tolerations = append(p.Tolerations, corev1.Toleration{Key: "example.com/arm", Operator: corev1.TolerationOpExists})
	case g.maybe(0.1):
		zone := pick(g, zones...)
		p.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone}
		p.TopologySpreadConstraints = nil
	}
	if g.maybe(0.08) {
		*replicas = min(*replicas, 6)
		p.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: int32(8000 + len(g.apps))}}
		g.tell("%s host port", app)
	}
	if g.maybe(0.3) {
		p.PriorityClassName = pick(g, priorityClasses...)
	}
	if g.w.StartupTaint != "" && g.maybe(0.2) {
		p.Tolerations = append(p.Tolerations, corev1.Toleration{Key: g.w.StartupTaint, Operator: corev1.TolerationOpExists})
	}
}

func (g *generator) spread(key string, self *metav1.LabelSelector, p *corev1.PodSpec) {
	c := corev1.TopologySpreadConstraint{
		MaxSkew: int32(g.between(1, 2)), TopologyKey: key, LabelSelector: self, WhenUnsatisfiable: pick(g, corev1.DoNotSchedule, corev1.DoNotSchedule, corev1.ScheduleAnyway),
	}
	if c.WhenUnsatisfiable == corev1.DoNotSchedule {
		if key == corev1.LabelTopologyZone && g.maybe(0.3) {
			c.MinDomains = ptr.To[int32](3)
		}
		if g.maybe(0.2) {
			c.NodeTaintsPolicy = ptr.To(corev1.NodeInclusionPolicyHonor)
		}
		g.tell("spread over %s", key)
	}
	p.TopologySpreadConstraints = append(p.TopologySpreadConstraints, c)
}

func terms(key string, selector *metav1.LabelSelector) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: selector}}
}
