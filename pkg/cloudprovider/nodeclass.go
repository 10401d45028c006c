package cloudprovider

import (
	"github.com/awslabs/operatorpkg/status"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// NodeClassKind is what a cloud tells about its kind of node class. Objects of the kind are passed on as status.Object; only the cloud
// looks into their spec.
type NodeClassKind struct {
	schema.GroupVersionKind
	// Resource is the plural under which the API server serves the kind.
	Resource string
	// New returns an empty object, NewList an empty list of objects.
	New     func() status.Object
	NewList func() List
	// Definitions returns the definitions of Karpenter's kinds and of this one. The caller owns them.
	Definitions func() []*apiextensionsv1.CustomResourceDefinition
	// Finalizer keeps a deleted object until its cloud resources are removed.
	Finalizer string
	// HashKey and HashVersionKey are the annotations, on a node class and on its NodeClaims, with the hash that Hash returns.
	HashKey, HashVersionKey string
	// HashVersion is written beside each hash; only hashes of the same version can be compared. Where Karpenter has the kind, version and
	// hash are Karpenter's own, so that both agree on what has drifted.
	HashVersion string
	// Hash changes when nodes of the class would come out different in a way that only a new node can have. clusterCA is the certificate
	// with which nodes verify the API server.
	Hash func(nc status.Object, clusterCA string) string
	// Images returns the ids of the images that the cloud has resolved the class to.
	Images func(nc status.Object) []string
	// Resolve gives nc the status that the cloud has resolved, with its conditions.
	Resolve func(nc, resolved status.Object)
	// RepairPolicies say when nodes of the kind are unhealthy.
	RepairPolicies []RepairPolicy
	// ArgsField is the field of a profile's arguments that contains node classes.
	ArgsField string
	// ManagedBy is the name of the Dovetail that uses the kind, if there are several in the cluster. It isn't the cloud's: cmd sets it.
	ManagedBy string
}

// Label returns the label that has the class's name on NodeClaims and Nodes, with the name of the Dovetail whose objects count as managed.
func (k *NodeClassKind) Label() capacity.NodeClassLabel {
	return capacity.NodeClassLabel{Key: karpv1.NodeClassLabelKey(k.GroupKind()), ManagedBy: k.ManagedBy}
}

// List is a list of API objects.
type List interface {
	metav1.ListInterface
	runtime.Object
}
