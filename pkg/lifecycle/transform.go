package lifecycle

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudproviderapi "k8s.io/cloud-provider/api"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// HideEphemeralTaints returns a cache.TransformFunc for the scheduler's Node informer. It takes taints that disappear by themselves out of
// spec.taints of managed Nodes, so that pods can be bound before the kubelet registers, and keeps them in objects.AnnotationHiddenTaints,
// where Taints finds them.
//
//   - Before the node is initialized it hides not-ready, uninitialized and unregistered. It hides unreachable:NoSchedule, too, unless the
//     kubelet has posted its status and has then stopped.
//   - While the node is Ready it hides not-ready and unreachable:NoSchedule: these taints follow the condition some time later, and a pod that
//     is refused for them would get another node.
//   - All other taints stay visible, such as startup taints. On a Node with objects.AnnotationFailed all taints do.
//
// It decides from the object alone, so only a change of the Node (its labels, its conditions, objects.AnnotationFailed) changes what is hidden.
// It doesn't change the object that it is given, because a fake or a shared decoder may use that, too. Objects that aren't Nodes are returned
// as they are: tombstones contain a Node that was transformed before. Applying it twice is the same as once.
func HideEphemeralTaints(nodeClass capacity.NodeClassLabel) cache.TransformFunc {
	return func(obj any) (any, error) {
		if node, ok := obj.(*corev1.Node); ok {
			return hideTaints(node, nodeClass.Managed(node)), nil
		}
		return obj, nil
	}
}

func hideTaints(node *corev1.Node, managed bool) *corev1.Node {
	_, again := node.Annotations[objects.AnnotationHiddenTaints]
	var visible, hidden []corev1.Taint
	for _, t := range Taints(node) {
		if managed && hides(node, &t) {
			hidden = append(hidden, t)
		} else {
			visible = append(visible, t)
		}
	}
	if len(hidden) == 0 && !again {
		return node
	}

	out := *node
	out.Annotations = maps.Clone(node.Annotations)
	out.Spec.Taints = visible
	delete(out.Annotations, objects.AnnotationHiddenTaints)
	if len(hidden) > 0 {
		data, err := json.Marshal(hidden)
		if err != nil {
			return node // can't happen, because no part of a taint can fail to marshal; a Node with all of its taints visible is the safe answer
		}
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[objects.AnnotationHiddenTaints] = string(data)
	}
	return &out
}

// Taints returns the taints that a Node has in the API, whether it was read through HideEphemeralTaints or not. The caller must not change
// them.
func Taints(node *corev1.Node) []corev1.Taint {
	hidden := HiddenTaints(node)
	if len(hidden) == 0 {
		return node.Spec.Taints
	}
	out := make([]corev1.Taint, 0, len(node.Spec.Taints)+len(hidden))
	out = append(out, node.Spec.Taints...)
	for _, t := range hidden {
		if !hasTaint(out, &t) {
			out = append(out, t)
		}
	}
	return out
}

// HiddenTaints returns the taints that HideEphemeralTaints took out of a Node.
func HiddenTaints(node *corev1.Node) []corev1.Taint {
	data, ok := node.Annotations[objects.AnnotationHiddenTaints]
	if !ok {
		return nil
	}
	var hidden []corev1.Taint
	if err := json.Unmarshal([]byte(data), &hidden); err != nil {
		return nil // not ours: someone wrote the annotation to the API
	}
	return hidden
}

// hides reports whether to hide a taint of a managed node from the scheduler: the node was not given up, and the taint will be removed by
// itself.
func hides(node *corev1.Node, t *corev1.Taint) bool {
	if _, failed := node.Annotations[objects.AnnotationFailed]; failed {
		return false
	}
	initialized := node.Labels[karpv1.NodeInitializedLabelKey] == "true"
	return stale(node, t) || !initialized && (ephemeral(t) || unreached(t) && !silent(node))
}

// stale reports whether the node is Ready and the taint says that it isn't. The node lifecycle controller adds and removes these taints some time
// after the condition has changed, seconds later when many nodes boot at once. A Node that is created ahead of its kubelet counts as unreachable
// first; the taint for that may be written only when the node is initialized already.
func stale(node *corev1.Node, t *corev1.Taint) bool {
	return (t.Key == corev1.TaintNodeNotReady || unreached(t)) && objects.Ready(node)
}

// silent reports whether the kubelet was there and isn't heard from any more.
func silent(node *corev1.Node) bool {
	cond := objects.ReadyCondition(node)
	return objects.Posted(node) && (cond == nil || cond.Status == corev1.ConditionUnknown)
}

// unreached reports whether the taint is unreachable:NoSchedule: the node lifecycle controller doesn't hear from the kubelet. The taint
// unreachable:NoExecute evicts pods, so the scheduler has to see that one.
func unreached(t *corev1.Taint) bool {
	return t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoSchedule
}

// ephemeral reports whether a healthy node loses the taint by itself and pods may be bound in spite of it.
func ephemeral(t *corev1.Taint) bool {
	switch t.Key {
	case corev1.TaintNodeNotReady, cloudproviderapi.TaintExternalCloudProvider, karpv1.UnregisteredTaintKey:
		return true
	}
	return false
}

func hasTaint(taints []corev1.Taint, t *corev1.Taint) bool {
	for i := range taints {
		if taints[i].MatchTaint(t) {
			return true
		}
	}
	return false
}
