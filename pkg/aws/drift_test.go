package aws

import (
	"errors"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/drift"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// node launches an m5.large of class default, and returns what its claim says.
func (w *world) node(key capacity.OfferKey) cloudprovider.LaunchedNode {
	w.t.Helper()
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t-"+key.CapacityType, key.CapacityType, 1, key)))
	if err != nil || len(res.Instances) != 1 {
		w.t.Fatalf("launched %v, %v", res.Instances, err)
	}
	i, err := w.Describe(w.ctx, res.Instances[0].ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return cloudprovider.LaunchedNode{NodeClass: "default", InstanceID: i.ID, ImageID: i.ImageID, Labels: map[string]string{
		corev1.LabelInstanceTypeStable: i.InstanceType, corev1.LabelTopologyZone: i.Zone, karpv1.CapacityTypeLabelKey: i.CapacityType,
	}}
}

// edit makes the class another generation, and waits until it is resolved.
func (w *world) edit(generation int64, change func(*ec2nc.EC2NodeClass)) {
	w.t.Helper()
	w.SetNodeClass(nodeClass(change, func(nc *ec2nc.EC2NodeClass) { nc.Generation = generation }))
	w.types("default")
}

func (w *world) drifted(what string, n cloudprovider.LaunchedNode, want cloudprovider.DriftReason) {
	w.t.Helper()
	if got, err := w.Drifted(w.ctx, n); err != nil || got != want {
		w.t.Errorf("%s: drifted because of %q, want %q; %v", what, got, want, err)
	}
}

// Each edit of the class makes the instance drift, and none does once the class is as it was.
func TestInstancesDrift(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Drifted(w.ctx, cloudprovider.LaunchedNode{NodeClass: "default"}); err == nil {
		t.Error("compared with a class that isn't known")
	}
	w.edit(1, func(*ec2nc.EC2NodeClass) {})
	n := w.node(offer("m5.large", "a", "on-demand"))
	group := w.sim.AddPlacementGroup("apart", "spread", 0)
	for i, tc := range []struct {
		what   string
		change func(*ec2nc.EC2NodeClassSpec)
		want   cloudprovider.DriftReason
	}{
		{"nothing", func(*ec2nc.EC2NodeClassSpec) {}, ""},
		{"another image", func(s *ec2nc.EC2NodeClassSpec) {
			s.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "al2023@v20260814"}}
		}, drift.AMIDrift},
		{"the same image by its id", func(s *ec2nc.EC2NodeClassSpec) {
			s.AMISelectorTerms, s.AMIFamily = []ec2nc.AMISelectorTerm{{ID: n.ImageID}}, new("AL2023")
		}, ""},
		{"another security group", func(s *ec2nc.EC2NodeClassSpec) {
			s.SecurityGroupSelectorTerms = []ec2nc.SecurityGroupSelectorTerm{{ID: w.groupCalled("default")}}
		}, drift.SecurityGroupDrift},
		{"a security group more", func(s *ec2nc.EC2NodeClassSpec) {
			s.SecurityGroupSelectorTerms = append(s.SecurityGroupSelectorTerms, ec2nc.SecurityGroupSelectorTerm{ID: w.groupCalled("default")})
		}, drift.SecurityGroupDrift},
		{"another subnet", func(s *ec2nc.EC2NodeClassSpec) {
			s.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{ID: w.subnetIn("us-west-2b")}}
		}, drift.SubnetDrift},
		{"its own subnet among others", func(s *ec2nc.EC2NodeClassSpec) {
			s.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{ID: w.subnetIn("us-west-2b")}, {ID: w.subnetIn("us-west-2a")}}
		}, ""},
		{"a placement group", func(s *ec2nc.EC2NodeClassSpec) { s.PlacementGroupSelector = &ec2nc.PlacementGroupSelector{ID: &group} }, drift.PlacementGroupDrift},
		{"image, group and subnet", func(s *ec2nc.EC2NodeClassSpec) {
			s.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "al2023@v20260814"}}
			s.SecurityGroupSelectorTerms = []ec2nc.SecurityGroupSelectorTerm{{ID: w.groupCalled("default")}}
			s.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{ID: w.subnetIn("us-west-2b")}}
		}, drift.AMIDrift},
		{"group and subnet", func(s *ec2nc.EC2NodeClassSpec) {
			s.SecurityGroupSelectorTerms = []ec2nc.SecurityGroupSelectorTerm{{ID: w.groupCalled("default")}}
			s.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{ID: w.subnetIn("us-west-2b")}}
		}, drift.SecurityGroupDrift},
		{"nothing any more", func(*ec2nc.EC2NodeClassSpec) {}, ""},
	} {
		w.edit(int64(i+2), func(nc *ec2nc.EC2NodeClass) { tc.change(&nc.Spec) })
		w.drifted(tc.what, n, tc.want)
	}

	none := n
	none.Labels = map[string]string{corev1.LabelInstanceTypeStable: "m5.gone", corev1.LabelTopologyZone: "us-west-2a"}
	if got, err := w.Drifted(w.ctx, none); err == nil {
		t.Errorf("a young node of a type that the region doesn't have: drifted because of %q", got)
	}
	none.TypeCounts = true
	w.drifted("an old node of a type that the region doesn't have", none, cloudprovider.InstanceTypeNotFound)

	if before := len(w.sim.Calls("DescribeInstances")); before > 0 {
		w.drifted("again", n, "")
		if after := len(w.sim.Calls("DescribeInstances")); after != before {
			t.Errorf("%d calls to compare an instance that was seen before", after-before)
		}
	}
}

