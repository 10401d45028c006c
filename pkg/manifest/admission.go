package manifest

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	schedulingapiv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"
)

// admission adds to pods what the API server's admission adds, as far as placement depends on it: priority, the overhead and
// the place of a runtime class, and the defaults of limit ranges.
type admission struct {
	set        *Set
	priorities map[string]*schedulingv1.PriorityClass
	byDefault  *schedulingv1.PriorityClass
	runtimes   map[string]*nodev1.RuntimeClass
	ranges     map[string][]*corev1.LimitRange
	missing    map[string]bool // words said
}

func newAdmission(s *Set) *admission {
	a := &admission{set: s, priorities: map[string]*schedulingv1.PriorityClass{}, runtimes: map[string]*nodev1.RuntimeClass{},
		ranges: map[string][]*corev1.LimitRange{}, missing: map[string]bool{}}
	for _, c := range slices.Concat(schedulingapiv1.SystemPriorityClasses(), All[*schedulingv1.PriorityClass](s)) {
		a.priorities[c.Name] = c
		// Of several defaults the lowest counts.
		if c.GlobalDefault && (a.byDefault == nil || c.Value < a.byDefault.Value) {
			a.byDefault = c
		}
	}
	for _, c := range All[*nodev1.RuntimeClass](s) {
		a.runtimes[c.Name] = c
	}
	for _, r := range All[*corev1.LimitRange](s) {
		a.ranges[r.Namespace] = append(a.ranges[r.Namespace], r)
	}
	return a
}

// pod completes a pod of its own or of a workload, called who in warnings.
func (a *admission) pod(pod *corev1.Pod, who string) {
	a.priority(pod, who)
	a.runtime(pod, who)
	for _, r := range a.ranges[pod.Namespace] {
		for i := range r.Spec.Limits {
			if item := &r.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
				limit(pod.Spec.InitContainers, item)
				limit(pod.Spec.Containers, item)
			}
		}
	}
}

func (a *admission) priority(pod *corev1.Pod, who string) {
	if pod.Spec.Priority != nil {
		return
	}
	class, ok := a.priorities[pod.Spec.PriorityClassName], true
	if pod.Spec.PriorityClassName == "" {
		class = a.byDefault
	} else if class == nil {
		ok = false
	}
	if !ok {
		a.say(who+": there is no PriorityClass %s in the input: planned with priority 0", pod.Spec.PriorityClassName)
	}
	value, policy := int32(scheduling.DefaultPriorityWhenNoDefaultClassExists), corev1.PreemptLowerPriority
	if class != nil {
		pod.Spec.PriorityClassName, value = class.Name, class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	pod.Spec.Priority = &value
	if pod.Spec.PreemptionPolicy == nil {
		pod.Spec.PreemptionPolicy = &policy
	}
}

func (a *admission) runtime(pod *corev1.Pod, who string) {
	if pod.Spec.RuntimeClassName == nil || pod.Spec.Overhead != nil {
		return
	}
	class := a.runtimes[*pod.Spec.RuntimeClassName]
	if class == nil {
		a.say(who+": there is no RuntimeClass %s in the input: planned without its overhead", *pod.Spec.RuntimeClassName)
		return
	}
	if class.Overhead != nil {
		pod.Spec.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling == nil {
		return
	}
	for key, value := range class.Scheduling.NodeSelector {
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	for _, t := range class.Scheduling.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(have corev1.Toleration) bool { return have == t }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
}

// limit gives containers the requests and limits that they don't set themselves.
func limit(containers []corev1.Container, item *corev1.LimitRangeItem) {
	fill := func(to *corev1.ResourceList, from corev1.ResourceList) {
		for name, q := range from {
			if _, ok := (*to)[name]; ok {
				continue
			}
			if *to == nil {
				*to = corev1.ResourceList{}
			}
			(*to)[name] = q
		}
	}
	for i := range containers {
		r := &containers[i].Resources
		fill(&r.Limits, item.Default)
		fill(&r.Requests, item.DefaultRequest)
	}
}

// say warns once.
func (a *admission) say(format string, what string) {
	if word := format + what; !a.missing[word] {
		a.missing[word] = true
		a.set.warn(format, what)
	}
}

// csiName says whether a provisioner is called like a CSI driver: others are programs that no node knows.
func csiName(provisioner string) bool {
	return slices.Contains(strings.Split(provisioner, "."), "csi")
}
