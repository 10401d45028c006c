package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

func TestReadConfig(t *testing.T) {
	c, err := readConfig("testdata/scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range c.profiles {
		p := &c.profiles[i]
		names = append(names, p.SchedulerName)
		for _, plugin := range []string{"Provision", "Binder", "Coscheduling"} {
			if enables(p, plugin) || argsOf(p, plugin) != nil {
				t.Errorf("profile %s still has %s", p.SchedulerName, plugin)
			}
		}
		if !enables(p, "NodeResourcesFit") {
			t.Errorf("profile %s has no filters", p.SchedulerName)
		}
	}
	// The profile without our plugins has no nodes built for its pods.
	if diff := cmp.Diff([]string{"default-scheduler", "lenient"}, names); diff != "" {
		t.Errorf("profiles (-want +got):\n%s", diff)
	}
	var s offline.Settings
	c.apply(&s)
	if s.Plan.PriceFactor["m1"] != 1.5 || len(s.Pools) != 2 || len(s.Pools[0].Pools) != 1 || s.Pools[0].Selects != nil || s.Pools[1].Selects == nil || s.Pools[1].Selects(nil) {
		t.Errorf("settings %+v", s)
	}
	if !slices.ContainsFunc(c.profiles[1].Plugins.Filter.Disabled, func(p schedulerapi.Plugin) bool { return p.Name == "TaintToleration" }) {
		t.Error("the second profile has lost what it disables")
	}
}
