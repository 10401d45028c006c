package disruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// surging are the pods of a move that a roll-out of their Deployments replaces, before the move's other pods are evicted.
type surging struct {
	since time.Time // when the Deployments were restarted; zero: they weren't
	pods  map[types.UID]types.NamespacedName
	over  bool // these pods are gone, or are evicted after all because the roll-outs took too long
}

func (s *surging) begun() bool { return !s.since.IsZero() }

// errSurging is why a move doesn't begin to drain whose pods are being replaced by a roll-out.
var errSurging = errors.New("it is being replaced by a roll-out")

// surge has the Deployments that ask for it replace their pods of a move's nodes, once. missing and err mean what they mean for begin; if both are
// nil, there is nothing to wait for. bound are all pods on the nodes, leaving are those for which capacity is reserved.
func (v *moves) surge(ctx context.Context, mv *move, bound []*corev1.Pod, leaving map[string][]*corev1.Pod, now time.Time) (missing, err error) {
	if mv.surging.begun() {
		return nil, nil
	}
	asking := map[types.UID]types.NamespacedName{}
	for _, k := range v.rules.Look(bound) {
		switch ask := v.rules.Surge(k, now); {
		case ask == nil:
		case ask.Err == nil:
			asking[k.UID] = ask.Deployment
		case !mv.ends(k.Spec.NodeName):
			return fmt.Errorf("a roll-out of Deployment %s: %w", ask.Deployment, ask.Err), nil
		}
	}
	var going []*corev1.Pod
	for _, all := range leaving {
		for _, p := range all {
			if asking[p.UID].Name != "" {
				going = append(going, p)
			}
		}
	}
	if len(going) == 0 {
		return nil, nil
	}
	if err := v.planner.Surge(mv.Key, leaving, going); err != nil {
		return nil, err
	}
	mv.begun, mv.surging.since, mv.surging.pods = true, now, map[types.UID]types.NamespacedName{}
	for _, p := range going {
		mv.surging.pods[p.UID] = asking[p.UID]
	}
	for _, name := range mv.surging.deployments() {
		d, err := v.rules.Surges.Restart(ctx, name)
		if err != nil {
			return nil, err
		}
		d.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
		v.recorder.Eventf(d, nil, corev1.EventTypeNormal, reasonSurge, "Disrupt", "Restarted to replace its pods on node %s (node %s: %s): capacity for the new pods is reserved, and the old ones end when the new ones are available",
			strings.Join(mv.Nodes, ", "), mv.Nodes[0], dueText(v.budgets.reasons.of(mv.Reason), &mv.Due, mv.sources[0].candidate))
		klog.FromContext(ctx).V(2).Info("Restarted a Deployment to move its pods", "deployment", name, "move", mv.Key, "nodes", mv.Nodes)
	}
	return errSurging, nil
}

// ends reports whether a node of the move is drained even if its pods may not be evicted.
func (mv *move) ends(node string) bool {
	return mv.drifted() && slices.ContainsFunc(mv.sources, func(src *source) bool { return src.node.Name == node && hasDeadline(src.candidate) })
}

// without returns the pods that don't leave by a roll-out.
func (s *surging) without(bound []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(bound), func(p *corev1.Pod) bool { return s.pods[p.UID].Name != "" })
}

// surged returns an error that names a pod which the roll-outs of a move have not replaced yet; nil: there is none, or only pods that are evicted
// now, because their roll-out took too long and their node is drained in any case.
func (v *moves) surged(mv *move, bound []*corev1.Pod, now time.Time) (missing error) {
	if !mv.surging.begun() || mv.surging.over {
		return nil
	}
	late := false
	for _, p := range bound {
		of, yes := mv.surging.pods[p.UID]
		switch {
		case !yes || objects.Ended(p) || pods.Terminating(p):
		case now.Sub(mv.surging.since) >= moveTimeout && mv.ends(p.Spec.NodeName):
			late = true
		default:
			return fmt.Errorf("pod %s is still there: %w of Deployment %s", klog.KObj(p), errSurging, of)
		}
	}
	if late {
		v.failSurge(mv, errors.New("they are evicted, because the NodeClaim has a terminationGracePeriod"))
		mv.surging.over = true
		return nil
	}
	mv.surging.over = true
	for _, of := range mv.surging.deployments() {
		v.rules.Surges.Ended(of, true)
	}
	return nil
}

// deployments returns the Deployments of the pods, sorted.
func (s *surging) deployments() []types.NamespacedName {
	return slices.Compact(slices.SortedFunc(maps.Values(s.pods), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }))
}

// failSurge says on the Deployments that a roll-out didn't move their pods in time.
func (v *moves) failSurge(mv *move, why error) {
	if !mv.surging.begun() || mv.surging.over {
		return
	}
	for _, name := range mv.surging.deployments() {
		v.rules.Surges.Ended(name, false)
		d := &metav1.PartialObjectMetadata{}
		d.Namespace, d.Name = name.Namespace, name.Name
		d.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
		v.recorder.Eventf(d, nil, corev1.EventTypeWarning, reasonSurgeGivenUp, "Disrupt", "The roll-out didn't move the pods off their node in time: %v", why)
	}
}
