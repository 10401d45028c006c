package capacity

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/test/pods"
)

// jobPod returns the pod of the i-th of many Jobs of one shape.
func jobPod(i int) *corev1.Pod {
	name, uid := fmt.Sprintf("sum-%d", i), fmt.Sprintf("uid-%d", i)
	p := pods.Of("sum", "cpu=1")
	p.Name = name + "-x"
	p.Labels = map[string]string{"app": "sum", "job-name": name, "batch.kubernetes.io/job-name": name, "controller-uid": uid, "batch.kubernetes.io/controller-uid": uid,
		"batch.kubernetes.io/job-completion-index": fmt.Sprint(i)}
	return p
}

func TestJobsOfOneShapeAreOneClass(t *testing.T) {
	keys := map[ClassKey]bool{}
	for i := range 10_000 {
		keys[mustClass(t, jobPod(i)).Key] = true
	}
	if len(keys) != 1 {
		t.Errorf("%d classes, want 1", len(keys))
	}
	if c := mustClass(t, jobPod(0)); len(c.Labels) != 1 || c.Labels["app"] != "sum" || len(c.Pod.Labels) != 6 {
		t.Errorf("the class has labels %v, its pod %v", c.Labels, c.Pod.Labels)
	}
	other := jobPod(0)
	other.Labels["app"] = "other"
	if mustClass(t, other).Key == mustClass(t, jobPod(0)).Key {
		t.Error("Jobs of different shapes are of one class")
	}
}

// Wherever a selector stands that names a label, pods with different values are of different classes: those that have the selector, and all
// others, which it may select.
func TestSelectorsMakePerPodLabelsCount(t *testing.T) {
	term := func(key string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: LabelHostname, LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpExists}}}}
	}
	keyed := func(match, mismatch []string) *corev1.Affinity {
		return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: LabelHostname,
			LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: match, MismatchLabelKeys: mismatch}}}}
	}
	preferred := func(key string) []corev1.WeightedPodAffinityTerm {
		return []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term(key)}}
	}
	for where, add := range map[string]func(p *corev1.Pod, key string){
		"required affinity": func(p *corev1.Pod, key string) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(key)}}}
		},
		"preferred affinity": func(p *corev1.Pod, key string) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred(key)}}
		},
		"required anti-affinity": func(p *corev1.Pod, key string) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(key)}}}
		},
		"preferred anti-affinity": func(p *corev1.Pod, key string) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred(key)}}
		},
		"matchLabelKeys of anti-affinity":    func(p *corev1.Pod, key string) { p.Spec.Affinity = keyed([]string{key}, nil) },
		"mismatchLabelKeys of anti-affinity": func(p *corev1.Pod, key string) { p.Spec.Affinity = keyed(nil, []string{key}) },
		"a spread's selector": func(p *corev1.Pod, key string) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: LabelZone, MaxSkew: 1, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: "x"}}}}
		},
		"a spread's matchLabelKeys": func(p *corev1.Pod, key string) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: LabelZone, MaxSkew: 1, LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{key}}}
		},
	} {
		for _, key := range perPodLabels {
			plain := func(i int) *corev1.Pod {
				p := jobPod(0)
				p.Labels[key] = fmt.Sprint(i)
				return p
			}
			selecting := func(i int) *corev1.Pod {
				p := plain(i)
				add(p, key)
				return p
			}
			if mustClass(t, plain(1)).Key != mustClass(t, plain(2)).Key {
				t.Errorf("%s counts though no selector names it", key)
			}
			if a, b := mustClass(t, selecting(1)), mustClass(t, selecting(2)); a.Key == b.Key || a.Labels[key] != "1" || len(a.Labels) != 2 {
				t.Errorf("%s of the pod names %s: labels %v and %v count", where, key, a.Labels, b.Labels)
			}
			among := func(i int) *Class {
				c, err := ClassAmong(plain(i), VolumeInfo{}, NamedBy(selecting(0)))
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			if a, b := among(1), among(2); a.Key == b.Key || a.Labels[key] != "1" || len(a.Labels) != 2 {
				t.Errorf("%s of another pod names %s: labels %v and %v count", where, key, a.Labels, b.Labels)
			}
		}
	}
}
