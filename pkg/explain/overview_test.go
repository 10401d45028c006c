package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

// A narrow terminal shows prices and what is free, whatever else has to go; a wide one shows everything.
func TestOverviewWithinAWidth(t *testing.T) {
	o := &Overview{PerHour: 1234.5, Least: Least{Bound: 1000, Managed: 2, ManagedPerHour: 1234.5}, HeldBack: []string{"pool default: " + strings.Repeat("launches are paused ", 10)}}
	for i := range 2 {
		o.Nodes = append(o.Nodes, NodeUse{Name: fmt.Sprintf("ip-10-0-0-%d.us-west-2.compute.internal", 10+i), Pool: "general-purpose", Type: "m7i-flex.12xlarge", Zone: "us-west-2a",
			CapacityType: "on-demand", State: "Ready", Created: time.Unix(1, 0), Age: time.Hour, Price: 617.25, Priced: true, Pods: 100,
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("48"), corev1.ResourceMemory: resource.MustParse("192Gi")}})
	}
	for _, width := range []int{60, 80, 100, 120, 160, 0} {
		var b strings.Builder
		if err := o.WriteWithin(&b, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); width > 0 && n > width {
				t.Errorf("a line has %d columns of %d: %s", n, width, line)
			}
		}
		if n := strings.Count(b.String(), "RESERVED"); n == 1 {
			t.Errorf("%d columns have RESERVED of one resource:\n%s", width, &b)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range []string{"$1000.0000/h", "23 % above it", "617.2500", "FREE", "48", "192.0 GiB", "ip-10-0-0-11"} {
			if !strings.Contains(text, want) {
				t.Errorf("%d columns don't have %q:\n%s", width, want, &b)
			}
		}
		for _, rest := range []string{"ZONE", "us-west-2.compute.internal"} {
			if got := strings.Contains(b.String(), rest); got != (width == 0 || width == 160 && rest == "ZONE") && width != 160 {
				t.Errorf("%d columns have %q: %v", width, rest, got)
			}
		}
	}
	if o.Nodes[0].Name != "ip-10-0-0-10.us-west-2.compute.internal" {
		t.Errorf("the overview has changed: %s", o.Nodes[0].Name)
	}
}

// How much a NodeClaim has free isn't known before its instance type is: 0 would say that no pod fits.
func TestFreeOfANodeClaimOfUnknownType(t *testing.T) {
	o := &Overview{Nodes: []NodeUse{
		{Name: "claim", State: stateLaunching, Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}},
		{Name: "full", State: "Ready", Requested: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}},
	}}
	rows := o.NodeRows()
	for i, want := range []string{"0 3 - 0.0 GiB 0.0 GiB -", "4 0 0 8.0 GiB 0.0 GiB 0.0 GiB"} {
		if got := strings.Join(rows[i+1][9:], " "); got != want {
			t.Errorf("%s: CPU and memory requested, reserved and free are %q, want %q", o.Nodes[i].Name, got, want)
		}
	}
}

// Nodes of EKS's managed node groups say in a label of their own what they are.
func TestCapacityTypeOfAManagedNodeGroup(t *testing.T) {
	for _, tc := range []struct{ karpenter, eks, want string }{
		{"", "SPOT", "spot"}, {"", "ON_DEMAND", "on-demand"}, {"reserved", "ON_DEMAND", "reserved"}, {"", "CAPACITY_BLOCK", ""}, {"", "", ""},
	} {
		labels := map[string]string{"karpenter.sh/capacity-type": tc.karpenter, "eks.amazonaws.com/capacityType": tc.eks}
		if got := capacityTypeOf(labels); got != tc.want {
			t.Errorf("%v: %q, want %q", labels, got, tc.want)
		}
	}
}

