package provisioning

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/devices"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/limits"
)

// A node that may be launched as one of several types has devices for certain only if all of them have these.
func TestDevicesOfAPlannedNode(t *testing.T) {
	offer := func(devices string) capacity.NodeOffer {
		return capacity.NodeOffer{Type: &capacity.InstanceType{Devices: devices}}
	}
	for name, tc := range map[string]struct {
		offers []capacity.NodeOffer
		want   string
	}{
		"none":             {nil, ""},
		"one":              {[]capacity.NodeOffer{offer("gpu")}, "gpu"},
		"two alike":        {[]capacity.NodeOffer{offer("gpu"), offer("gpu")}, "gpu"},
		"one without any":  {[]capacity.NodeOffer{offer("gpu"), offer("")}, ""},
		"one with another": {[]capacity.NodeOffer{offer("gpu"), offer("nic")}, ""},
	} {
		if got := CertainDevices(&capacity.PlannedNode{Offers: tc.offers}); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Once it is known which type was launched, a node in flight has that one's devices, whatever the plan left open.
func TestDevicesOfANodeInFlight(t *testing.T) {
	of := devices.New(nil, nil, clock.RealClock{})
	if _, err := of.SetNodeClass("gpus", map[string]string{objects.AnnotationDevices: "- {instanceTypes: [g5.xlarge], driver: gpu.example.com, count: 2}"}, false); err != nil {
		t.Fatal(err)
	}
	claim := func(name, instanceType string) *capacity.Claim {
		return &capacity.Claim{Name: name, NodeClass: "gpus", InstanceType: instanceType}
	}
	vi := &viewer{devices: limits.NewDevices(of), claims: &claims{of: map[string]*capacity.Claim{"booting": claim("booting", ""), "g5": claim("g5", "g5.xlarge"), "m5": claim("m5", "m5.xlarge")}}}
	planned := &capacity.Node{Kind: capacity.NodeKind{Devices: "planned"}}
	for name, want := range map[string]string{"booting": "planned", "unknown": "planned", "g5": of.Template("gpus", "g5.xlarge", ""), "m5": ""} {
		if got := vi.launched(&ledger.InFlight{Claim: name, Template: planned}).Kind.Devices; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if planned.Kind.Devices != "planned" {
		t.Error("the ledger's node was changed")
	}
}
