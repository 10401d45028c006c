package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	// takenRetry is how often a claim checks whether the Node that has its name is gone, in case the informer misses it.
	takenRetry = 5 * time.Second
	// eventGrace is how long it may take until the cloud controller manager's event about a Node that it deletes is written: it sends the
	// event before the deletion, and doesn't wait for it.
	eventGrace = 5 * time.Second
	eventPoll  = time.Second
	// eventDeleting is the reason of that event (k8s.io/cloud-provider, controllers/nodelifecycle).
	eventDeleting = "DeletingNode"
)

// recreation creates a Node again that the cloud controller manager deleted before its kubelet registered, because it didn't see the instance
// yet. As long as the claim lives, its pods are to run there; if the Node is back within 40 s under the same name, the pods bound to it
// survive.
//
// When anyone else deletes the Node, the claim ends, as after registration. Where that can't be determined, because this leader never saw
// the Node or may not read events, the Node is created again.
type recreation struct {
	nodes     *nodes
	sightings *sightings
	claims    claims
	recorder  recorder
	nodeFor   func(*karpv1.NodeClaim, capacity.Instance) (*corev1.Node, error) // builds the Node that is created ahead of the kubelet
	booting   memory[string, booting]                                          // by claim
}

// booting is a Node that was created ahead of its kubelet, as this leader last saw it.
type booting struct {
	uid types.UID // of the Node; empty: it was never seen, or it doesn't matter who deletes it
	// since is when the Node was first found missing; zero: it exists.
	since time.Time
}

func (r *recreation) reconcile(ctx context.Context, l *life) (time.Duration, error) {
	name := l.claim.Status.NodeName
	if l.match.node != nil {
		r.booting.put(l.claim.Name, booting{uid: l.match.node.UID})
		return 0, nil
	}
	if name == "" || !conditionTrue(l.claim, karpv1.ConditionTypeLaunched) ||
		conditionTrue(l.claim, karpv1.ConditionTypeRegistered) {
		return 0, nil
	}
	if l.match.taken != nil {
		return takenRetry, nil
	}
	inst, verdict, err := r.sightings.look(ctx, l.claim.Status.ProviderID, launchedAt(l.claim), 0)
	if err != nil {
		return 0, err
	}
	if verdict != alive {
		// The cloud controller manager may not see the instance either and have deleted the Node, with an event or without.
		r.booting.put(l.claim.Name, booting{})
		return lookEvery, nil // the stage liveness decides whether an instance that isn't seen ends the claim
	}
	if wait, ended, err := r.deletedByOthers(ctx, l); ended || wait > 0 || err != nil {
		return wait, err
	}
	node, err := r.nodeFor(l.claim, inst)
	if err != nil {
		return 0, fmt.Errorf("making the Node of NodeClaim %s: %w", l.claim.Name, err)
	}
	node.Name = name
	created, err := r.nodes.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return takenRetry, nil // the informer is behind, or the name belongs to another instance
	} else if err != nil {
		return 0, fmt.Errorf("creating Node %s again: %w", name, err)
	}
	recreations.Inc()
	klog.FromContext(ctx).V(2).Info("Node vanished before its kubelet registered, created it again", "node", klog.KObj(created))
	r.recorder.event(l.claim, created, corev1.EventTypeWarning, reasonNodeRecreated, "Recreate",
		"Node %s was deleted before its kubelet registered; created again because the instance lives", name)
	l.match.node = created
	r.booting.put(l.claim.Name, booting{uid: created.UID})
	return 0, nil
}

// deletedByOthers ends the claim of a Node that was deleted, but not by the cloud controller manager. While it isn't known yet who deleted the Node,
// wait is the time after which to ask again.
func (r *recreation) deletedByOthers(ctx context.Context, l *life) (wait time.Duration, ended bool, err error) {
	vanished := r.booting.update(l.claim.Name, func(b booting, _ bool) booting {
		if b.uid != "" && b.since.IsZero() {
			b.since = l.now
		}
		return b
	})
	if vanished.uid == "" {
		return 0, false, nil
	}
	byCloud, err := r.deletedByCloud(ctx, vanished.uid)
	switch {
	case err != nil:
		klog.FromContext(ctx).V(3).Info("Could not read who deleted a Node before its kubelet registered; it is created again", "node", l.claim.Status.NodeName, "err", err)
		return 0, false, nil
	case byCloud:
		return 0, false, nil
	case l.now.Sub(vanished.since) < eventGrace:
		return eventPoll, false, nil
	}
	r.recorder.event(l.claim, nil, corev1.EventTypeNormal, reasonNodeDeleted, "Delete",
		"Node %s was deleted before its kubelet registered, and not by the cloud controller manager: the instance is terminated", l.claim.Status.NodeName)
	klog.FromContext(ctx).V(2).Info("Node was deleted before its kubelet registered, deleting its NodeClaim", "node", l.claim.Status.NodeName)
	return 0, true, r.claims.end(ctx, l.claim)
}

// deletedByCloud reports whether the cloud controller manager has recorded that it deletes the Node.
func (r *recreation) deletedByCloud(ctx context.Context, uid types.UID) (bool, error) {
	list, err := r.nodes.kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(uid), "reason": eventDeleting}.String()})
	if err != nil {
		return false, fmt.Errorf("reading the events of a Node: %w", err)
	}
	return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.InvolvedObject.UID == uid && e.Reason == eventDeleting }), nil
}