// Instances that List shows are compared without a call; one that it doesn't show is described; before it was called nothing is known.
func TestInstancesAreComparedAsListed(t *testing.T) {
	w := newWorld(t)
	w.edit(1, func(*ec2nc.EC2NodeClass) {})
	n := w.node(offer("m5.large", "a", "on-demand"))
	w.seen = &drift.Seen{}
	if got, err := w.Drifted(w.ctx, n); err == nil {
		t.Errorf("nothing was seen of the instance: drifted because of %q", got)
	}
	if _, err := w.List(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.drifted("listed", n, "")
	w.seen.Keep(map[string]bool{})
	w.drifted("not listed", n, "")
	n.InstanceID = "i-00000000000000000"
	if got, err := w.Drifted(w.ctx, n); !errors.Is(err, capacity.ErrInstanceNotFound) {
		t.Errorf("an instance that isn't there: %q, %v", got, err)
	}
}

// An instance that is about to end is shown without its network.
func TestEndedInstancesDoNotDrift(t *testing.T) {
	w := newWorld(t)
	w.edit(1, func(*ec2nc.EC2NodeClass) {})
	n := w.node(offer("m5.large", "a", "on-demand"))
	if err := w.Terminate(w.ctx, n.InstanceID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Describe(w.ctx, n.InstanceID); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Drifted(w.ctx, n); !errors.Is(err, capacity.ErrInstanceNotFound) {
		t.Errorf("drifted because of %q, %v", got, err)
	}
}

// EC2 moves instances out of reservations that end, and only then they have not drifted.
func TestReservedInstancesDrift(t *testing.T) {
	w := newWorld(t)
	id := w.sim.Reserve(sim.Reservation{Type: "m5.large", Zone: "us-west-2a", Count: 1})
	selects := func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.CapacityReservationSelectorTerms = []ec2nc.CapacityReservationSelectorTerm{{ID: id}}
	}
	w.edit(1, selects)
	if w.reserved("m5.large") == nil {
		t.Fatal("no reserved offering")
	}
	key := offer("m5.large", "a", "reserved")
	key.ReservationID = id
	n := w.node(key)
	w.drifted("selected", n, "")
	w.edit(2, func(*ec2nc.EC2NodeClass) {})
	w.drifted("not selected any more", n, drift.CapacityReservationDrift)
	w.sim.CancelReservation(id)
	w.drifted("the reservation has ended", n, "")
}

// The control plane is upgraded: @latest is another image then.
func TestImagesFollowTheControlPlane(t *testing.T) {
	w := newWorld(t, func(c *Config, _ *sim.Config) {
		c.JoinEvery, c.ImagesEvery = 10*time.Millisecond, time.Hour
		c.KubernetesVersion = "1.36" // as the API server says at start
	})
	w.edit(1, func(*ec2nc.EC2NodeClass) {})
	n := w.node(offer("m5.large", "a", "on-demand"))
	w.drifted("before", n, "")
	w.sim.SetKubernetesVersion("1.37")
	w.status("default", func(st ec2nc.EC2NodeClassStatus) bool { return len(st.AMIs) > 0 && !hasImage(st, n.ImageID) })
	w.drifted("after", n, drift.AMIDrift)
}

func hasImage(st ec2nc.EC2NodeClassStatus, id string) bool {
	for i := range st.AMIs {
		if st.AMIs[i].ID == id {
			return true
		}
	}
	return false
}
