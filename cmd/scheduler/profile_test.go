package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedulerprofile "k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/dovetail-scheduler/dovetail/plugins/binder"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// listed is a running profile of which only the order of its plugins is used.
type listed struct {
	framework.Framework
	plugins schedulerapi.Plugins
}

func (l listed) ListPlugins() *schedulerapi.Plugins { return &l.plugins }

func set(names ...string) (out schedulerapi.PluginSet) {
	for _, n := range names {
		out.Enabled = append(out.Enabled, schedulerapi.Plugin{Name: n})
	}
	return out
}

// A profile in which other plugins run before ours is refused, with the field to change.
func TestOrderOfPlugins(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		preFilter, postFilter schedulerapi.PluginSet
		want                  string
	}{
		{name: "ours first", preFilter: set(binder.Name, "NodePorts"), postFilter: set(provision.Name, "DefaultPreemption")},
		{name: "under multiPoint only, Binder comes last", preFilter: set("Coscheduling", "NodePorts", binder.Name), postFilter: set(provision.Name),
			want: `profile "ours": plugins.preFilter: Binder must be the first preFilter plugin, but Coscheduling is: name it under preFilter.enabled, too`},
		{name: "preemption first", preFilter: set(binder.Name), postFilter: set("DefaultPreemption", provision.Name),
			want: `profile "ours": Provision must be the first postFilter plugin, but DefaultPreemption is: name it under postFilter, too`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plugins := schedulerapi.Plugins{PreEnqueue: set(binder.GateName), PreFilter: tc.preFilter, Filter: set("NodePorts", binder.Name),
				PostFilter: tc.postFilter, Reserve: set(binder.Name), PostBind: set(binder.Name)}
			sched := &scheduler.Scheduler{Profiles: schedulerprofile.Map{"ours": listed{plugins: plugins}}}
			cfg := &schedulerapi.KubeSchedulerConfiguration{Profiles: []schedulerapi.KubeSchedulerProfile{{SchedulerName: "ours",
				PluginConfig: []schedulerapi.PluginConfig{{Name: provision.Name, Args: &runtime.Unknown{Raw: []byte("clusterName: dev")}}}}}}
			got := ""
			if _, err := ourProfiles(cfg, sched); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}
