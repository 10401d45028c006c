package devices

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

// inRack returns a pool of devices that the nodes of one rack can use; empty: all nodes.
func inRack(rack string, devices ...string) *resourcev1.ResourceSlice {
	s := publish("", 0, 1, devices...)
	s.Name, s.Spec.Pool.Name, s.Spec.NodeName = "rack-"+rack, "rack-"+rack, nil
	if rack == "" {
		s.Spec.AllNodes = ptr.To(true)
		return s
	}
	s.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{rack}}}}}}
	return s
}

// Nodes that have nothing in common with a slice for many nodes keep their counts, and the others are counted when that slice, or what is
// allocated of it, changes.
func TestSharedSlicesAreCached(t *testing.T) {
	s, c := newSource()
	one := key(t, s, c.pod("one", 1))
	near, far := &corev1.Node{}, &corev1.Node{}
	near.Name, near.Labels, far.Name = "near", map[string]string{"rack": "r1"}, "far"
	s.SliceChanged(publish("near", 0, 1, "a"), false)
	s.SliceChanged(publish("far", 0, 1, "a", "b"), false)
	expect := func(what string, wantNear, wantFar int64, recounted int) {
		t.Helper()
		before := len(s.counts)
		f := s.Free()
		for range 2 {
			if got := f.On(near)[one]; got != wantNear {
				t.Errorf("%s: %d are free near the rack, want %d", what, got, wantNear)
			}
			if got := f.On(far)[one]; got != wantFar {
				t.Errorf("%s: %d are free elsewhere, want %d", what, got, wantFar)
			}
		}
		if got := len(s.counts) - before; got != recounted {
			t.Errorf("%s: %d nodes were counted, want %d", what, got, recounted)
		}
	}
	expect("their own", 1, 2, 2)
	s.SliceChanged(inRack("r1", "x", "y"), false)
	expect("with the rack's", 3, 2, 1)
	c.allocated.AllocatedDevices.Insert(structured.MakeDeviceID("gpu.example.com", "rack-r1", "x"))
	expect("one of the rack's is taken", 2, 2, 1)
	c.allocated.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(structured.MakeDeviceID("gpu.example.com", "elsewhere", "z"), ptr.To(types.UID("1"))))
	expect("a part of a device elsewhere", 2, 2, 0)
	c.allocated.AllocatedDevices.Insert(structured.MakeDeviceID("gpu.example.com", "elsewhere", "x"))
	expect("another node's device", 2, 2, 0)
	s.SliceChanged(inRack("", "everywhere"), false)
	expect("one for all nodes", 3, 3, 2)
	s.SliceChanged(inRack("r1", "x", "y"), true)
	expect("the rack is gone", 2, 3, 1)
	for _, n := range []*corev1.Node{near, far} {
		if got := s.Published(n); len(got) != 1 {
			t.Errorf("%s: %v is published", n.Name, got)
		}
	}
	before := len(s.counts)
	if got := s.Counts("", nil)[one]; got != 1 {
		t.Errorf("a new node has %d", got)
	}
	s.Counts("", map[string]string{"rack": "r1"})
	s.Counts("", nil)
	if got := len(s.counts) - before; got != 1 {
		t.Errorf("new nodes were counted %d times", got)
	}
	if s.SliceChanged(inRack("r1", "x", "y"), false); s.Counts("", map[string]string{"rack": "r1"})[one] != 3 || s.Counts("", nil)[one] != 1 {
		t.Error("labels of new nodes make no difference")
	}
}

// Devices that say themselves on which nodes they can be used.
func TestDevicesWithNodesOfTheirOwn(t *testing.T) {
	s := inRack("", "a", "b", "c")
	s.Spec.AllNodes, s.Spec.PerDeviceNodeSelection = nil, ptr.To(true)
	s.Spec.Devices[0].NodeName, s.Spec.Devices[1].AllNodes = ptr.To("n1"), ptr.To(true)
	s.Spec.Devices[2].NodeSelector = inRack("r1").Spec.NodeSelector
	all := []*sharedSlice{newSharedSlice(s)}
	n1, n2, racked := &corev1.Node{}, &corev1.Node{}, &corev1.Node{}
	n1.Name, n2.Name, racked.Name, racked.Labels = "n1", "n2", "n3", map[string]string{"rack": "r1"}
	keys := map[string]bool{}
	for _, n := range []*corev1.Node{n1, n2, racked} {
		out, key := sharedOn(all, n)
		if len(out) != 1 {
			t.Errorf("%s sees %d slices", n.Name, len(out))
		}
		keys[key] = true
	}
	if len(keys) != 3 {
		t.Errorf("nodes that can use different devices are taken for alike: %v", keys)
	}
}
