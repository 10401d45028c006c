package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
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
			if enables(p, plugin) || pluginargs.Of(p.PluginConfig, plugin) != nil {
				t.Errorf("profile %s still has %s", p.SchedulerName, plugin)
			}
		}
		if !enables(p, "NodeResourcesFit") {
			t.Errorf("profile %s has no filters", p.SchedulerName)
		}
	}
	// No nodes are launched for pods of the profile without our plugins.
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

func TestNamespaceSelectorOfTheConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	write := func(selector string) {
		config := `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Provision}, {name: Binder}]}},
  pluginConfig: [{name: Provision, args: {clusterName: c, namespaceSelector: ` + selector + `}}]}]`
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for selector, want := range map[string]string{"null": "<nil>", "{}": "", "{matchLabels: {team: a}}": "team=a"} {
		write(selector)
		c, err := readConfig(file)
		if err != nil {
			t.Fatal(err)
		}
		var s offline.Settings
		if c.apply(&s); fmt.Sprint(s.NamespaceSelector) != want {
			t.Errorf("%s selects %q, want %q", selector, fmt.Sprint(s.NamespaceSelector), want)
		}
	}
	write("{matchExpressions: [{key: team, operator: Like}]}")
	if _, err := readConfig(file); err == nil || !strings.Contains(err.Error(), `namespaceSelector.matchExpressions[0].operator: Invalid value: "Like"`) {
		t.Errorf("refused with %v", err)
	}
}
