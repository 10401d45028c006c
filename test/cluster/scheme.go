package cluster

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
)

// Scheme knows the built-in types, NodePool, NodeClaim, NodeOverlay, CapacityBuffer, ProvisioningRequest, EC2NodeClass, Provisioner, AWSNodeTemplate and CustomResourceDefinition.
var Scheme = newScheme()

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	karpenter := schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}
	metav1.AddToGroupVersion(scheme, karpenter)
	scheme.AddKnownTypes(karpenter, &karpv1.NodePool{}, &karpv1.NodePoolList{}, &karpv1.NodeClaim{}, &karpv1.NodeClaimList{})
	aws := schema.GroupVersion{Group: "karpenter.k8s.aws", Version: "v1"}
	metav1.AddToGroupVersion(scheme, aws)
	scheme.AddKnownTypes(aws, &ec2nc.EC2NodeClass{}, &ec2nc.EC2NodeClassList{})
	overlays := schema.GroupVersion{Group: "karpenter.sh", Version: "v1alpha1"}
	metav1.AddToGroupVersion(scheme, overlays)
	buffers := schema.GroupVersion{Group: "autoscaling.x-k8s.io", Version: "v1beta1"}
	scheme.AddKnownTypes(buffers, &autoscalingv1beta1.CapacityBuffer{}, &autoscalingv1beta1.CapacityBufferList{})
	metav1.AddToGroupVersion(scheme, buffers)
	requests := schema.GroupVersion{Group: "autoscaling.x-k8s.io", Version: "v1"}
	scheme.AddKnownTypes(requests, &provisioningv1.ProvisioningRequest{}, &provisioningv1.ProvisioningRequestList{})
	metav1.AddToGroupVersion(scheme, requests)
	scheme.AddKnownTypes(overlays, &karpv1alpha1.NodeOverlay{}, &karpv1alpha1.NodeOverlayList{})
	provisioners := schema.GroupVersion{Group: "karpenter.sh", Version: "v1alpha5"}
	metav1.AddToGroupVersion(scheme, provisioners)
	scheme.AddKnownTypes(provisioners, &legacy.Provisioner{}, &legacy.ProvisionerList{})
	templates := schema.GroupVersion{Group: "karpenter.k8s.aws", Version: "v1alpha1"}
	metav1.AddToGroupVersion(scheme, templates)
	scheme.AddKnownTypes(templates, &legacy.AWSNodeTemplate{}, &legacy.AWSNodeTemplateList{})
	return scheme
}
