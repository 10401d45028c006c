package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestSuggestLabel(t *testing.T) {
	known := []string{"example.com/tier", "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-gpu-count", "karpenter.sh/capacity-type",
		"node.kubernetes.io/instance-type", "team", "topology.k8s.aws/zone-id", "topology.kubernetes.io/zone"}
	for key, want := range map[string]string{
		"instance-family":                   "karpenter.k8s.aws/instance-family",
		"karpenter.sh/instance-family":      "karpenter.k8s.aws/instance-family",
		"family":                            "karpenter.k8s.aws/instance-family",
		"zone":                              "topology.kubernetes.io/zone",
		"topology.k8s.io/zone":              "topology.kubernetes.io/zone",
		"karpenter.sh/capacity-typ":         "karpenter.sh/capacity-type",
		"karpenter.sh/capacitytype":         "karpenter.sh/capacity-type",
		"karpenter.k8s.aws/intsance-family": "karpenter.k8s.aws/instance-family",
		"teams":                             "team",
		"example.org/tier":                  "example.com/tier",
		"tee":                               "", // too short to be close to any key
		"owner":                             "",
		"example.com/purpose":               "",
	} {
		if want != "" {
			want = " (is " + want + " meant?)"
		}
		if got := suggestLabel(key, known); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

// If a label is mistyped, the refusal names the one that exists.
func TestRefusalHintsAtALabel(t *testing.T) {
	for key, want := range map[string]string{
		"topology.k8s.io/zone": "default: the pod asks for topology.k8s.io/zone in (a), a label that the pool's nodes don't have (is topology.kubernetes.io/zone meant?)",
		"purpose":              "default: the pod asks for purpose in (a), a label that the pool's nodes don't have",
	} {
		p := Decide(viewOf(t, 1, asking("web", "cpu=1", on(key, "a"))), capacity.Options{})
		if len(p.Refused) != 1 || p.Refused[0].Message != want {
			t.Errorf("refused %+v, want %q", p.Refused, want)
		}
	}
}

// With BestEffort the pool's minValues are met as far as possible, and the planned node records that.
func TestMinValuesRelaxed(t *testing.T) {
	view := func(n int) *capacity.View {
		v := viewOf(t, 1, asking("web", "cpu=1"))
		r, err := capacity.NewRequirement("karpenter.k8s.aws/instance-family", capacity.Exists)
		if err != nil {
			t.Fatal(err)
		}
		r.MinValues = n
		v.Pools[0].Requirements = v.Pools[0].Requirements.And(r)
		return v
	}
	of := func(n *capacity.PlannedNode) map[string]bool {
		out := map[string]bool{}
		for _, o := range n.Offers {
			out[o.Type.Labels["karpenter.k8s.aws/instance-family"]] = true
		}
		return out
	}
	families := of(Decide(view(1), capacity.Options{}).Nodes[0])
	for n, relaxed := range map[int]bool{len(families): false, len(families) + 1: true} {
		p := Decide(view(n), capacity.Options{RelaxMinValues: true})
		if len(p.Nodes) != 1 || p.Nodes[0].MinValuesRelaxed != relaxed {
			t.Fatalf("minValues %d: nodes %+v, want one, relaxed: %v", n, p.Nodes, relaxed)
		}
		if diff := cmp.Diff(families, of(p.Nodes[0])); diff != "" {
			t.Errorf("minValues %d: families that it may be launched as (-want +got):\n%s", n, diff)
		}
		if strict := Decide(view(n), capacity.Options{}); (len(strict.Nodes) == 0) != relaxed {
			t.Errorf("minValues %d, strictly: %d nodes", n, len(strict.Nodes))
		}
	}
}
