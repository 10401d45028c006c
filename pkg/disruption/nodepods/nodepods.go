// Package nodepods finds the pods of a node, in the informer's cache or at the API server.
package nodepods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
)

// Reader finds the pods of a node. Pods has the index of pods.Index.
type Reader struct {
	Kube kubernetes.Interface
	Pods cache.Indexer
}

// Cached returns the pods that the informer knows. They are shared; the slice isn't.
func (r Reader) Cached(node string) ([]*corev1.Pod, error) { return pods.OnNode(r.Pods, node) }

// Live asks the API server.
func (r Reader) Live(ctx context.Context, node string) ([]*corev1.Pod, error) {
	list, err := r.Kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	out := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}
