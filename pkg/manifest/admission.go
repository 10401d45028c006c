package manifest

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingapiv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"

	admit "github.com/dovetail-scheduler/dovetail/pkg/admission"
)

// admission adds to pods what the API server's admission adds, as far as placement depends on it: priority, the overhead and node
// selector of a runtime class, and the defaults of limit ranges.
type admission struct {
	set        *Set
	priorities map[string]*schedulingv1.PriorityClass // "": the default class, which may be nil
	runtimes   map[string]*nodev1.RuntimeClass
	ranges     map[string][]*corev1.LimitRange
	missing    map[string]bool // warnings already given
}

func newAdmission(s *Set) *admission {
	classes := PriorityClasses(s)
	a := &admission{set: s, priorities: map[string]*schedulingv1.PriorityClass{"": admit.DefaultPriorityClass(classes)}, runtimes: map[string]*nodev1.RuntimeClass{},
		ranges: map[string][]*corev1.LimitRange{}, missing: map[string]bool{}}
	for _, c := range classes {
		a.priorities[c.Name] = c
	}
	for _, c := range All[*nodev1.RuntimeClass](s) {
		a.runtimes[c.Name] = c
	}
	for _, r := range All[*corev1.LimitRange](s) {
		a.ranges[r.Namespace] = append(a.ranges[r.Namespace], r)
	}
	return a
}

// PriorityClasses returns the classes of the set and the two that every cluster has.
func PriorityClasses(s *Set) []*schedulingv1.PriorityClass {
	return slices.Concat(schedulingapiv1.SystemPriorityClasses(), All[*schedulingv1.PriorityClass](s))
}

// pod completes a pod, standalone or of a workload; warnings call it who.
func (a *admission) pod(pod *corev1.Pod, who string) {
	a.known(&pod.Spec, who)
	if pod.Spec.Priority == nil {
		admit.SetPriority(pod, a.priorities[pod.Spec.PriorityClassName])
	}
	if name := pod.Spec.RuntimeClassName; name != nil && pod.Spec.Overhead == nil && a.runtimes[*name] != nil {
		admit.SetRuntimeClass(pod, a.runtimes[*name])
	}
	admit.LimitDefaults(pod, a.ranges[pod.Namespace])
}

// known warns if the pod names a PriorityClass or a RuntimeClass that isn't in the input.
func (a *admission) known(spec *corev1.PodSpec, who string) {
	if name := spec.PriorityClassName; name != "" && spec.Priority == nil && a.priorities[name] == nil {
		a.say(who+": there is no PriorityClass %s in the input: planned with priority 0", name)
	}
	if name := spec.RuntimeClassName; name != nil && spec.Overhead == nil && a.runtimes[*name] == nil {
		a.say(who+": there is no RuntimeClass %s in the input: planned without its overhead", *name)
	}
}

// say adds a warning, but only once.
func (a *admission) say(format string, what string) {
	if word := format + what; !a.missing[word] {
		a.missing[word] = true
		a.set.warn(format, what)
	}
}

// csiName reports whether a provisioner's name is that of a CSI driver. Other provisioners are programs that nodes don't know.
func csiName(provisioner string) bool {
	return slices.Contains(strings.Split(provisioner, "."), "csi")
}
