package store

import (
	"context"
	"maps"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
)

func resolvedStatus(change ...func(*ec2nc.EC2NodeClassStatus)) ec2nc.EC2NodeClassStatus {
	st := ec2nc.EC2NodeClassStatus{
		Subnets:         []ec2nc.Subnet{{ID: "subnet-1", Zone: "us-west-2a"}},
		InstanceProfile: "profile",
	}
	for _, c := range []string{
		ec2nc.ConditionTypeSubnetsReady, ec2nc.ConditionTypeSecurityGroupsReady, ec2nc.ConditionTypeAMIsReady,
		ec2nc.ConditionTypeInstanceProfileReady, ec2nc.ConditionTypeValidationSucceeded,
	} {
		st.Conditions = append(st.Conditions, status.Condition{Type: c, Status: metav1.ConditionTrue, Reason: c})
	}
	for _, f := range change {
		f(&st)
	}
	return st
}

func conditions(o status.Object) map[string]string {
	out := map[string]string{}
	for _, c := range o.GetConditions() {
		s := string(c.Status)
		if c.Status != metav1.ConditionTrue {
			s += " " + c.Reason + ": " + c.Message
		}
		out[c.Type] = s
	}
	return out
}

func (w *world) getClass(name string) *ec2nc.EC2NodeClass {
	w.t.Helper()
	nc := &ec2nc.EC2NodeClass{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: name}, nc); err != nil {
		w.t.Fatal(err)
	}
	return nc
}

func TestSetNodeClassStatus(t *testing.T) {
	noSubnets := func(st *ec2nc.EC2NodeClassStatus) {
		st.Subnets = nil
		st.Conditions[0] = status.Condition{
			Type: ec2nc.ConditionTypeSubnetsReady, Status: metav1.ConditionFalse, Reason: "not a word", Message: "spec.subnetSelectorTerms matches nothing",
		}
	}
	ready := map[string]string{
		"SubnetsReady": "True", "SecurityGroupsReady": "True", "AMIsReady": "True", "InstanceProfileReady": "True", "ValidationSucceeded": "True",
		"PlacementGroupReady": "True", "Ready": "True",
	}
	with := func(more map[string]string) map[string]string {
		out := maps.Clone(ready)
		maps.Copy(out, more)
		return out
	}
	for name, tc := range map[string]struct {
		class  func(*ec2nc.EC2NodeClass)
		status ec2nc.EC2NodeClassStatus
		want   map[string]string
	}{
		"everything resolved": {status: resolvedStatus(), want: ready},
		"a part that failed makes the whole unready and says why": {
			status: resolvedStatus(noSubnets),
			want: with(map[string]string{
				"SubnetsReady": "False SubnetsReady: spec.subnetSelectorTerms matches nothing",
				"Ready":        "False UnhealthyDependents: SubnetsReady=False",
			}),
		},
		"the provider's own idea of Ready is not taken": {
			status: resolvedStatus(noSubnets, func(st *ec2nc.EC2NodeClassStatus) {
				st.Conditions = append(st.Conditions, status.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Sure"})
			}),
			want: with(map[string]string{
				"SubnetsReady": "False SubnetsReady: spec.subnetSelectorTerms matches nothing",
				"Ready":        "False UnhealthyDependents: SubnetsReady=False",
			}),
		},
		"a placement group that nobody resolves": {
			class:  func(nc *ec2nc.EC2NodeClass) { nc.Spec.PlacementGroupSelector = &ec2nc.PlacementGroupSelector{} },
			status: resolvedStatus(),
			want: with(map[string]string{
				"PlacementGroupReady": "False NotSupported: spec.placementGroupSelector: placement groups are not supported yet",
				"Ready":               "False UnhealthyDependents: PlacementGroupReady=False",
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			class := testClass("default")
			if tc.class != nil {
				tc.class(class)
			}
			w := newWorld(t, newFakeAPI(class)).ready()
			if err := w.SetNodeClassStatus(w.ctx, nodeclass.Resolved("default", 1, tc.status)); err != nil {
				t.Fatal(err)
			}
			got := w.getClass("default")
			if diff := cmp.Diff(tc.want, conditions(got)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.status.Subnets, got.Status.Subnets); diff != "" || got.Status.InstanceProfile != "profile" {
				t.Errorf("resolved values (-want +got):\n%s%s", diff, got.Status.InstanceProfile)
			}
		})
	}
}

func TestSetNodeClassStatusWritesOnlyWhatIsNewAndForTheRightSpec(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default"))).ready()
	set := func(name string, generation int64, st ec2nc.EC2NodeClassStatus) *ec2nc.EC2NodeClass {
		t.Helper()
		if err := w.SetNodeClassStatus(w.ctx, nodeclass.Resolved(name, generation, st)); err != nil {
			t.Fatal(err)
		}
		return w.getClass("default")
	}
	if got := set("default", 2, resolvedStatus()); len(got.Status.Subnets) != 0 {
		t.Error("a resolution of another generation was written")
	}
	first := set("default", 1, resolvedStatus())
	w.clock.Step(time.Hour)
	if again := set("default", 1, resolvedStatus()); again.ResourceVersion != first.ResourceVersion {
		t.Error("the same status was written twice")
	}
	// If the cache is behind, the write conflicts, and is repeated with the current object.
	moved := set("default", 1, resolvedStatus(func(st *ec2nc.EC2NodeClassStatus) { st.Subnets[0].ID = "subnet-2" }))
	if moved.Status.Subnets[0].ID != "subnet-2" {
		t.Error("a change was not written")
	}
	for i, c := range moved.Status.Conditions {
		if !c.LastTransitionTime.Equal(&first.Status.Conditions[i].LastTransitionTime) {
			t.Errorf("condition %s moved its transition to %v without one", c.Type, c.LastTransitionTime)
		}
	}
	set("nobody", 1, resolvedStatus())
}
