package simulate

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// classKey identifies pods that share one PreFilter. Pods of one class share it, unless they use different PersistentVolumeClaims or ResourceClaims.
type classKey struct {
	class   capacity.ClassKey
	claims  string
	filters *filters
}

// keyOf returns the step's classKey. Pods of one class may use different claims of the same kind.
func (w *World) keyOf(step capacity.Step) classKey {
	pod := step.Pod
	key := classKey{class: step.Class, filters: w.of(pod)}
	if key.class == "" {
		key.claims = string(pod.UID)
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		key.claims = string(pod.UID)
		return key
	}
	var claims strings.Builder
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if name := objects.ClaimName(pod, v); name != "" {
			claims.WriteString("/" + name)
		}
		if v.Ephemeral != nil {
			claims.WriteString("=" + string(pod.UID))
		}
	}
	key.claims += claims.String()
	return key
}

// class is the result of PreFilter for the pods of a class, updated with what was placed since.
//
//	          PreFilter                 placements seen by AddPod
//	(none) ---------------> current <--------------------------- behind
//	   ^                       |                                   ^ |
//	   |                       +-------- pods are placed ----------+ |
//	   +------- a placement that AddPod can't handle (void) ---------+
//
// A class is behind if its state lacks some placements. It catches up only when its next pod is checked, so classes without further pods cost
// nothing.
type class struct {
	by    *filters    // of the pods' profile
	pod   *corev1.Pod // the one for which PreFilter ran
	state fwk.CycleState
	// refused is the answer for every node when PreFilter refuses the pod itself.
	refused *verdict
	// nodes are those to which PreFilter restricts the pod (nil: all nodes), and outside is the answer for the others.
	nodes   sets.Set[string]
	outside verdict
	// seen is how many of the trial's placements the state includes.
	seen   int
	spread *spread // nil: the pods have no hard spread constraints
	// cautious says that spread knows only the hosts near the trial's nodes, and takes for granted that another has none of the counted pods: what the
	// filters accept then they accept whatever is elsewhere, but PodTopologySpread may refuse too much.
	cautious bool
	// skipped are the plugins with AddPod that had nothing to do for this pod when PreFilter ran. Their Filter is not called, nor is
	// their AddPod: a placement that would give them something to do makes the state void.
	skipped   sets.Set[string]
	namespace labels.Set // labels of the pod's namespace
}

// verdict is the filters' rejection of one pod on a node, or their failure, with kube-scheduler's message.
type verdict struct{ plugin, reason string }

func verdictOf(s *fwk.Status) *verdict {
	if s.IsRejected() {
		return &verdict{s.Plugin(), s.Message()}
	}
	return &verdict{s.Plugin(), s.AsError().Error()}
}

// preFilter creates the class's state for the present state of the trial, from the nodes near the trial's where others don't matter.
func (t *trial) preFilter(ctx context.Context, pod *corev1.Pod) (*class, error) {
	by := t.world.of(pod)
	if by.allNodes {
		return t.preFilterAll(ctx, pod)
	}
	nearby := t.near.of(pod)
	if nearby == nil {
		return t.preFilterAll(ctx, pod)
	}
	t.world.lister.SharedLister = nearby
	c, err := t.preFilterAll(ctx, pod)
	t.world.lister.SharedLister = t.overlay
	switch {
	case err != nil || c.spread == nil:
		return c, err
	case len(pod.Spec.TopologySpreadConstraints) == 0: // the profile's default constraints, which compare with all domains
		by.allNodes = true
		return t.preFilterAll(ctx, pod)
	}
	c.cautious = true
	c.spread.assumeEmpty()
	return c, nil
}

// preFilterAll is the same for the nodes that the lister shows.
func (t *trial) preFilterAll(ctx context.Context, pod *corev1.Pod) (*class, error) {
	c := &class{by: t.world.of(pod), pod: pod, state: framework.NewCycleState(), seen: len(t.placed)}
	result, status, narrowedBy := c.by.framework.RunPreFilterPlugins(ctx, c.state, pod)
	if err := ctx.Err(); err != nil { // PreFilter may have stopped early without reporting it
		return nil, err
	}
	if !status.IsSuccess() {
		c.refused = verdictOf(status)
		if c.refused.plugin == "" {
			c.refused.plugin = strings.Join(sets.List(narrowedBy), ",")
		}
		return c, nil
	}
	if !result.AllNodes() {
		c.nodes = result.NodeNames
		c.outside = verdict{
			plugin: strings.Join(sets.List(narrowedBy), ","),
			reason: fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(narrowedBy)),
		}
	}
	c.skipped = c.by.extended.Intersection(c.state.GetSkipFilterPlugins())
	if c.skipped.Has(names.InterPodAffinity) {
		c.namespace = interpodaffinity.GetNamespaceLabelsSnapshot(klog.FromContext(ctx), pod.Namespace, t.world.namespaces)
	}
	var err error
	c.spread, err = spreadOf(c.state)
	return c, err
}

// catchUp adds what was placed since the last call to the class's state. It returns false when the state is void.
func (t *trial) catchUp(ctx context.Context, c *class) (bool, error) {
	for ; c.seen < len(t.placed); c.seen++ {
		p := t.placed[c.seen]
		if t.voids(p, c) {
			return false, nil
		}
		if c.refused != nil || len(c.skipped) == len(c.by.extended) {
			continue
		}
		nodeLabels := p.node.Node().Labels
		if c.spread != nil {
			c.spread.beforeAdd(nodeLabels)
		}
		if s := c.by.framework.RunPreFilterExtensionAddPod(ctx, c.state, c.pod, p.pod, p.node); !s.IsSuccess() {
			return false, fmt.Errorf("adding pod %s to the filters' state: %w", klog.KObj(p.pod.Pod), s.AsError())
		}
		if c.spread != nil {
			c.spread.afterAdd(nodeLabels)
		}
	}
	return true, nil
}

// voids reports whether the placement changes the result of the class's PreFilter in a way that AddPod can't follow.
func (t *trial) voids(p placement, c *class) bool {
	if c.by.recalled.Len() > 0 {
		return true
	}
	if t.world.devices.uses(p.pod.Pod) && t.world.devices.uses(c.pod) {
		return true
	}
	if c.refused != nil {
		return false
	}
	for name := range c.skipped {
		switch name {
		case names.PodTopologySpread:
			// It skips pods without constraints, and placements don't change that.
		case names.InterPodAffinity:
			for i := range p.pod.RequiredAntiAffinityTerms {
				if p.pod.RequiredAntiAffinityTerms[i].Matches(c.pod, c.namespace) {
					return true
				}
			}
		case names.VolumeRestrictions:
			// See below.
		default:
			return true
		}
	}
	// VolumeRestrictions counts a ReadWriteOncePod claim once however many pods use it, and its AddPod doesn't check the namespace.
	// Shared claims are rare, so running PreFilter again is cheap enough.
	return len(c.pod.Spec.Volumes) > 0 && sets.New(claimNames(c.pod)...).HasAny(claimNames(p.pod.Pod)...)
}
