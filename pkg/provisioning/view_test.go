package provisioning

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// Until a driver has registered, a node has the attach limits it was planned with.
func TestExpectedAttachments(t *testing.T) {
	for _, tc := range []struct {
		name           string
		shown, planned map[string]int64
		drivers        []string
		want           map[string]int64
	}{
		{name: "no CSINode yet", planned: map[string]int64{"ebs": 25}, want: map[string]int64{"ebs": 25}},
		{name: "another driver is there", planned: map[string]int64{"ebs": 25}, shown: map[string]int64{"efs": 7}, drivers: []string{"efs"},
			want: map[string]int64{"ebs": 25, "efs": 7}},
		{name: "the driver is there and has its own number", planned: map[string]int64{"ebs": 25}, shown: map[string]int64{"ebs": 20}, drivers: []string{"ebs"},
			want: map[string]int64{"ebs": 20}},
		{name: "the driver is there and has no limit", planned: map[string]int64{"ebs": 25}, drivers: []string{"ebs"}},
		{name: "storage that has not been published is what was planned", planned: map[string]int64{"storageclass/lvm": 7}, shown: map[string]int64{"storageclass/lvm": 0},
			want: map[string]int64{"storageclass/lvm": 7}},
		{name: "or as much as anybody likes", shown: map[string]int64{"storageclass/lvm": 0}, want: map[string]int64{}},
		{name: "storage that has been published", planned: map[string]int64{"storageclass/lvm": 7}, shown: map[string]int64{"storageclass/lvm": 3},
			drivers: []string{"storageclass/lvm"}, want: map[string]int64{"storageclass/lvm": 3}},
		{name: "nothing was planned", shown: map[string]int64{"efs": 7}, drivers: []string{"efs"}, want: map[string]int64{"efs": 7}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, expected(tc.shown, tc.planned, tc.drivers)); diff != "" {
				t.Errorf("attachments (-want +got):\n%s", diff)
			}
		})
	}
}

// Plans on a node in flight see it as it will be: without its startup taints, with all others.
func TestNodesInFlightAreSeenWithoutTheirStartupTaints(t *testing.T) {
	scanner := corev1.Taint{Key: "scanner", Effect: corev1.TaintEffectNoExecute}
	agent, team := corev1.Taint{Key: "agent", Effect: corev1.TaintEffectNoExecute}, corev1.Taint{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}
	vi := &viewer{claims: &claims{of: map[string]*capacity.Claim{"c1": {Name: "c1", StartupTaints: []corev1.Taint{agent}}}, expected: []corev1.Taint{scanner}}}
	node := func(taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	for _, tc := range []struct {
		name string
		n    capacity.Node
		o    *corev1.Node
		want []corev1.Taint // nil: the Node itself is used
	}{
		{"a startup taint", capacity.Node{InFlight: true, Claim: "c1"}, node(agent, team), []corev1.Taint{team}},
		{"none but a startup taint", capacity.Node{InFlight: true, Claim: "c1"}, node(agent), []corev1.Taint{}},
		{"a taint that is known to come", capacity.Node{InFlight: true, Claim: "c1"}, node(scanner, team), []corev1.Taint{team}},
		{"no startup taint any more", capacity.Node{InFlight: true, Claim: "c1"}, node(team), nil},
		{"a node that has come up", capacity.Node{Claim: "c1"}, node(agent), nil},
		{"a node of an unknown claim", capacity.Node{InFlight: true, Claim: "c2"}, node(agent), nil},
		{"a node of nobody's", capacity.Node{InFlight: true}, node(agent), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []corev1.Taint
			if later := vi.withoutStartupTaints(tc.o, &tc.n); later != nil {
				got = later.Spec.Taints
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("taints of the stand-in (-want +got):\n%s", diff)
			}
		})
	}
}

