package fidelity

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"k8s.io/apimachinery/pkg/api/resource"
)

var apps = []string{"web", "db", "api", "job"}

// shape returns what a number of pods have in common: an application, its requests, and a few constraints.
func (d *dice) shape() *corev1.Pod {
	app := pick(d, apps...)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pick(d, "default", "default", "other"), Labels: map[string]string{"app": app, "rev": pick(d, "1", "2")}}}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID(app), Controller: ptr.To(true)}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: requesting(pick(d, "100m", "500m", "1", "1500m", "3"), pick(d, "128Mi", "1Gi", "3Gi", "9Gi"))}}
	p.Spec.Priority = ptr.To(int32(d.IntN(2) * 10))
	for _, add := range []struct {
		oneIn int
		what  func(*corev1.Pod)
	}{
		{3, d.spread}, {8, d.spread}, {4, d.antiAffinity}, {6, d.affinity}, {6, d.preferredPods}, {5, d.nodeAffinity}, {6, d.preferredNodes}, {10, d.selector},
		{4, d.tolerations}, {8, d.ports}, {6, d.volume}, {8, d.resources},
	} {
		if d.oneIn(add.oneIn) {
			add.what(p)
		}
	}
	return p
}

func (d *dice) labelSelector(p *corev1.Pod) *metav1.LabelSelector {
	switch d.IntN(8) {
	case 0:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(d, apps...)}}
	case 1:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{pick(d, apps...), p.Labels["app"]}}}}
	case 2:
		return &metav1.LabelSelector{}
	default:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}}
	}
}

func (d *dice) spread(p *corev1.Pod) {
	c := corev1.TopologySpreadConstraint{MaxSkew: int32(1 + d.IntN(2)), TopologyKey: pick(d, zoneKey, zoneKey, zoneKey, hostKey, ctKey, teamKey),
		WhenUnsatisfiable: pick(d, corev1.DoNotSchedule, corev1.DoNotSchedule, corev1.ScheduleAnyway), LabelSelector: d.labelSelector(p)}
	for _, old := range p.Spec.TopologySpreadConstraints {
		if old.TopologyKey == c.TopologyKey && old.WhenUnsatisfiable == c.WhenUnsatisfiable {
			return // the API server refuses two constraints with the same key and action
		}
	}
	if c.WhenUnsatisfiable == corev1.DoNotSchedule && d.oneIn(4) {
		c.MinDomains = ptr.To(int32(1 + d.IntN(4)))
	}
	if d.oneIn(3) {
		c.NodeAffinityPolicy = ptr.To(pick(d, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
	}
	if d.oneIn(3) {
		c.NodeTaintsPolicy = ptr.To(pick(d, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
	}
	if d.oneIn(5) && len(c.LabelSelector.MatchLabels)+len(c.LabelSelector.MatchExpressions) > 0 {
		c.MatchLabelKeys = []string{"rev"}
	}
	p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
}

func (d *dice) podTerm(p *corev1.Pod, keys ...string) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{LabelSelector: d.labelSelector(p), TopologyKey: pick(d, keys...)}
	switch d.IntN(6) {
	case 0:
		t.Namespaces = []string{"other"}
	case 1:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": pick(d, "front", "back")}}
	case 2:
		t.NamespaceSelector = &metav1.LabelSelector{}
	}
	return t
}

func affinityOf(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

func (d *dice) antiAffinity(p *corev1.Pod) {
	affinityOf(p).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{d.podTerm(p, hostKey, hostKey, zoneKey, teamKey)}}
}

func (d *dice) affinity(p *corev1.Pod) {
	t := d.podTerm(p, zoneKey, zoneKey, hostKey, ctKey)
	if len(t.LabelSelector.MatchLabels)+len(t.LabelSelector.MatchExpressions) == 0 {
		return // the term would match DaemonSet pods, and it is undefined whether they or the pod come first
	}
	affinityOf(p).PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{t}}
}

func (d *dice) preferredPods(p *corev1.Pod) {
	terms := []corev1.WeightedPodAffinityTerm{{Weight: int32(1 + d.IntN(100)), PodAffinityTerm: d.podTerm(p, hostKey, zoneKey)}}
	if d.oneIn(2) {
		if affinityOf(p).PodAntiAffinity == nil {
			p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = terms
		return
	}
	if affinityOf(p).PodAffinity == nil {
		p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{}
	}
	p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = terms
}

func (d *dice) nodeTerm() corev1.NodeSelectorTerm {
	in, not, exists, no := corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist
	all := []corev1.NodeSelectorRequirement{
		{Key: zoneKey, Operator: in, Values: []string{pick(d, zones...), "z-c"}},
		{Key: zoneKey, Operator: not, Values: []string{pick(d, zones...)}},
		{Key: ctKey, Operator: in, Values: []string{pick(d, "spot", "on-demand")}},
		{Key: familyKey, Operator: in, Values: []string{pick(d, "c5", "m5", "r5")}},
		{Key: cpuKey, Operator: corev1.NodeSelectorOpGt, Values: []string{pick(d, "2", "4", "16")}},
		{Key: cpuKey, Operator: corev1.NodeSelectorOpLt, Values: []string{pick(d, "4", "16")}},
		{Key: teamKey, Operator: exists},
		{Key: teamKey, Operator: no},
		{Key: teamKey, Operator: in, Values: []string{pick(d, "blue", "red", "green")}},
		{Key: corev1.LabelArchStable, Operator: in, Values: []string{pick(d, "amd64", "arm64")}},
		{Key: "example.com/none", Operator: no},
	}
	out := corev1.NodeSelectorTerm{}
	for range 1 + d.IntN(2) {
		out.MatchExpressions = append(out.MatchExpressions, pick(d, all...))
	}
	return out
}

func (d *dice) nodeAffinity(p *corev1.Pod) {
	s := &corev1.NodeSelector{}
	for range 1 + d.IntN(2) {
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, d.nodeTerm())
	}
	affinityOf(p).NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s}
}

func (d *dice) preferredNodes(p *corev1.Pod) {
	if affinityOf(p).NodeAffinity == nil {
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: 10, Preference: d.nodeTerm()}}
}

func (d *dice) selector(p *corev1.Pod) {
	p.Spec.NodeSelector = pick(d, map[string]string{zoneKey: "z-a"}, map[string]string{teamKey: "blue"}, map[string]string{ctKey: "spot"}, map[string]string{corev1.LabelArchStable: "arm64"})
}

func (d *dice) tolerations(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{pick(d, corev1.Toleration{Key: "special", Operator: corev1.TolerationOpExists}, corev1.Toleration{Key: "special", Value: "x"},
		corev1.Toleration{Key: "special", Value: "y"}, corev1.Toleration{Operator: corev1.TolerationOpExists}, corev1.Toleration{Key: "special", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})}
}

func (d *dice) ports(p *corev1.Pod) {
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: int32(80 + d.IntN(2)), HostIP: pick(d, "", "", "127.0.0.1", "0.0.0.0"), Protocol: pick(d, corev1.ProtocolTCP, corev1.ProtocolUDP)}}
}

func (d *dice) volume(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
		ClaimName: pick(d, "new-anywhere", "new-zoned", "data-z-a", "data-z-b", "data-z-c")}}}}
}

// resources requests capacity in the less usual ways.
func (d *dice) resources(p *corev1.Pod) {
	switch d.IntN(4) {
	case 0:
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: requesting("2", "2Gi")}}
	case 1:
		p.Spec.InitContainers = []corev1.Container{{Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: requesting("300m", "200Mi")}}
	case 2:
		p.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("250m")}
	case 3:
		p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
	}
}
