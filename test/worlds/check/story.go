package check

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Tell writes what happened, a line for each step in the life of a pod, a node or a NodeClaim.
func (e *Evidence) Tell(w io.Writer) {
	if len(e.Events) == 0 {
		return
	}
	began := e.Events[0].At
	last := map[types.UID]string{}
	for _, ev := range e.Events {
		line := ""
		switch o := ev.Object.(type) {
		case *corev1.Pod:
			line = tellPod(o)
		case *corev1.Node:
			line = tellNode(o)
		case *karpv1.NodeClaim:
			line = tellClaim(o)
		}
		if ev.Type == watch.Deleted && line != "" {
			line += ", deleted"
		}
		if uid := ev.Object.GetUID(); line != "" && last[uid] != line {
			last[uid] = line
			fmt.Fprintf(w, "%8.3fs %s\n", ev.At.Sub(began).Round(time.Millisecond).Seconds(), line)
		}
	}
}

func tellPod(p *corev1.Pod) string {
	line := fmt.Sprintf("pod %s/%s %s", p.Namespace, p.Name, p.Status.Phase)
	if p.Spec.NodeName != "" {
		line += " on " + p.Spec.NodeName
	}
	if p.DeletionTimestamp != nil {
		line += ", ending"
	}
	return line
}

func tellNode(n *corev1.Node) string {
	line := fmt.Sprintf("node %s (%s in %s)", n.Name, n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelTopologyZone])
	for _, key := range []string{karpv1.NodeRegisteredLabelKey, karpv1.NodeInitializedLabelKey} {
		if n.Labels[key] == "true" {
			line += " " + strings.TrimPrefix(key, "karpenter.sh/")
		}
	}
	for _, t := range n.Spec.Taints {
		line += " " + t.ToString()
	}
	return fmt.Sprintf("%s, cpu %s, memory %s", line, n.Status.Allocatable.Cpu(), n.Status.Allocatable.Memory())
}

func tellClaim(c *karpv1.NodeClaim) string {
	var pods []string
	slots, err := slotsOf(c.Annotations[plannedAnnotation])
	if err != nil {
		return fmt.Sprintf("claim %s: %v", c.Name, err)
	}
	for _, s := range slots {
		name := s.Pod.Name
		if s.Owner != "" {
			name = "one of owner " + string(s.Owner)
		}
		pods = append(pods, fmt.Sprintf("%s(%.6s %d)", name, s.Class, s.Order))
	}
	slices.Sort(pods)
	line := fmt.Sprintf("claim %s for %s", c.Name, strings.Join(pods, " "))
	if c.Status.ProviderID != "" {
		line += " is " + c.Status.ProviderID + " " + c.Status.NodeName
	}
	if c.DeletionTimestamp != nil {
		line += ", ending"
	}
	return line
}