// A starting kubelet zeroes devices and may not have measured all else: the planner counts on what the node was bought for. Other amounts
// that it reports are true.
func TestExpectedAmounts(t *testing.T) {
	const gpu = "nvidia.com/gpu"
	planned := capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 100, corev1.ResourceEphemeralStorage: 50, gpu: 4}
	for _, tc := range []struct {
		name        string
		shown, want capacity.Resources
	}{
		{"zeroed devices", capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 100, corev1.ResourceEphemeralStorage: 50, gpu: 0}, planned},
		{"no devices yet", capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 100, corev1.ResourceEphemeralStorage: 50}, planned},
		{"half of the devices", capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 100, corev1.ResourceEphemeralStorage: 50, gpu: 2}, planned},
		{"a disk that wasn't measured", capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 100, gpu: 4}, planned},
		{"less memory than was thought, and more devices", capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 90, corev1.ResourceEphemeralStorage: 50, gpu: 8},
			capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 90, corev1.ResourceEphemeralStorage: 50, gpu: 8}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shown := tc.shown.Clone()
			n := &capacity.Node{Name: "n", Allocatable: tc.shown, Free: tc.shown.Clone()}
			n.Free.Sub(capacity.Resources{gpu: 1}) // a pod that was bound before the kubelet restarted
			f := &ledger.InFlight{Template: &capacity.Node{Allocatable: planned}}
			v := &View{}
			got := v.promise(n, f, ledger.NodeStatus{Managed: true}, nil)
			if diff := cmp.Diff(tc.want, got.Allocatable); diff != "" {
				t.Errorf("allocatable (-want +got):\n%s", diff)
			}
			free := tc.want.Clone()
			free.Sub(capacity.Resources{gpu: 1})
			if diff := cmp.Diff(free, got.Free); diff != "" {
				t.Errorf("free (-want +got):\n%s", diff)
			}
			o := objectOf(&capacity.Node{Name: "n", Allocatable: shown})
			seen := o
			if later := withReserved(o, got); later != nil {
				seen = later
			}
			if diff := cmp.Diff(tc.want, capacity.ResourcesOf(seen.Status.Allocatable)); diff != "" {
				t.Errorf("what the filters see (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(shown, capacity.ResourcesOf(o.Status.Allocatable)); diff != "" {
				t.Errorf("the Node itself was changed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.shown, v.promise(n, f, ledger.NodeStatus{Managed: true, Initialized: true}, nil).Allocatable); diff != "" {
				t.Errorf("once it is initialized (-want +got):\n%s", diff)
			}
		})
	}
}

// A kubelet may register before its node's name is known here. The capacity that its Node shows is reserved under the NodeClaim's name, and a
// plan that used it, too, would give it away twice.
func TestNodesWhoseClaimIsNotKnownYetTakeNoPods(t *testing.T) {
	booting, up := ledger.NodeStatus{Managed: true}, ledger.NodeStatus{Managed: true, Initialized: true}
	for _, tc := range []struct {
		name string
		f    *ledger.InFlight
		st   ledger.NodeStatus
		want bool
	}{
		{"the ledger has not seen it", nil, booting, true},
		{"the ledger has seen it, and knows of no claim", &ledger.InFlight{Name: "n"}, booting, true},
		{"its claim is known", &ledger.InFlight{Name: "n", Claim: "c"}, booting, false},
		{"it is initialized", &ledger.InFlight{Name: "n"}, up, false},
		{"it is unmanaged", nil, ledger.NodeStatus{}, false},
	} {
		got := (&View{live: true}).promise(&capacity.Node{Name: "n", Free: capacity.Resources{corev1.ResourceCPU: 1000}}, tc.f, tc.st, nil)
		if got.Closed != tc.want {
			t.Errorf("%s: takes no pods: %v", tc.name, got.Closed)
		}
	}
}

// Capacity that is reserved for an owner's anticipated pods counts as existing, and so do pods that took such a reservation before they
// were counted among the owner's pods.
func TestHeld(t *testing.T) {
	flights := []ledger.InFlight{{Slots: []ledger.Promise{{Owner: "a"}, {Owner: "a"}, {UID: "u"}}}, {Slots: []ledger.Promise{{Owner: "b"}}}}
	adopted := map[types.UID][]types.UID{"a": {"counted"}, "b": {"counted", "early"}}
	got := held(flights, adopted, func(uid types.UID) bool { return uid == "counted" })
	if got["a"] != 2 || got["b"] != 2 || len(got) != 2 {
		t.Errorf("held %v", got)
	}
}
