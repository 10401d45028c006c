package main

import (
	"testing"

	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/plugins/binder"
	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// The example of a configuration without objects is one that the scheduler would start with.
func TestExampleProfiles(t *testing.T) {
	contents, err := manifests.Folder("examples/profile")
	if err != nil {
		t.Fatal(err)
	}
	o, _, err := scheme.Codecs.UniversalDecoder().Decode(contents[0], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := o.(*schedulerapi.KubeSchedulerConfiguration)
	var all []profile
	for _, p := range cfg.Profiles {
		one := profile{config: p}
		if one.args, err = provision.DecodeArgs(pluginargs.Of(p.PluginConfig, provision.Name)); err != nil {
			t.Fatal(err)
		}
		if one.binder, err = binder.DecodeArgs(pluginargs.Of(p.PluginConfig, binder.Name)); err != nil {
			t.Fatal(err)
		}
		if err := one.fits(all); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	if err := pools(emptyStore(t), onAWS(), all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || len(all[0].args.NodePools) != 2 || all[1].binder.EarliestBinding != binder.Registered || !all[1].args.PreemptFirst {
		t.Errorf("profiles %+v", all)
	}
}
