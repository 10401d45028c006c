package nodeclass

import (
	"slices"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// Kind is EC2NodeClass.
var Kind = cloudprovider.NodeClassKind{
	GroupVersionKind: schema.GroupVersionKind{Group: "karpenter.k8s.aws", Version: "v1", Kind: "EC2NodeClass"},
	Resource:         "ec2nodeclasses",
	New:              func() status.Object { return &ec2nc.EC2NodeClass{} },
	NewList:          func() cloudprovider.List { return &ec2nc.EC2NodeClassList{} },
	Definitions:      CRDs,
	Finalizer:        ec2nc.TerminationFinalizer,
	HashKey:          ec2nc.AnnotationEC2NodeClassHash,
	HashVersionKey:   ec2nc.AnnotationEC2NodeClassHashVersion,
	HashVersion:      ec2nc.EC2NodeClassHashVersion,
	Hash:             hash,
	Images:           images,
	Resolve:          resolve,
	RepairPolicies:   repairPolicies(),
	ArgsField:        "ec2NodeClasses",
}

func images(o status.Object) (out []string) {
	for _, image := range o.(*ec2nc.EC2NodeClass).Status.AMIs {
		out = append(out, image.ID)
	}
	return out
}

// resolve copies the resolved status to the node class o. If the resolved status has no condition about placement groups, the condition is added:
// True for a class that selects none.
func resolve(o, resolved status.Object) {
	nc := o.(*ec2nc.EC2NodeClass)
	nc.Status = *resolved.(*ec2nc.EC2NodeClass).Status.DeepCopy()
	if slices.ContainsFunc(nc.Status.Conditions, func(c status.Condition) bool { return c.Type == ec2nc.ConditionTypePlacementGroupReady }) {
		return
	}
	c := status.Condition{Type: ec2nc.ConditionTypePlacementGroupReady, Status: metav1.ConditionTrue, Reason: ec2nc.ConditionTypePlacementGroupReady}
	if nc.Spec.PlacementGroupSelector != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "NotSupported", "spec.placementGroupSelector: placement groups are not supported yet"
	}
	nc.Status.Conditions = append(nc.Status.Conditions, c)
}

// Resolved returns a node class with the status that a generation of its spec was resolved to.
func Resolved(name string, generation int64, st ec2nc.EC2NodeClassStatus) *ec2nc.EC2NodeClass {
	nc := &ec2nc.EC2NodeClass{Status: *st.DeepCopy()}
	nc.Name, nc.Generation = name, generation
	return nc
}
