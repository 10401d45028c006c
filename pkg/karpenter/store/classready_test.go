package store

import (
	"sync/atomic"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// readySays sets a Ready condition on a class like a controller that ignores the other conditions.
func readySays(ready metav1.ConditionStatus, reason string, generation int64) func(*ec2nc.EC2NodeClass) {
	return func(nc *ec2nc.EC2NodeClass) {
		for i := range nc.Status.Conditions {
			if c := &nc.Status.Conditions[i]; c.Type == status.ConditionReady {
				c.Status, c.Reason, c.Message, c.ObservedGeneration = ready, reason, "by order of security", generation
				return
			}
		}
		nc.Status.Conditions = append(nc.Status.Conditions, status.Condition{Type: status.ConditionReady, Status: ready, Reason: reason,
			Message: "by order of security", ObservedGeneration: generation, LastTransitionTime: metav1.Time{Time: start}})
	}
}

var saidNotReady = readySays(metav1.ConditionFalse, "Quarantined", 1)

func TestClassesThatAreNotReadyByAnothersWord(t *testing.T) {
	const foreign = "EC2NodeClass default: another controller reports that it is not ready (Quarantined): by order of security"
	ownFalse := func(nc *ec2nc.EC2NodeClass) {
		resolvedInto(nc)
		nc.StatusConditions().SetFalse(ec2nc.ConditionTypeSubnetsReady, "SubnetsNotFound", "spec.subnetSelectorTerms matches nothing")
	}
	for _, tc := range []struct {
		name    string
		class   []func(*ec2nc.EC2NodeClass)
		unready string
	}{
		{name: "nobody says anything"},
		{name: "ready", class: []func(*ec2nc.EC2NodeClass){resolvedInto}},
		{name: "another says it is not", class: []func(*ec2nc.EC2NodeClass){resolvedInto, saidNotReady}, unready: foreign},
		{name: "and nobody says anything else", class: []func(*ec2nc.EC2NodeClass){saidNotReady}, unready: foreign},
		{name: "without saying of which generation", class: []func(*ec2nc.EC2NodeClass){resolvedInto, readySays(metav1.ConditionFalse, "Quarantined", 0)}, unready: foreign},
		{name: "it was said of an earlier one", class: []func(*ec2nc.EC2NodeClass){resolvedInto, saidNotReady, func(nc *ec2nc.EC2NodeClass) { nc.Generation = 2 }}},
		{name: "it isn't known", class: []func(*ec2nc.EC2NodeClass){resolvedInto, readySays(metav1.ConditionUnknown, "Quarantined", 1)}},
		// The cloud will be asked again, and its answer may have changed since the condition was written.
		{name: "we said so", class: []func(*ec2nc.EC2NodeClass){ownFalse}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, newFakeAPI(testPool("p"), testClass("default", tc.class...))).ready()
			w.eventually("the pool is read", func() bool { return w.pool("p") != nil })
			if got := w.pool("p").Unready; got != tc.unready {
				t.Errorf("the pool is unready: %q, want %q", got, tc.unready)
			}
			problem := ""
			if err := w.NodeClassProblem("default"); err != nil {
				problem = err.Error()
			}
			if problem != tc.unready {
				t.Errorf("problem %q, want %q", problem, tc.unready)
			}
			reason, why, err := w.NodeClassEnds(w.ctx, "default")
			if err != nil || why != tc.unready || (reason == reasonClassNotReady) != (tc.unready != "") {
				t.Errorf("claims end: %s %q, %v", reason, why, err)
			}
		})
	}
}

func TestClaimsEndWithoutAClass(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default"))).ready()
	for name, want := range map[string]string{"default": "", "nobody": reasonClassNotFound} {
		if reason, _, err := w.NodeClassEnds(w.ctx, name); reason != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", name, reason, err, want)
		}
	}
}

// The condition stays when we write the resolved status, until the other controller changes it or the spec changes. Then pods are
// planned for again.
func TestAnothersConditionIsKeptUntilItIsRemoved(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("p"), testClass("default", saidNotReady)))
	var told atomic.Int64
	w.OnPool(func() { told.Add(1) })
	w.ready()
	set := func(st ec2nc.EC2NodeClassStatus) {
		t.Helper()
		if err := w.SetNodeClassStatus(w.ctx, nodeclass.Resolved("default", w.getClass("default").Generation, st)); err != nil {
			t.Fatal(err)
		}
	}
	set(resolvedStatus())
	nc := w.getClass("default")
	got := conditions(nc)
	if got["Ready"] != "False Quarantined: by order of security" || got["SubnetsReady"] != "True" {
		t.Errorf("conditions %v", got)
	}
	w.eventually("what we wrote is seen", func() bool { return len(w.class("default").GetConditions()) > 1 })
	if w.pool("p").Unready == "" {
		t.Error("used although it is not ready")
	}
	before := told.Load()
	say := func(what func(*ec2nc.EC2NodeClass)) {
		t.Helper()
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			nc = w.getClass("default")
			what(nc)
			return w.api.Status().Update(w.ctx, nc)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	say(readySays(metav1.ConditionTrue, "Released", 1))
	w.eventually("the pool can be used, and that is told", func() bool { return w.pool("p").Unready == "" && told.Load() > before })

	say(saidNotReady)
	w.eventually("it can't", func() bool { return w.pool("p").Unready != "" })
	w.update(nc, func() { nc.Spec.Tags = map[string]string{"a": "b"} })
	w.eventually("what was said of another spec doesn't count", func() bool { return w.pool("p").Unready == "" })
	set(resolvedStatus())
	if got := conditions(w.getClass("default")); got["Ready"] != "True" {
		t.Errorf("Ready is %q after a resolution of the new spec", got["Ready"])
	}
}

// Our own Ready condition does not count as another controller's, however late the watch delivers it.
func TestOurOwnWordIsOurs(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("p"), testClass("default"))).ready()
	w.eventually("the pool is read", func() bool { return w.pool("p") != nil })
	for _, st := range []ec2nc.EC2NodeClassStatus{
		resolvedStatus(func(st *ec2nc.EC2NodeClassStatus) {
			st.Conditions[0].Status, st.Conditions[0].Reason = metav1.ConditionFalse, "SubnetsNotFound"
		}),
		resolvedStatus(),
	} {
		if err := w.SetNodeClassStatus(w.ctx, nodeclass.Resolved("default", 1, st)); err != nil {
			t.Fatal(err)
		}
		var asked bool
		for _, p := range w.Pools(func(string) ([]*capacity.InstanceType, error) { asked = true; return nil, nil }) {
			if p.Unready != "" || !asked {
				t.Errorf("unready by our own word: %q", p.Unready)
			}
		}
	}
}
