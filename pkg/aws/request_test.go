package aws

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// forms returns a function that returns the parameters of every call of an action, as they were sent.
func (w *world) forms(action string) func() []url.Values {
	var mu sync.Mutex
	var out []url.Values
	w.sim.Before(action, func(r *sim.Request) *sim.Fault {
		mu.Lock()
		defer mu.Unlock()
		out = append(out, maps.Clone(r.Form))
		return nil
	})
	return func() []url.Values {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(out)
	}
}

func TestFleetOnTheWire(t *testing.T) {
	w := newWorld(t)
	fleets := w.forms("CreateFleet")
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.Context = ptr.To("ctx-1")
		nc.Spec.Tags = map[string]string{"cost": "42", "Name": "mine"}
	}))
	w.types("default")
	for _, v := range []capacity.LaunchBatch{
		newBatch("on-demand-token", "on-demand", 7, offer("m5.large", "a", "on-demand"), offer("m5.large", "b", "on-demand"), offer("nobody.large", "a", "on-demand")),
		newBatch("spot-token", "spot", 1, offer("m5.large", "c", "spot")),
	} {
		if _, err := w.Launch(w.ctx, w.prepared(v)); err != nil {
			t.Fatal(err)
		}
	}
	subnets := map[string]string{}
	for _, s := range w.status("default", func(ec2nc.EC2NodeClassStatus) bool { return true }).Subnets {
		subnets[s.Zone] = s.ID
	}
	forms := fleets()
	common := func(form url.Values) map[string]string {
		out := map[string]string{}
		for k, v := range form {
			if !strings.HasPrefix(k, "TagSpecification") && !strings.HasSuffix(k, "LaunchTemplateName") && k != "Action" && k != "Version" {
				out[k] = v[0]
			}
		}
		return out
	}
	const c = "LaunchTemplateConfigs.1."
	if diff := cmp.Diff(map[string]string{
		"Type": "instant", "ClientToken": "on-demand-token", "Context": "ctx-1", "OnDemandOptions.AllocationStrategy": "lowest-price",
		"TargetCapacitySpecification.TotalTargetCapacity": "7", "TargetCapacitySpecification.DefaultTargetCapacityType": "on-demand",
		c + "LaunchTemplateSpecification.Version": "$Latest",
		c + "Overrides.1.InstanceType":            "m5.large", c + "Overrides.1.AvailabilityZone": "us-west-2a", c + "Overrides.1.SubnetId": subnets["us-west-2a"],
		c + "Overrides.2.InstanceType": "m5.large", c + "Overrides.2.AvailabilityZone": "us-west-2b", c + "Overrides.2.SubnetId": subnets["us-west-2b"],
	}, common(forms[0])); diff != "" {
		t.Errorf("on-demand fleet (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{
		"Type": "instant", "ClientToken": "spot-token", "Context": "ctx-1", "SpotOptions.AllocationStrategy": "price-capacity-optimized",
		"TargetCapacitySpecification.TotalTargetCapacity": "1", "TargetCapacitySpecification.DefaultTargetCapacityType": "spot",
		c + "LaunchTemplateSpecification.Version": "$Latest",
		c + "Overrides.1.InstanceType":            "m5.large", c + "Overrides.1.AvailabilityZone": "us-west-2c", c + "Overrides.1.SubnetId": subnets["us-west-2c"],
	}, common(forms[1])); diff != "" {
		t.Errorf("spot fleet (-want +got):\n%s", diff)
	}
	for i, kind := range []string{"instance", "volume", "fleet"} {
		prefix := "TagSpecification." + string(rune('1'+i)) + "."
		if got := forms[0].Get(prefix + "ResourceType"); got != kind {
			t.Errorf("tags for %s, want %s", got, kind)
		}
		tags := map[string]string{}
		for n := 1; forms[0].Has(prefix + "Tag." + number(int64(n)) + ".Key"); n++ {
			tags[forms[0].Get(prefix+"Tag."+number(int64(n))+".Key")] = forms[0].Get(prefix + "Tag." + number(int64(n)) + ".Value")
		}
		if diff := cmp.Diff(map[string]string{
			"cost": "42", "Name": "mine", "kubernetes.io/cluster/films": "owned", "eks:eks-cluster-name": "films", "karpenter.sh/nodepool": "pool",
			"karpenter.k8s.aws/ec2nodeclass": "default", "dovetail.sh/launch-batch": "on-demand-token",
		}, tags); diff != "" {
			t.Errorf("tags of %s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestFieldsWithoutEffectAreReported(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "bottlerocket@latest"}}
		nc.Spec.Kubelet = &ec2nc.KubeletConfiguration{PodsPerCore: ptr.To[int32](3)}
	}))
	st := w.status("default", isReady("True"))
	if m := condition(st, ec2nc.ConditionTypeValidationSucceeded).Message; m != "spec.kubelet.podsPerCore: Bottlerocket has no such setting" {
		t.Errorf("ValidationSucceeded says %q", m)
	}
}
