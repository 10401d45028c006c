package check

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// judgeUnbound checks for every pod that is still not bound whether an existing node, or a node that can be launched, could host it.
func (h *history) judgeUnbound(ctx context.Context, r *Report, e *Evidence) error {
	last, err := newReplay(ctx)
	if err != nil {
		return err
	}
	defer func() { last.filters.stop() }()
	daemons, pools := map[types.UID]*appsv1.DaemonSet{}, map[types.UID]*karpv1.NodePool{}
	for _, ev := range h.events {
		switch o := ev.Object.(type) {
		case *appsv1.DaemonSet:
			if daemons[o.UID] = o; ev.Type == watch.Deleted {
				delete(daemons, o.UID)
			}
		case *karpv1.NodePool:
			if pools[o.UID] = o; ev.Type == watch.Deleted {
				delete(pools, o.UID)
			}
		case *corev1.Pod:
			if last.bound[o.UID] = o; ev.Type == watch.Deleted || over(o) || o.Spec.NodeName == "" {
				delete(last.bound, o.UID)
			}
		default:
			if err := last.take(ctx, r, ev); err != nil {
				return err
			}
		}
	}
	var machines []machine
	for _, p := range slices.SortedFunc(maps.Values(h.pods), func(a, b *pod) int { return int(a.created) - int(b.created) }) {
		if p.bound != 0 || p.ended != 0 {
			continue
		}
		if machines == nil {
			machines = offered(e, slices.Collect(maps.Values(pools)), slices.Collect(maps.Values(daemons)))
		}
		last.changed = true
		if err := last.refresh(ctx, p.last); err != nil {
			return err
		}
		host := last.host(ctx, p.last, machines)
		switch app := p.last.Labels["app"]; {
		case isDaemon(p.last):
			r.Odd = append(r.Odd, fmt.Sprintf("%s, of a DaemonSet, never got its room on %s; %s", p, target(p.last), condition(p.last)))
		case host == "":
			r.Refused++
		case e.Misfits[app]:
			r.Odd = append(r.Odd, fmt.Sprintf("%s was meant to fit nowhere, and %s could host it", p, host))
		default:
			r.Stranded = append(r.Stranded, fmt.Sprintf("%s: %s could host it; %s", p, host, condition(p.last)))
		}
	}
	return nil
}

// host returns an existing or launchable node that could host the pod, empty if there is none.
func (p *replay) host(ctx context.Context, o *corev1.Pod, machines []machine) string {
	bound := slices.Collect(maps.Values(p.bound))
	for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
		if p.filters.refusal(ctx, o, name, p.nodes, bound) == "" {
			return "node " + name
		}
	}
	for _, m := range machines {
		if !fits(o, m) {
			continue // a cheap check before the expensive one
		}
		nodes := maps.Clone(p.nodes)
		nodes[m.node.Name] = m.node
		if p.filters.refusal(ctx, o, m.node.Name, nodes, append(slices.Clip(bound), m.daemons...)) == "" {
			return fmt.Sprintf("a %s of pool %s in %s", m.node.Labels[corev1.LabelInstanceTypeStable], m.node.Labels[karpv1.NodePoolLabelKey], m.node.Labels[corev1.LabelTopologyZone])
		}
	}
	return ""
}

// target returns the node that a DaemonSet's pod is for.
func target(p *corev1.Pod) string {
	for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField {
				return f.Values[0]
			}
		}
	}
	return "no node in particular"
}

func condition(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return fmt.Sprintf("%s: %s", c.Reason, c.Message)
		}
	}
	return "the scheduler has said nothing about it"
}
