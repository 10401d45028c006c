package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// errNodeReplaced is returned when another Node has the name now.
var errNodeReplaced = errors.New("the Node was replaced by another of the same name")

// nodes reads Nodes from the scheduler's informer, and reads them live and writes them through the API.
type nodes struct {
	kube      kubernetes.Interface
	informer  cache.SharedIndexInformer
	lister    corelisters.NodeLister
	sightings *sightings
	nodeClass capacity.NodeClassLabel
}

// finalized reports whether the Node is managed and has our finalizer: its deletion terminates its instance.
func (n *nodes) finalized(node *corev1.Node) bool {
	return n.nodeClass.Managed(node) && hasFinalizer(node)
}

// get reads a Node live.
func (n *nodes) get(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := n.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	return node, nil
}

func (n *nodes) byProviderID(id string) []*corev1.Node {
	if id == "" {
		return nil
	}
	return n.indexed(objects.IndexNodesByProviderID, id)
}

func (n *nodes) indexed(index, value string) []*corev1.Node {
	objs, err := n.informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // can't happen: only an unknown index is an error, and addIndexes has added both indexes
	}
	out := make([]*corev1.Node, 0, len(objs))
	for _, obj := range objs {
		if n, ok := obj.(*corev1.Node); ok {
			out = append(out, n)
		}
	}
	return out
}

func (n *nodes) addIndexes() error {
	err := n.informer.AddIndexers(cache.Indexers{
		objects.IndexNodesByProviderID: func(obj any) ([]string, error) {
			if n, ok := obj.(*corev1.Node); ok && n.Spec.ProviderID != "" {
				return []string{n.Spec.ProviderID}, nil
			}
			return nil, nil
		},
		objects.IndexNodesByInternalIP: func(obj any) ([]string, error) {
			if n, ok := obj.(*corev1.Node); ok && objects.InternalIP(n) != "" {
				return []string{objects.InternalIP(n)}, nil
			}
			return nil, nil
		},
	})
	if err != nil {
		return fmt.Errorf("indexing nodes: %w", err)
	}
	return nil
}

// patch reads a Node live, applies change and writes the difference, on the condition that the Node has not been written by another client since
// the read; after a conflict it begins anew, with three tries in all. It returns the Node as it is then. Taints are a list without a merge key:
// without the condition a patch could undo another controller's change.
func (n *nodes) patch(ctx context.Context, name string, uid types.UID, change func(*corev1.Node)) (*corev1.Node, error) {
	var err error
	for range 3 {
		var node *corev1.Node
		if node, err = n.get(ctx, name); err != nil {
			return nil, err
		}
		if node.UID != uid {
			return nil, fmt.Errorf("changing Node %s: %w", name, errNodeReplaced)
		}
		want := node.DeepCopy()
		change(want)
		if equality.Semantic.DeepEqual(node, want) {
			return node, nil
		}
		var patch []byte
		if patch, err = nodePatch(node, want); err != nil {
			return nil, err
		}
		var out *corev1.Node
		out, err = n.kube.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			return out, nil
		}
		if !apierrors.IsConflict(err) {
			break
		}
	}
	return nil, fmt.Errorf("patching Node %s: %w", name, err)
}

// nodePatch returns the difference, with the resource version that it is based on.
func nodePatch(from, to *corev1.Node) ([]byte, error) {
	base := from.DeepCopy()
	base.ResourceVersion = "" // so that the version is part of the difference
	a, err := json.Marshal(base)
	if err != nil {
		return nil, fmt.Errorf("marshalling Node %s: %w", from.Name, err)
	}
	b, err := json.Marshal(to)
	if err != nil {
		return nil, fmt.Errorf("marshalling Node %s: %w", from.Name, err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(a, b, &corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("making a patch for Node %s: %w", from.Name, err)
	}
	return patch, nil
}

// remove deletes this very Node, not a new one of its name.
func (n *nodes) remove(ctx context.Context, node *corev1.Node) error {
	err := n.kube.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	if err != nil && !gone(err) {
		return fmt.Errorf("deleting Node %s: %w", node.Name, err)
	}
	return nil
}

// gone reports whether the error means that the Node no longer exists, or was changed or replaced.
func gone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || errors.Is(err, errNodeReplaced)
}
