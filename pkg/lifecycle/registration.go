package lifecycle

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// registration takes note of the kubelet's registration.
type registration struct {
	nodes       *nodes
	pods        *boundPods
	reports     *reports
	recorder    recorder
	registering func(claim, node, providerID string) // tells the ledger the Node's name before pods may be bound there
}

// reconcile completes a Node whose kubelet has posted its status: it adds the termination finalizer and everything that the claim promises,
// and removes the unregistered taint. From here on the deletion of the Node terminates the instance.
func (r *registration) reconcile(ctx context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	if !conditionTrue(l.claim, karpv1.ConditionTypeLaunched) {
		return 0, nil
	}
	if conditionTrue(l.claim, karpv1.ConditionTypeRegistered) && (node == nil || node.Labels[karpv1.NodeRegisteredLabelKey] == "true") {
		return 0, nil // a Node without the label was created anew by its kubelet
	}
	set := l.conditions()
	switch {
	case l.match.many:
		set.SetFalse(karpv1.ConditionTypeRegistered, "MultipleNodesFound",
			"more than one Node says it is this instance: "+strings.Join(names(l.match.all()), ", "))
		return 0, nil
	case node == nil && l.match.taken != nil:
		set.SetUnknownWithReason(karpv1.ConditionTypeRegistered, "NodeNameTaken",
			"waiting for Node "+l.match.taken.Name+" of another instance to be deleted")
		return 0, nil
	case node == nil || !objects.Posted(node) || node.DeletionTimestamp != nil:
		return 0, nil
	}

	// A kubelet may register before its Node's name has been recorded on the claim.
	ahead := node.Name == l.claim.Status.NodeName || ownedBy(node, l.claim)
	// The Node's capacity has to be reserved for its planned pods before other pods may go there: a kubelet may register before the cloud's API
	// shows its instance, and so before the launch has told the ledger the Node's name.
	r.registering(l.claim.Name, node.Name, l.claim.Status.ProviderID)
	missing := false
	patched, err := r.nodes.patch(ctx, node.Name, node.UID, func(n *corev1.Node) {
		_, done := n.Labels[karpv1.NodeRegisteredLabelKey]
		missing = !done && !ahead && !hasTaintKey(n.Spec.Taints, karpv1.UnregisteredTaintKey)
		// User data makes the kubelet register with the unregistered taint and the startup taints together. So a Node with the unregistered
		// taint has had the startup taints, too; if it is Ready, their agents have had time to remove them, and they must not be set again.
		came := objects.Ready(n) && hasTaintKey(n.Spec.Taints, karpv1.UnregisteredTaintKey)
		syncNode(n, l.claim, ahead || came)
	})
	if gone(err) {
		return 0, nil // the informer will report the change
	} else if err != nil {
		return 0, err
	}
	if missing {
		r.recorder.event(l.claim, nil, corev1.EventTypeWarning, reasonUnregisteredTaintMissing, "Register",
			"Node %s registered without the %s taint: pods may have been bound before it was ready for them", node.Name, karpv1.UnregisteredTaintKey)
	}
	if err := r.removeStale(ctx, l); err != nil {
		return 0, err
	}
	if name := l.claim.Status.NodeName; name != "" && name != node.Name {
		r.recorder.event(l.claim, patched, corev1.EventTypeWarning, reasonOtherName, "Register",
			"the kubelet registered as %s, not as %s: check the node name form of the node class", node.Name, name)
		set.SetTrueWithReason(karpv1.ConditionTypeRegistered, reasonOtherName, "expected as "+name)
	} else {
		set.SetTrue(karpv1.ConditionTypeRegistered)
	}
	l.claim.Status.NodeName = node.Name
	l.match = match{node: patched}
	if !r.reports.first(l.claim.Name, nodeRegistered) {
		return 0, nil // the registration was counted before: the claim's status could not be written, or the kubelet has created its Node anew
	}
	countRegistration(l)
	klog.FromContext(ctx).V(2).Info("Node registered", "node", klog.KObj(node), "after", l.now.Sub(launchedAt(l.claim)))
	return 0, nil
}

// removeStale removes the Nodes that were created ahead under a name that the kubelet didn't register with, and the pods that were bound
// there: no kubelet will ever run them, and the pod garbage collector would take most of a minute to notice.
func (r *registration) removeStale(ctx context.Context, l *life) error {
	for _, n := range l.match.stale {
		if err := r.nodes.remove(ctx, n); err != nil {
			return err
		}
		if err := r.pods.kill(ctx, n.Name, func(*corev1.Pod) bool { return true }); err != nil {
			return err
		}
	}
	return nil
}

// announcement reports each registered node once per process, so that others can learn from what its kubelet reports.
type announcement struct {
	reports    *reports
	registered func(claim *karpv1.NodeClaim, node *corev1.Node) // learns from what the kubelet of a new node reports
}

func (a *announcement) reconcile(_ context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	if node == nil || node.Labels[karpv1.NodeRegisteredLabelKey] != "true" || !conditionTrue(l.claim, karpv1.ConditionTypeRegistered) {
		return 0, nil
	}
	if a.reports.first(l.claim.Name, kubeletReported) {
		a.registered(l.claim, node)
	}
	return 0, nil
}

// syncNode adds to a Node what its claim promises. A Node that had its startup taints from the beginning, for example because it was
// created ahead, doesn't get them again: a missing one has been removed by the agent it was waiting for.
func syncNode(n *corev1.Node, claim *karpv1.NodeClaim, hadStartupTaints bool) {
	addFinalizer(n)
	ownNode(n, claim)
	if n.Spec.ProviderID == "" {
		n.Spec.ProviderID = claim.Status.ProviderID
	}
	if n.Labels[karpv1.NodeDoNotSyncTaintsLabelKey] != "true" {
		for _, t := range claim.Spec.Taints {
			setTaint(n, t)
		}
		if _, done := n.Labels[karpv1.NodeRegisteredLabelKey]; !done && !hadStartupTaints {
			for _, t := range claim.Spec.StartupTaints {
				setTaint(n, t)
			}
		}
	}
	dropTaint(n, karpv1.UnregisteredTaintKey)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	if _, done := n.Labels[karpv1.NodeRegisteredLabelKey]; !done {
		delete(n.Labels, corev1.LabelNodeExcludeBalancers) // it was set because the instance didn't run yet; the claim's own comes next
	}
	maps.Copy(n.Labels, claim.Labels)
	n.Labels[karpv1.NodeRegisteredLabelKey] = "true"
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	for k, v := range claim.Annotations {
		if !strings.HasPrefix(k, objects.Prefix) { // what Dovetail notes on the claim is of no use on its Node
			n.Annotations[k] = v
		}
	}
}

// ownNode makes the claim an owner of its Node.
func ownNode(n *corev1.Node, claim *karpv1.NodeClaim) {
	if ownedBy(n, claim) {
		return
	}
	yes := true
	n.OwnerReferences = append(n.OwnerReferences, metav1.OwnerReference{
		APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: claim.Name, UID: claim.UID, BlockOwnerDeletion: &yes,
	})
}

// ownedBy reports whether the Node was created ahead for the claim, or has been registered: a kubelet sets no owner.
func ownedBy(n *corev1.Node, claim *karpv1.NodeClaim) bool {
	return slices.ContainsFunc(n.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == claim.UID })
}

func hasTaintKey(taints []corev1.Taint, taintKey string) bool {
	for i := range taints {
		if taints[i].Key == taintKey {
			return true
		}
	}
	return false
}

func names(nodes []*corev1.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return out
}
