package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// What holds for all pools together, and even zones, on a real API server: a commitment pays for two of five nodes, the limit allows four of them, and
// they are spread over zones. A scheduler that starts anew counts the same.
func TestCommitmentLimitAndEvenZones(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		s.mortal = true
		s.config = func(c cluster.Config) {
			c.SetProvisionArgs(map[string]any{
				"limits": map[string]any{"nodes": 4},
				// m5.large costs $0.096: two of them use $0.1344 of the commitment.
				"commitments": []any{map[string]any{"name": "plan", "dollarsPerHour": 0.14, "rateFactor": 0.7, "instanceFamilies": []any{"m5"}}},
			})
		}
	})
	e.apply(nodeClass, strings.NewReplacer("metadata: {name: default}", `metadata: {name: default, annotations: {dovetail.sh/zone-balance: "100%"}}`,
		"[on-demand]", "[on-demand, spot]", "karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]", "node.kubernetes.io/instance-type, operator: In, values: [m5.large]").Replace(nodePool))
	e.pods("web", 5, "1500m", "1Gi")
	e.settled(4)
	refused := func() {
		t.Helper()
		var waiting *corev1.Pod
		if _, err := cluster.Until(e.wait(), e.api, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) {
			bound := 0
			for _, p := range pods {
				if cluster.Bound(p) {
					bound++
				} else {
					waiting = p
				}
			}
			return bound == 4, fmt.Sprintf("four bound pods, %d are", bound), nil
		}); err != nil {
			t.Fatal(err)
		}
		if note := e.eventOf(waiting.Name, "FailedProvisioning"); !strings.Contains(note, "the nodes of all pools, planned ones included, use nodes 4 of 4 (limits of ProvisionArgs)") {
			t.Errorf("the reason doesn't name the limit of all pools: %s", note)
		}
	}
	refused()
	kinds, zones := map[string]int{}, map[string]int{}
	for _, in := range e.sim.Live() {
		kinds[in.CapacityType]++
		zones[in.Zone]++
	}
	if kinds[karpv1.CapacityTypeOnDemand] != 2 || kinds[karpv1.CapacityTypeSpot] != 2 {
		t.Errorf("the commitment pays for two nodes, and spot is cheaper beyond that: %v", kinds)
	}
	for zone, n := range zones {
		if n > 2 || n == 2 && len(zones) < 3 {
			t.Errorf("four nodes aren't even over zones, %s has %d: %v", zone, n, zones)
		}
	}
	e.sched.Kill()
	e.run()
	e.pods("more", 1, "1500m", "1Gi")
	if note := e.eventOf("more-0", "FailedProvisioning"); !strings.Contains(note, "use nodes 4 of 4") {
		t.Errorf("after a restart the reason doesn't name the limit: %s", note)
	}
	if n := e.launches(); n != 4 {
		t.Errorf("%d instances were launched, the limit is 4", n)
	}
}
