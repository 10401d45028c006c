package whatif

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Gone is what would be lost or would have to move without some nodes.
type Gone struct {
	Nodes []*corev1.Node
	// Moved are the pods that a controller would create again; they have the names of those that are there now.
	Moved []*corev1.Pod
	// Lost are pods that no controller would create again.
	Lost []*corev1.Pod
}

// Without returns the cluster without the nodes of these names and their NodeClaims. Pods that a controller would create again wait for a
// node, after those that wait now: these get theirs before. Pods of DaemonSets, static pods and pods without a controller are gone with their nodes.
// An error names a node that is not there.
func Without(set *manifest.Set, names []string) (*manifest.Set, *Gone, error) {
	gone := &Gone{}
	for at, name := range names {
		if slices.Contains(names[:at], name) {
			continue
		}
		i := slices.IndexFunc(manifest.All[*corev1.Node](set), func(n *corev1.Node) bool { return n.Name == name })
		if i < 0 {
			return nil, nil, fmt.Errorf("there is no node %s", name)
		}
		gone.Nodes = append(gone.Nodes, manifest.All[*corev1.Node](set)[i])
	}
	var anew []client.Object
	after := set.Edit(func(o client.Object) client.Object {
		switch o := o.(type) {
		case *corev1.Node:
			if slices.Contains(names, o.Name) {
				return nil
			}
		case *karpv1.NodeClaim:
			if slices.Contains(names, cmp.Or(o.Status.NodeName, o.Name)) { // Booked calls the node of a claim that has none yet like the claim
				return nil
			}
		case *corev1.Pod:
			if slices.Contains(names, o.Spec.NodeName) {
				if pod := gone.pod(o); pod != nil {
					anew = append(anew, pod)
				}
				return nil
			}
		}
		return o
	})
	return after.With(anew...), gone, nil
}

// Counts reports whether new nodes would have to have capacity for a pod without its node: not for DaemonSet, static, ended and terminating pods.
func Counts(pod *corev1.Pod) bool {
	_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return !objects.Ended(pod) && !objects.OfDaemonSet(pod) && !static && pod.DeletionTimestamp == nil
}

// Anew returns the pod as it would be created again.
func Anew(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = ""
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	return pod
}

// pod returns what takes the place of a pod of a node that is gone; nil: nothing does.
func (g *Gone) pod(pod *corev1.Pod) *corev1.Pod {
	switch {
	case !Counts(pod):
		return nil
	case metav1.GetControllerOfNoCopy(pod) == nil:
		g.Lost = append(g.Lost, pod)
		return nil
	}
	g.Moved = append(g.Moved, pod)
	return Anew(pod)
}
