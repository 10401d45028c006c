package pods

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Index adds the index that OnNode uses to the informer. It may be called more than once, and at any time before the informer stops.
func Index(informer cache.SharedIndexInformer) error {
	if _, ok := informer.GetIndexer().GetIndexers()[objects.IndexPodsByNode]; ok {
		return nil
	}
	err := informer.AddIndexers(cache.Indexers{objects.IndexPodsByNode: func(obj any) ([]string, error) {
		if p, ok := obj.(*corev1.Pod); ok && p.Spec.NodeName != "" {
			return []string{p.Spec.NodeName}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return fmt.Errorf("indexing pods by node: %w", err)
	}
	return nil
}

// OnNode returns the pods bound to a node, as the informer knows them. They are shared and must not be changed.
func OnNode(indexer cache.Indexer, node string) ([]*corev1.Pod, error) {
	objs, err := indexer.ByIndex(objects.IndexPodsByNode, node)
	if err != nil {
		return nil, fmt.Errorf("finding the pods of node %s: %w", node, err)
	}
	out := make([]*corev1.Pod, 0, len(objs))
	for _, obj := range objs {
		if p, ok := obj.(*corev1.Pod); ok {
			out = append(out, p)
		}
	}
	return out, nil
}