// The bound says what it is about and what it assumes, or why there is none.
func TestTheBoundSaysWhatItAssumes(t *testing.T) {
	const assumes = ". Disruption budgets and PodDisruptionBudgets, which may forbid moves, are not considered"
	for _, tc := range []struct {
		name string
		o    Least
		want string
	}{
		{"on demand", Least{Bound: 1, Managed: 1, ManagedPerHour: 2}, "1 node of pools: $2.0000/h. Their pods cost at least $1.0000/h on new nodes, however they are packed: this is 100 % above it" + assumes},
		{"on spot", Least{Bound: 1, Managed: 1, ManagedPerHour: 2, BoundOnSpot: true},
			"1 node of pools: $2.0000/h. Their pods cost at least $1.0000/h on new nodes, however they are packed, on spot where pools allow it: this is 100 % above it" + assumes},
		{"a NodeClaim among them", Least{Bound: 1, Managed: 3, ManagedClaims: 1, ManagedPerHour: 2},
			"2 nodes of pools and 1 NodeClaim without one: $2.0000/h. Their pods cost at least $1.0000/h on new nodes, however they are packed: this is 100 % above it" + assumes},
		{"pods that aren't counted", Least{Bound: 1, Managed: 1, ManagedPerHour: 2, NotCounted: "3 pods"},
			"1 node of pools: $2.0000/h. Their pods cost at least $1.0000/h on new nodes, however they are packed, without 3 pods" + assumes},
		{"no price", Least{Managed: 1, NoBound: "there is no node pool"}, "What the pods would cost at least isn't known, because there is no node pool"},
	} {
		if got := (&Overview{Least: tc.o}).Money()[1]; got != tc.want {
			t.Errorf("%s: %s\nwant %s", tc.name, got, tc.want)
		}
	}
	if lines := (&Overview{}).Money(); len(lines) != 2 {
		t.Errorf("without nodes of pools: %q", lines)
	}
}

// What is used of commitments has a line, as limits have.
func TestOverviewShowsCommitments(t *testing.T) {
	settings := offline.Settings{NodeClass: nodeclass.Kind, Clock: clocktesting.NewFakePassiveClock(now), Plan: capacity.Options{Commitments: []capacity.Commitment{{Name: "compute-sp", MicroDollars: 2e6}}}}
	o, err := New(&manifest.Set{}, settings, noPrices{}, now, time.Second).Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := o.Write(&b); err != nil || !strings.Contains(b.String(), "\nCommitments used: compute-sp $0.0000/h of $2.0000/h (commitments of ProvisionArgs)\n") {
		t.Errorf("%v\n%s", err, &b)
	}
}

func TestAmountsHaveNoExponent(t *testing.T) {
	for text, want := range map[string]string{"10360": "10360", "1930m": "1.93", "999500m": "999.5", "0": "0", "100": "100"} {
		if got := Amount(corev1.ResourceCPU, resource.MustParse(text)); got != want {
			t.Errorf("%s cores are %s, want %s", text, got, want)
		}
	}
}

// The reason that distinguishes groups of pods comes first: what the pools lack that would take them, not which pools are for others.
func TestShortReasonBeginsWithWhatIsMissing(t *testing.T) {
	r := &offline.Refused{Pools: []offline.PoolReason{{Pool: "batch", Reason: "taint batch:NoSchedule is not tolerated"}, {Pool: "general", Reason: "limit of cpu reached: 0 left"},
		{Pool: "gpu", Reason: "taint gpu:NoSchedule is not tolerated"}, {Pool: "large", Reason: "none of 3 instance types has capacity for it: " + strings.Repeat("cpu 500 requested, ", 10)}}}
	got := shortReason(r)
	if !strings.HasPrefix(got, "general: limit of cpu reached: 0 left; large: none of 3") || !strings.HasSuffix(got, " ...") {
		t.Errorf("it is %q", got)
	}
	r.Pools = r.Pools[:3]
	if got := shortReason(r); got != "general: limit of cpu reached: 0 left; batch: taint batch:NoSchedule is not tolerated; gpu: taint gpu:NoSchedule is not tolerated" {
		t.Errorf("it is %q", got)
	}
}

func TestMessagesAreNotRepeated(t *testing.T) {
	const long, other = "none of 12 instance types has capacity for it: cpu", "0/3 nodes are available: 3 Insufficient cpu. "
	for _, tc := range []struct {
		message, want string
		above         []string
	}{
		{long, long, nil},
		{long, "the same", []string{"another", long}},
		{long, "the same", []string{other + long}},
		{other + long, other + "(the same as above)", []string{long}},
		{"wait", "wait", []string{"wait"}}, // short
	} {
		if got := shortened(tc.message, tc.above); got != tc.want {
			t.Errorf("%q below %q: %q, want %q", tc.message, tc.above, got, tc.want)
		}
	}
}
