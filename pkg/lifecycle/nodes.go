package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// errNodeReplaced is returned when another Node has the name now.
var errNodeReplaced = errors.New("the Node was replaced by another of the same name")

// patchNode reads a Node live, applies change and writes the difference, on the condition that the Node was not written in between (with
// three tries). It returns the Node as it now is. Taints are a list without a merge key: without the condition a patch could undo another
// controller's change.
func (c *Controller) patchNode(ctx context.Context, name string, uid types.UID, change func(*corev1.Node)) (*corev1.Node, error) {
	var err error
	for range 3 {
		var node *corev1.Node
		if node, err = c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return nil, fmt.Errorf("reading Node %s: %w", name, err)
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
		out, err = c.kube.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
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

// deleteNode deletes this very Node, not a new one of its name.
func (c *Controller) deleteNode(ctx context.Context, node *corev1.Node) error {
	err := c.kube.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	if err != nil && !gone(err) {
		return fmt.Errorf("deleting Node %s: %w", node.Name, err)
	}
	return nil
}

// gone reports whether the error means that the Node no longer exists, or was changed or replaced.
func gone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || errors.Is(err, errNodeReplaced)
}

// nodeChanged enqueues what a Node (or its tombstone) concerns.
func (c *Controller) nodeChanged(obj any) {
	node, ok := untomb(obj).(*corev1.Node)
	if !ok {
		return
	}
	names := c.index.find(node.Spec.ProviderID, node.Name)
	if node.Spec.ProviderID == "" {
		// It may be one of ours under another name; the Node created ahead has the same address.
		if ip := objects.InternalIP(node); ip != "" {
			for _, other := range c.nodesIndexed(objects.IndexNodesByInternalIP, ip) {
				names = append(names, c.index.find(other.Spec.ProviderID, other.Name)...)
			}
		}
	}
	for _, name := range names {
		c.enqueue(key{claim: name})
	}
	if finalized(node) && node.DeletionTimestamp != nil && len(c.claimsOf(node)) == 0 {
		c.enqueue(key{node: node.Name})
	}
}

// claimsOf returns the claims that the Node may belong to; a claim that only waits for its name is not among them.
func (c *Controller) claimsOf(node *corev1.Node) []string {
	if node.Spec.ProviderID == "" {
		return c.index.find("", node.Name)
	}
	return c.index.find(node.Spec.ProviderID, "")
}

// finalized reports whether the Node is managed and has our finalizer: its deletion terminates its instance.
func finalized(node *corev1.Node) bool { return capacity.Managed(node) && hasFinalizer(node) }

func hasFinalizer(obj metav1.Object) bool {
	for _, f := range obj.GetFinalizers() {
		if f == karpv1.TerminationFinalizer {
			return true
		}
	}
	return false
}

func addFinalizer(obj metav1.Object) {
	if !hasFinalizer(obj) {
		obj.SetFinalizers(append(obj.GetFinalizers(), karpv1.TerminationFinalizer))
	}
}

func dropFinalizer(obj metav1.Object) {
	var out []string
	for _, f := range obj.GetFinalizers() {
		if f != karpv1.TerminationFinalizer {
			out = append(out, f)
		}
	}
	obj.SetFinalizers(out)
}

func dropTaint(node *corev1.Node, taintKey string) {
	var out []corev1.Taint
	for _, t := range node.Spec.Taints {
		if t.Key != taintKey {
			out = append(out, t)
		}
	}
	node.Spec.Taints = out
}

func setTaint(node *corev1.Node, t corev1.Taint) {
	if !hasTaint(node.Spec.Taints, &t) {
		node.Spec.Taints = append(node.Spec.Taints, t)
	}
}

// Disrupt taints a Node that may be disrupted soon, so that no new pods are scheduled there; nothing else changes.
func (c *Controller) Disrupt(ctx context.Context, node *corev1.Node) error {
	_, err := c.patchNode(ctx, node.Name, node.UID, func(n *corev1.Node) {
		dropTaint(n, karpv1.DisruptedTaintKey) // of another effect
		setTaint(n, karpv1.DisruptedNoScheduleTaint)
	})
	return err
}

// Undisrupt removes Disrupt's taint. It doesn't change a Node that is gone or being deleted.
func (c *Controller) Undisrupt(ctx context.Context, node *corev1.Node) error {
	_, err := c.patchNode(ctx, node.Name, node.UID, func(n *corev1.Node) {
		if n.DeletionTimestamp == nil {
			dropTaint(n, karpv1.DisruptedTaintKey)
		}
	})
	if gone(err) {
		return nil
	}
	return err
}

// LastPodEvent returns when a pod was last bound to a node, began to end there or left it, as far as this process has seen; zero: never. It
// may be later than what the claim's status says.
func (c *Controller) LastPodEvent(node string) time.Time {
	at, _ := c.podEvents.last(node)
	return at
}
