package karpenter

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
)

// CustomKind is a custom resource of Karpenter's API or of a cloud.
type CustomKind struct {
	schema.GroupVersionKind
	Resource string
	// New returns an empty object, NewList an empty list of objects.
	New     func() client.Object
	NewList func() client.ObjectList
}

// The kinds of Karpenter's API.
var (
	NodePools = CustomKind{coreVersion.WithKind("NodePool"), "nodepools",
		func() client.Object { return &karpv1.NodePool{} }, func() client.ObjectList { return &karpv1.NodePoolList{} }}
	NodeClaims = CustomKind{coreVersion.WithKind("NodeClaim"), "nodeclaims",
		func() client.Object { return &karpv1.NodeClaim{} }, func() client.ObjectList { return &karpv1.NodeClaimList{} }}
	NodeOverlays = CustomKind{overlayVersion.WithKind("NodeOverlay"), "nodeoverlays",
		func() client.Object { return &karpv1alpha1.NodeOverlay{} }, func() client.ObjectList { return &karpv1alpha1.NodeOverlayList{} }}
	// CapacityBuffers and ProvisioningRequests are of an API that other autoscalers implement, too.
	CapacityBuffers = CustomKind{bufferVersion.WithKind("CapacityBuffer"), "capacitybuffers",
		func() client.Object { return &autoscalingv1beta1.CapacityBuffer{} }, func() client.ObjectList { return &autoscalingv1beta1.CapacityBufferList{} }}
	ProvisioningRequests = CustomKind{requestVersion.WithKind("ProvisioningRequest"), "provisioningrequests",
		func() client.Object { return &provisioningv1.ProvisioningRequest{} }, func() client.ObjectList { return &provisioningv1.ProvisioningRequestList{} }}

	// Provisioners and NodeTemplates are kinds of Karpenter's older API.
	Provisioners = CustomKind{provisionerVersion.WithKind("Provisioner"), "provisioners",
		func() client.Object { return &legacy.Provisioner{} }, func() client.ObjectList { return &legacy.ProvisionerList{} }}
	NodeTemplates = CustomKind{templateVersion.WithKind(templateKind), "awsnodetemplates",
		func() client.Object { return &legacy.AWSNodeTemplate{} }, func() client.ObjectList { return &legacy.AWSNodeTemplateList{} }}
)

// NodeClasses returns the kind of a cloud's node classes.
func NodeClasses(class cloudprovider.NodeClassKind) CustomKind {
	return CustomKind{class.GroupVersionKind, class.Resource, func() client.Object { return class.New() }, func() client.ObjectList { return class.NewList() }}
}
