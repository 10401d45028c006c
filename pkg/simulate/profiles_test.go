package simulate

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Each pod is checked by its own profile: here one that ignores taints.
func TestPodsAreJudgedByTheirOwnProfile(t *testing.T) {
	blind := func(c *clusterConfig) {
		p := *c.profile.DeepCopy()
		p.SchedulerName = "blind"
		p.Plugins.MultiPoint.Enabled = slices.DeleteFunc(p.Plugins.MultiPoint.Enabled, func(e schedulerapi.Plugin) bool {
			return e.Name == names.TaintToleration
		})
		c.also = []Also{{Profile: p}}
	}
	c := newCluster(t, nil, blind)
	tainted := node("n", "a").Taints([]corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}).Obj()
	c.load([]*corev1.Node{tainted}, nil)
	steps := []capacity.Step{}
	for _, name := range []string{corev1.DefaultSchedulerName, "blind", "nobody"} {
		p := pod("of-"+name, "web").SchedulerName(name).Obj()
		// One class on purpose: pods of several schedulers may have been merged into it.
		steps = append(steps, capacity.Step{Pod: p, Class: "web", Node: "n"})
	}
	got := c.verify(capacity.Trial{Steps: steps})
	if len(got) != 2 || !strings.HasPrefix(got[0], "0 TaintToleration") || !strings.HasPrefix(got[1], "2 TaintToleration") {
		t.Errorf("rejections %q, want those of the default profile and of a pod that nobody schedules", got)
	}
}
