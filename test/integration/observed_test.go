package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// bound waits until all n pods of the application are bound and returns them.
func (e *env) bound(app string, n int) []*corev1.Pod {
	e.Helper()
	pods, err := cluster.UntilPods(e.wait(), e.api, n, cluster.Bound, client.MatchingLabels{"app": app})
	if err != nil {
		e.Fatal(err)
	}
	return pods
}

// running waits until all n pods of the application run.
func (e *env) running(app string, n int) []*corev1.Pod {
	e.Helper()
	pods, err := cluster.UntilPods(e.wait(), e.api, n, cluster.Running, client.MatchingLabels{"app": app})
	if err != nil {
		e.Fatal(err)
	}
	return pods
}

func (e *env) claims() []*karpv1.NodeClaim {
	e.Helper()
	var list karpv1.NodeClaimList
	if err := e.api.List(e.ctx, &list); err != nil {
		e.Fatal(err)
	}
	out := make([]*karpv1.NodeClaim, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

func (e *env) nodes() map[string]*corev1.Node {
	e.Helper()
	var list corev1.NodeList
	if err := e.api.List(e.ctx, &list); err != nil {
		e.Fatal(err)
	}
	out := map[string]*corev1.Node{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

// settled waits until exactly n instances are live, each with one NodeClaim and one Node.
func (e *env) settled(n int) {
	e.Helper()
	_, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		live := e.sim.Live()
		ids := map[string]bool{}
		for _, in := range live {
			ids["aws:///"+in.Zone+"/"+in.ID] = true
		}
		for _, c := range claims {
			if !ids[c.Status.ProviderID] {
				return false, fmt.Sprintf("claim %s to have a live instance (has %q)", c.Name, c.Status.ProviderID), nil
			}
		}
		return len(claims) == n && len(live) == n, fmt.Sprintf("%d nodes (%d claims, %d instances)", n, len(claims), len(live)), nil
	})
	if err != nil {
		e.Fatal(err)
	}
	e.noDoubles()
}

// noDoubles fails if a NodeClaim has more than one instance.
func (e *env) noDoubles() {
	e.Helper()
	if d := e.sim.Doubles("karpenter.sh/nodeclaim"); len(d) > 0 {
		e.Errorf("claims with more than one instance: %v", d)
	}
}

// launches returns the number of instances ever launched.
func (e *env) launches() int { return len(e.sim.Instances()) }

// onPlan checks that every planned pod is on a slot that was planned for its class: none was placed elsewhere, the NodeClaims record
// as many slots, and each node has at least as many pods of a class as slots for it. Pods without a plan must have found a node in
// their first scheduling cycle.
func (e *env) onPlan(pods []*corev1.Pod) {
	e.Helper()
	app := map[types.UID]string{}
	on := map[string]map[string]int{}
	for _, p := range pods {
		app[p.UID] = p.Labels["app"]
		if on[p.Spec.NodeName] == nil {
			on[p.Spec.NodeName] = map[string]int{}
		}
		on[p.Spec.NodeName][p.Labels["app"]]++
	}
	var said string
	// Slots promised on a node that already existed are recorded afterwards, and bindings are counted then.
	if err := wait.PollUntilContextCancel(e.wait(), 100*time.Millisecond, true, func(context.Context) (ok bool, _ error) {
		ok, said = e.planKept(app, on)
		return ok, nil
	}); err != nil {
		e.Errorf("not every planned pod is on a slot of its class: %s", said)
	}
}

// planKept compares the NodeClaims' records and the scheduler's counts with where pods are: app by pod, count by app and node.
func (e *env) planKept(app map[types.UID]string, on map[string]map[string]int) (bool, string) {
	e.Helper()
	claims := e.claims()
	classes := map[capacity.ClassKey]string{}
	for _, nc := range claims {
		for _, s := range karpenter.ClaimOf(nc, nodeclass.Kind.GroupKind()).Slots {
			if a, ok := app[s.Pod.UID]; ok {
				classes[s.Class] = a
			}
		}
	}
	slots, problem := 0, ""
	for _, nc := range claims {
		want := map[string]int{}
		for _, s := range karpenter.ClaimOf(nc, nodeclass.Kind.GroupKind()).Slots {
			if a, ok := classes[s.Class]; ok {
				want[a]++
				slots++
			}
		}
		for a, n := range want {
			if got := on[nc.Status.NodeName]; got[a] < n {
				problem = fmt.Sprintf("; node %s (claim %s) was planned for %v and has %v", nc.Status.NodeName, nc.Name, want, got)
			}
		}
	}
	kept := int(e.metric("dovetail_pods_bound_total", `room="planned"`))
	found := int(e.metric("dovetail_pods_bound_total", `room="found"`))
	elsewhere := int(e.metric("dovetail_pods_bound_total", `room="other"`))
	fitted := int(e.metric("scheduler_pod_scheduling_attempts_bucket", `le="1"`))
	return slots == kept && kept+found == len(app) && elsewhere == 0 && found <= fitted && problem == "",
		fmt.Sprintf("%d pods, %d on planned room, %d found room (%d at the first try), %d went elsewhere, %d slots recorded%s",
			len(app), kept, found, fitted, elsewhere, slots, problem)
}

// metric returns the sum of a metric's samples whose labels contain all of the given texts.
func (e *env) metric(name string, labels ...string) float64 {
	e.Helper()
	text, err := e.sched.Get(e.ctx, "/metrics")
	if err != nil {
		e.Fatal(err)
	}
	sum := 0.0
	for line := range strings.SplitSeq(string(text), "\n") {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v); err != nil {
			e.Fatalf("metric line %q: %v", line, err)
		}
		sum += v
	}
	return sum
}

// oneCycleAfterGate checks that none of n pods needed more than two scheduling cycles: the one that found no node and the one that
// bound it.
func (e *env) oneCycleAfterGate(n int) {
	e.Helper()
	all := 0
	// The metric counts a pod after its binding is complete, while watchers see the binding before that.
	if err := wait.PollUntilContextCancel(e.wait(), 100*time.Millisecond, true, func(context.Context) (bool, error) {
		all = int(e.metric("scheduler_pod_scheduling_attempts_count"))
		return all >= n, nil
	}); err != nil || all != n {
		e.Errorf("%d pods were scheduled, want %d", all, n)
	}
	if atMostTwo := int(e.metric("scheduler_pod_scheduling_attempts_bucket", `le="2"`)); atMostTwo != n {
		e.Errorf("%d of %d pods were scheduled in at most two cycles", atMostTwo, n)
	}
}

// eventOf waits for an event with that reason about a pod and returns its note.
func (e *env) eventOf(pod, reason string) string {
	e.Helper()
	note := ""
	_, err := cluster.Until(e.wait(), e.api, &corev1.EventList{}, func(events []*corev1.Event) (bool, string, error) {
		for _, ev := range events {
			if ev.InvolvedObject.Name == pod && ev.Reason == reason {
				note = ev.Message
				return true, "", nil
			}
		}
		return false, fmt.Sprintf("event %s of %s", reason, pod), nil
	}, client.InNamespace("default"))
	if err != nil {
		e.Fatal(err)
	}
	return note
}

// labelled selects the pods of an application.
type labelled struct{ app string }

// ApplyToList implements client.ListOption.
func (l labelled) ApplyToList(o *client.ListOptions) {
	client.MatchingLabels{"app": l.app}.ApplyToList(o)
}

func (e *env) podsOf(app string) []corev1.Pod {
	e.Helper()
	var list corev1.PodList
	if err := e.api.List(e.ctx, &list, labelled{app}); err != nil {
		e.Fatal(err)
	}
	return list.Items
}

// awaitClaims waits until NodeClaims exist and every one has its instance.
func (e *env) awaitClaims() []*karpv1.NodeClaim {
	e.Helper()
	claims, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		for _, c := range claims {
			if c.Status.ProviderID == "" {
				return false, "claim " + c.Name + " to be launched", nil
			}
		}
		return len(claims) > 0, "claims", nil
	})
	if err != nil {
		e.Fatal(err)
	}
	return claims
}

// onPlanOf is onPlan for the pods of one application, which may share nodes with other pods.
func (e *env) onPlanOf(app string) {
	e.Helper()
	on := map[string]int{}
	uids := map[types.UID]bool{}
	for _, p := range e.podsOf(app) {
		on[p.Spec.NodeName]++
		uids[p.UID] = true
	}
	for _, nc := range e.claims() {
		want := 0
		for _, s := range karpenter.ClaimOf(nc, nodeclass.Kind.GroupKind()).Slots {
			if uids[s.Pod.UID] {
				want++
			}
		}
		if got := on[nc.Status.NodeName]; got != want {
			e.Errorf("node %s (claim %s) was planned for %d pods of %s and has %d", nc.Status.NodeName, nc.Name, want, app, got)
		}
	}
}

func (e *env) podsIn(namespace string) []corev1.Pod {
	e.Helper()
	var list corev1.PodList
	if err := e.api.List(e.ctx, &list, client.InNamespace(namespace)); err != nil {
		e.Fatal(err)
	}
	return list.Items
}
