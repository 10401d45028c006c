package karpenter

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
)

// Groups and versions of the kinds that are read and written here.
var (
	coreVersion    = schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}
	overlayVersion = schema.GroupVersion{Group: "karpenter.sh", Version: "v1alpha1"}
	bufferVersion  = schema.GroupVersion{Group: "autoscaling.x-k8s.io", Version: "v1beta1"}
	requestVersion = schema.GroupVersion{Group: "autoscaling.x-k8s.io", Version: "v1"}

	provisionerVersion = schema.GroupVersion{Group: "karpenter.sh", Version: "v1alpha5"}
	templateVersion    = schema.GroupVersion{Group: "karpenter.k8s.aws", Version: "v1alpha1"}
)

// Scheme returns a new scheme with Kubernetes' own types, CustomResourceDefinitions, Karpenter's types and a cloud's node classes. Importing the API packages
// also registers their types with client-go's scheme, so that any recorder can record events about them.
func Scheme(class cloudprovider.NodeClassKind) *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	s.AddKnownTypes(coreVersion, &karpv1.NodePool{}, &karpv1.NodePoolList{}, &karpv1.NodeClaim{}, &karpv1.NodeClaimList{})
	s.AddKnownTypes(overlayVersion, &karpv1alpha1.NodeOverlay{}, &karpv1alpha1.NodeOverlayList{})
	s.AddKnownTypes(bufferVersion, &autoscalingv1beta1.CapacityBuffer{}, &autoscalingv1beta1.CapacityBufferList{})
	s.AddKnownTypes(requestVersion, &provisioningv1.ProvisioningRequest{}, &provisioningv1.ProvisioningRequestList{})
	s.AddKnownTypes(class.GroupVersion(), class.New(), class.NewList())
	s.AddKnownTypes(provisionerVersion, &legacy.Provisioner{}, &legacy.ProvisionerList{})
	s.AddKnownTypes(templateVersion, &legacy.AWSNodeTemplate{}, &legacy.AWSNodeTemplateList{})
	for _, gv := range []schema.GroupVersion{coreVersion, overlayVersion, bufferVersion, requestVersion, class.GroupVersion(), provisionerVersion, templateVersion} {
		metav1.AddToGroupVersion(s, gv)
	}
	return s
}
