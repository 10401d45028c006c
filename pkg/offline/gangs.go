package offline

import (
	"fmt"

	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/launch"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
)

// groups are the PodGroups of the input. A pod whose group isn't there is planned on its own.
type groups map[launch.Group]int

// newGroups reads PodGroups. problems name those that can't be.
func newGroups(set *manifest.Set) (groups, []error) {
	out := groups{}
	var problems []error
	for _, g := range manifest.All[*podgroupv1alpha1.PodGroup](set) {
		if g.Spec.MinMember < 1 {
			problems = append(problems, fmt.Errorf("%s: PodGroup %s/%s: spec.minMember: must be at least 1, not %d", set.SourceOf(g), g.Namespace, g.Name, g.Spec.MinMember))
		}
		out[launch.Group{Namespace: g.Namespace, Name: g.Name}] = int(g.Spec.MinMember)
	}
	return out, problems
}

// Min implements launch.Gangs.
func (g groups) Min(group launch.Group) (int, bool) {
	min, ok := g[group]
	return min, ok
}

// words takes down what the launcher says of pods that it refuses before it plans.
type words struct{ refused []Refused }

// Pod implements launch.Recorder.
func (w *words) Pod(ref capacity.PodRef, _, _, note string) {
	w.refused = append(w.refused, Refused{Namespace: ref.Namespace, Name: ref.Name, Reason: note})
}
