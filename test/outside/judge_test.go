package outside

import (
	"fmt"
	"testing"

	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/record"
)

// Of ten nodes one may go at a time. The next one may when the instance of the one before terminates, and no sooner.
func TestBudgetsCountNodesUntilTheirInstancesTerminate(t *testing.T) {
	for drained, want := range map[bool]int{true: 0, false: 1} {
		j := NewJudge(karpv1.DisruptionReasonEmpty)
		take := func(kind watch.EventType, c *karpv1.NodeClaim) {
			j.Take(record.Event{Type: kind, Object: c})
		}
		pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}}
		pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "10%"}}
		j.Take(record.Event{Type: watch.Added, Object: pool})
		claim := func(i int, deleted bool, conditions ...string) *karpv1.NodeClaim {
			c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%d", i), Labels: map[string]string{karpv1.NodePoolLabelKey: "pool"}}}
			for _, kind := range conditions {
				c.Status.Conditions = append(c.Status.Conditions, status.Condition{Type: kind, Status: metav1.ConditionTrue})
			}
			if deleted {
				c.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time}
			}
			return c
		}
		for i := range 10 {
			take(watch.Added, claim(i, false, karpv1.ConditionTypeInitialized))
		}
		take(watch.Modified, claim(0, true, karpv1.ConditionTypeInitialized))
		if drained {
			take(watch.Modified, claim(0, true, karpv1.ConditionTypeInitialized, karpv1.ConditionTypeInstanceTerminating))
		}
		if take(watch.Modified, claim(1, true, karpv1.ConditionTypeInitialized)); len(j.Wrong) != want {
			t.Errorf("drained=%t: found %q, want %d faults", drained, j.Wrong, want)
		}
	}
}
