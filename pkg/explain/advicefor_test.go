package explain

import (
	"strings"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

// A label of a domain that isn't the user's can't be added to a pool: the API server refuses it.
func TestAdviceAboutALabel(t *testing.T) {
	for message, want := range map[string]string{
		"the pod asks for tier in (none), a label that the pool's nodes don't have":                                                    "add it to spec.template.metadata.labels",
		"the pod asks for example.com/tier in (none), a label that the pool's nodes don't have":                                        "add it to spec.template.metadata.labels",
		"the pod asks for node-restriction.kubernetes.io/team in (a), a label that the pool's nodes don't have":                        "add it to spec.template.metadata.labels",
		"the pod asks for notkarpenter.sh/team in (a), a label that the pool's nodes don't have":                                       "add it to spec.template.metadata.labels",
		"the pod asks for karpenter.sh/capacitytype in (spot), a label that the pool's nodes don't have":                               "correct the name in the pod",
		"the pod asks for karpenter.sh/capacitytype in (spot), a label that the pool's nodes don't have (is karpenter.sh/c-t meant?)":  "correct the name in the pod (is karpenter.sh/c-t meant?)",
		"the pod asks for topology.kubernetes.io/zones in (a, b), a label that the pool's nodes don't have (best of 2 alternatives)":   "correct the name in the pod",
		"general: the pod asks for karpenter.k8s.aws/instance-famly exists, a label that the pool's nodes don't have, in another list": "correct the name in the pod",
	} {
		got := adviceFor(message)
		if len(got) != 1 || !strings.HasPrefix(got[0].Do, want) || want[0] == 'c' && strings.Contains(got[0].Do, "metadata.labels") {
			t.Errorf("%s: %+v, want %q", message, got, want)
		}
	}
}

// Tolerating a taint isn't advised where another refusal of the pool remains; it is where nothing else is.
func TestAdviceAboutTaints(t *testing.T) {
	const tainted, full = "taint batch:NoSchedule is not tolerated", "limit of cpu reached: 0 left"
	for name, tc := range map[string]struct {
		messages []string
		want     string
	}{
		"beside another":      {[]string{tainted, full}, "limit of ... reached: ... left"},
		"the only one":        {[]string{tainted}, taint},
		"in a joined message": {[]string{"batch: " + tainted + "; general: " + full}, "limit of ... reached: ... left"},
	} {
		var got []string
		for _, a := range withoutTaints(adviceFor(tc.messages...)) {
			got = append(got, a.Says)
		}
		if strings.Join(got, ", ") != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestAtMost(t *testing.T) {
	pools := []offline.PoolReason{{Pool: "a", Reason: "none of 3 instance types has capacity for it: cpu 500 requested, 191.45 at most, memory 4Ti requested, 3Ti at most"}, {Pool: "b", Reason: "taint x is not tolerated"}}
	for _, tc := range []struct{ pool, resource, want string }{{"a", "cpu", "191.45"}, {"a", "memory", "3Ti"}, {"a", "nvidia.com/gpu", ""}, {"b", "cpu", ""}, {"c", "cpu", ""}} {
		if got := atMost(pools, tc.pool, tc.resource); got != tc.want {
			t.Errorf("%s of pool %s: %q, want %q", tc.resource, tc.pool, got, tc.want)
		}
	}
}
