package planned

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/nodestatus"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// What is certain of a node's memory is the smallest share of all types that may be bought, and is found again on its Node.
func TestMemory(t *testing.T) {
	offer := func(memory, certain int64) capacity.NodeOffer {
		return capacity.NodeOffer{Type: &capacity.InstanceType{Allocatable: capacity.Resources{corev1.ResourceMemory: memory}, CertainMemory: certain}, Offer: capacity.Offer{}}
	}
	for name, tc := range map[string]struct {
		offers []capacity.NodeOffer
		unread bool
		want   int64 // of 2,000 bytes
	}{
		"known":                {offers: []capacity.NodeOffer{offer(1000, 0), offer(3000, 0)}},
		"one of two is known":  {offers: []capacity.NodeOffer{offer(1000, 0), offer(3000, 2817)}, want: 1878},
		"the smallest share":   {offers: []capacity.NodeOffer{offer(1000, 950), offer(3000, 2700)}, want: 1800},
		"next to nothing":      {offers: []capacity.NodeOffer{offer(1000000, 1)}, want: 1},
		"user data isn't read": {offers: []capacity.NodeOffer{offer(1000, 950)}, unread: true, want: nodestatus.NothingCertain},
	} {
		annotations := Annotations(&capacity.PlannedNode{Pool: &capacity.Pool{Unread: tc.unread}, Offers: tc.offers})
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2000")}}}
		if got := Memory(node, false).Certain; got != tc.want {
			t.Errorf("%s: %d bytes are certain, want %d (%v)", name, got, tc.want, annotations)
		}
		if got := Memory(node, true).Certain; tc.want > 0 && got != 2000 {
			t.Errorf("%s: %d bytes are certain of a registered node, want what its kubelet says", name, got)
		}
		node.Status.NodeInfo.KubeletVersion = "v1.36.4"
		if got := Memory(node, false).Certain; !tc.unread && got != 2000 {
			t.Errorf("%s: %d bytes are certain of a Node that its kubelet has made, want what it says", name, got)
		}
		if got := Memory(node, true).Certain; tc.want == 0 && got != 0 {
			t.Errorf("%s: %d bytes are certain of a registered node, want 0: as much as planned", name, got)
		}
		node.OwnerReferences = []metav1.OwnerReference{{Kind: "NodeClaim"}}
		if got, want := Memory(node, false).Certain, 2000; tc.want > 0 && got != int64(want) || tc.want == 0 && got != 0 {
			t.Errorf("%s: %d bytes are certain of a Node that was made ahead and posted by its kubelet", name, got)
		}
	}
	for _, odd := range []string{"", "x", "-1", "1", "2", "NaN"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{objects.AnnotationCertainMemory: odd}}}
		if got := Memory(node, false).Certain; got != 0 {
			t.Errorf("annotation %q: %d bytes are certain", odd, got)
		}
	}
}

// As in Karpenter, five types are enough, however many offerings each has.
func TestFewTypes(t *testing.T) {
	for n, want := range map[int]bool{1: true, 4: true, 5: false, 60: false} {
		var offers []capacity.NodeOffer
		for i := range n {
			typ := &capacity.InstanceType{Name: strconv.Itoa(i)}
			offers = append(offers, capacity.NodeOffer{Type: typ, Offer: capacity.Offer{Zone: "a"}}, capacity.NodeOffer{Type: typ, Offer: capacity.Offer{Zone: "b"}})
		}
		if note := FewTypes(offers); (note != "") != want || want && !strings.Contains(note, fmt.Sprintf("on demand is %d; allow at least 5", n)) {
			t.Errorf("with %d types the warning is %q", n, note)
		}
	}
}

func TestNodesThatBootAlike(t *testing.T) {
	node := func(os string, devices ...corev1.ResourceName) *capacity.Node {
		n := &capacity.Node{Labels: map[string]string{corev1.LabelOSStable: os}, Allocatable: capacity.Resources{corev1.ResourceCPU: 1}}
		for _, d := range devices {
			n.Allocatable[d] = 1
		}
		return n
	}
	linux := BootsAs("pool", "class", node("linux"))
	for name, other := range map[string]string{
		"another pool":             BootsAs("other", "class", node("linux")),
		"another class":            BootsAs("pool", "other", node("linux")),
		"another operating system": BootsAs("pool", "class", node("windows")),
		"an image with a driver":   BootsAs("pool", "class", node("linux", "nvidia.com/gpu")),
	} {
		if other == linux {
			t.Errorf("%s: boots like the others", name)
		}
	}
	bigger := node("linux")
	bigger.Allocatable[corev1.ResourceCPU] = 64
	if BootsAs("pool", "class", bigger) != linux {
		t.Error("a bigger one boots differently")
	}
}
