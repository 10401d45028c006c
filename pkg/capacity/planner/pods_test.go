package planner

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/test/pods"
)

func mustClass(t testing.TB, pod *corev1.Pod) *capacity.Class {
	t.Helper()
	c, err := capacity.ClassOf(pod, capacity.VolumeInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// asking returns a pod of an app with requests, changed by the functions.
func asking(app, requests string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := pods.Of(app, strings.Fields(requests)...)
	p.Labels = map[string]string{"app": app}
	for _, f := range change {
		f(p)
	}
	return p
}

func selecting(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func withSpread(key string, change ...func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		s := corev1.TopologySpreadConstraint{TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selecting(p.Labels["app"])}
		for _, f := range change {
			f(&s)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, s)
	}
}

func affinityOf(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

func labelled(label, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[label] = value }
}

func near(app, key string) func(*corev1.Pod) { return nearLabel("app", app, key) }

func nearLabel(label, value, key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.PodAffinity == nil {
			a.PodAffinity = &corev1.PodAffinity{}
		}
		a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}})
	}
}

func away(app, key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: selecting(app)})
	}
}

func preferAway(app, key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: selecting(app)}}}}
	}
}

func on(key string, values ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		affinityOf(p).NodeAffinity = pods.NodeAffinity(pods.Requires(key, "In", values...)).NodeAffinity
	}
}

func preferring(key string, values ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.NodeAffinity == nil {
			a.NodeAffinity = &corev1.NodeAffinity{}
		}
		a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: int32(10 - len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)),
				Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{pods.Requires(key, "In", values...)}}})
	}
}

func hostPortOf(port int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{HostPort: port, Protocol: corev1.ProtocolTCP})
	}
}

// running returns a pod of an app that is already on a node.
func running(app string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := asking(app, "", change...)
	p.Name = "running-" + app
	return p
}
