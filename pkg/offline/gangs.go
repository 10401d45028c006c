package offline

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// groups are the PodGroups of the input, if a profile has Coscheduling. Otherwise pods are planned one by one, as the scheduler does.
type groups struct {
	min  map[pending.Group]int
	used bool
}

// newGroups reads PodGroups. problems name those that are invalid.
func newGroups(set *manifest.Set, used bool) (groups, []error) {
	out := groups{map[pending.Group]int{}, used}
	var problems []error
	for _, g := range manifest.All[*podgroupv1alpha1.PodGroup](set) {
		if g.Spec.MinMember < 1 {
			problems = append(problems, fmt.Errorf("%s: PodGroup %s/%s: spec.minMember: must be at least 1, not %d", set.SourceOf(g), g.Namespace, g.Name, g.Spec.MinMember))
		}
		out.min[pending.Group{Namespace: g.Namespace, Name: g.Name}] = int(g.Spec.MinMember)
	}
	return out, problems
}

// Min implements provisioning.Gangs. A pod whose group isn't in the input waits for it, as in a cluster.
func (g groups) Min(group pending.Group) (int, bool) {
	return g.min[group], g.used && !group.InTree
}

// withoutCoscheduling returns the warning about pods that belong to a group although no profile has Coscheduling; empty: there are
// none.
func withoutCoscheduling(waiting []*corev1.Pod) string {
	named := map[string]bool{}
	for _, pod := range waiting {
		if name := pod.Labels[podgroupv1alpha1.PodGroupLabel]; name != "" {
			named[pod.Namespace+"/"+name] = true
		}
	}
	if len(named) == 0 {
		return ""
	}
	return fmt.Sprintf("pods of the groups %s are planned one by one, as the scheduler places them: no profile has Coscheduling (--config names the scheduler's profiles; how to enable it: docs/configuration.md)",
		strings.Join(slices.Sorted(maps.Keys(named)), ", "))
}

// words records what the launcher reports about pods that it refuses before it plans.
type words struct{ refused []Refused }

// Pod implements provisioning.Recorder.
func (w *words) Pod(ref capacity.PodRef, _, reason, note string) {
	if reason == provisioning.EventGroupIgnored {
		return // not a refusal; withoutCoscheduling warns once for all
	}
	w.refused = append(w.refused, Refused{Namespace: ref.Namespace, Name: ref.Name, Reason: note})
}
