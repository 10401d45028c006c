package devices

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
)

// sharedSlice is a ResourceSlice that isn't for one node.
type sharedSlice struct {
	*resourcev1.ResourceSlice
	// on tells for the slice, or for each of its devices, on which nodes it can be used.
	on []func(*corev1.Node) bool
}

func newSharedSlice(s *resourcev1.ResourceSlice) *sharedSlice {
	out := &sharedSlice{ResourceSlice: s}
	if !ptr.Deref(s.Spec.PerDeviceNodeSelection, false) {
		out.on = append(out.on, usedOn(nil, s.Spec.AllNodes, s.Spec.NodeSelector))
		return out
	}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		out.on = append(out.on, usedOn(d.NodeName, d.AllNodes, d.NodeSelector))
	}
	return out
}

func usedOn(name *string, all *bool, selector *corev1.NodeSelector) func(*corev1.Node) bool {
	switch {
	case ptr.Deref(name, "") != "":
		return func(n *corev1.Node) bool { return n.Name == *name }
	case ptr.Deref(all, false):
		return func(*corev1.Node) bool { return true }
	case selector != nil:
		parsed, err := nodeaffinity.NewNodeSelector(selector)
		if err != nil {
			return func(*corev1.Node) bool { return true } // the allocator says what is wrong
		}
		return parsed.Match
	}
	return func(*corev1.Node) bool { return false }
}

// sharedOn returns the slices that matter to a node: all slices of each pool of devices of which the node can use a part, because the other slices
// decide whether that part may be used. The key names the slices and which of their devices the node can use; empty: none.
func sharedOn(all []*sharedSlice, node *corev1.Node) (out []*resourcev1.ResourceSlice, key string) {
	if len(all) == 0 {
		return nil, ""
	}
	matches := make([]string, len(all))
	pools := map[pool]bool{}
	for i, s := range all {
		m := make([]byte, 0, len(s.on))
		for _, on := range s.on {
			if on(node) {
				m = append(m, '1')
				pools[poolOf(s.ResourceSlice)] = true
			} else {
				m = append(m, '0')
			}
		}
		matches[i] = string(m)
	}
	var b strings.Builder
	for i, s := range all {
		if pools[poolOf(s.ResourceSlice)] {
			out = append(out, s.ResourceSlice)
			fmt.Fprintf(&b, "%s@%s@%s:%s,", s.Name, s.UID, s.ResourceVersion, matches[i])
		}
	}
	return out, b.String()
}

// setShared adds, replaces or removes a slice. The list that there was before isn't changed. The caller holds mu.
func (s *seen) setShared(slice *resourcev1.ResourceSlice, gone bool) {
	s.shared = slices.DeleteFunc(slices.Clone(s.shared), func(o *sharedSlice) bool { return o.Name == slice.Name })
	if !gone {
		i, _ := slices.BinarySearchFunc(s.shared, slice.Name, func(o *sharedSlice, name string) int { return strings.Compare(o.Name, name) })
		s.shared = slices.Insert(s.shared, i, newSharedSlice(slice))
	}
}
