package simulate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// DefaultSpread returns a function with the profile's default constraints of PodTopologySpread for pods without spread constraints of
// their own: the required ones (DoNotSchedule), with a selector for the pods that the Services and the controller of the pod select.
// Nil: the profile has no such constraints. Call it before the informers start.
func DefaultSpread(f informers.SharedInformerFactory, profile schedulerapi.KubeSchedulerProfile) func(*corev1.Pod) []corev1.TopologySpreadConstraint {
	var hard []corev1.TopologySpreadConstraint
	for _, c := range profile.PluginConfig {
		args, ok := c.Args.(*schedulerapi.PodTopologySpreadArgs)
		if c.Name != names.PodTopologySpread || !ok || args.DefaultingType != schedulerapi.ListDefaulting {
			continue
		}
		for _, t := range args.DefaultConstraints {
			if t.WhenUnsatisfiable == corev1.DoNotSchedule {
				hard = append(hard, t)
			}
		}
	}
	if len(hard) == 0 {
		return nil
	}
	services, controllers := f.Core().V1().Services().Lister(), f.Core().V1().ReplicationControllers().Lister()
	replicaSets, statefulSets := f.Apps().V1().ReplicaSets().Lister(), f.Apps().V1().StatefulSets().Lister()
	return func(pod *corev1.Pod) []corev1.TopologySpreadConstraint {
		requirements, selects := helper.DefaultSelector(pod, services, controllers, replicaSets, statefulSets).Requirements()
		if !selects || len(requirements) == 0 {
			return nil
		}
		selector := &metav1.LabelSelector{}
		for _, r := range requirements {
			op, ok := operators[string(r.Operator())]
			if !ok {
				return nil
			}
			values := slices.Sorted(slices.Values(r.ValuesUnsorted()))
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: op, Values: values})
		}
		out := slices.Clone(hard)
		for i := range out {
			out[i].LabelSelector = selector
		}
		return out
	}
}

// operators maps the operators of a compiled selector to those of label selectors in the API.
var operators = map[string]metav1.LabelSelectorOperator{
	"=": metav1.LabelSelectorOpIn, "==": metav1.LabelSelectorOpIn, "in": metav1.LabelSelectorOpIn, "notin": metav1.LabelSelectorOpNotIn, "!=": metav1.LabelSelectorOpNotIn,
	"exists": metav1.LabelSelectorOpExists, "!": metav1.LabelSelectorOpDoesNotExist,
}
