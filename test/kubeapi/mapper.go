package kubeapi

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Mapper knows the resources of the scheme's kinds, so that clients needn't discover them: the server answers no discovery.
func Mapper(scheme *runtime.Scheme) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	clusterWide := sets.New("Namespace", "Node", "PersistentVolume", "PriorityClass", "StorageClass", "CSIDriver", "CSINode", "DeviceClass", "ResourceSlice")
	for kind := range scheme.AllKnownTypes() {
		if clusterWide.Has(kind.Kind) {
			m.Add(kind, meta.RESTScopeRoot)
			continue
		}
		m.Add(kind, meta.RESTScopeNamespace)
	}
	for _, g := range []string{"karpenter.sh", "karpenter.k8s.aws"} {
		for kind := range scheme.AllKnownTypes() {
			if kind.Group == g {
				m.Add(kind, meta.RESTScopeRoot)
			}
		}
	}
	return m
}
