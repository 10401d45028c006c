package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

const managedBy = "dovetail.sh/managed-by"

// leasesOfSeveral allows the leases that the test's Dovetails elect their leaders by. The shipped role knows the shipped one.
const leasesOfSeveral = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: several, namespace: kube-system}
rules:
  - {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [red, blue, green], verbs: [get, update, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: several, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: several}
subjects: [{kind: ServiceAccount, name: dovetail-scheduler, namespace: kube-system}]
`

// severalOptions returns how to start the Dovetail of that name: it schedules pods that name it, with the pools of a team. Without a name it is
// as shipped.
func (e *env) severalOptions(name, team string) cluster.SchedulerOptions {
	e.Helper()
	cfg, err := e.c.ShippedConfig()
	if err != nil {
		e.Fatal(err)
	}
	cfg.Leases(10*time.Second, 8*time.Second, 500*time.Millisecond)
	cfg.SetProvisionArgs(map[string]any{"region": e.sim.Region(), "clusterEndpoint": "https://cluster.invalid", "clusterCIDR": nil})
	out := e.options
	out.Config, out.Name = cfg, "unnamed"
	if name != "" {
		out.Name = name
		cfg["leaderElection"].(map[string]any)["resourceName"] = name
		cfg.Profiles()[0]["schedulerName"] = name
		cfg.SetProvisionArgs(map[string]any{"name": name, "nodePoolSelector": map[string]any{"matchLabels": map[string]any{"team": team}}})
	}
	return out
}

// launchedBy returns the states of the instances that a Dovetail has launched, by id.
func (e *env) launchedBy(name string) map[string]string {
	out := map[string]string{}
	for _, i := range e.sim.Instances() {
		if i.Tags[managedBy] == name {
			out[i.ID] = i.State
		}
	}
	return out
}

// looks returns how often the Dovetail of that name has listed its instances to find some that no claim owns.
func (e *env) looks(name string) (looks int) {
	for _, c := range e.sim.Calls("DescribeInstances") {
		if strings.Contains(c.Params, managedBy) && strings.Contains(c.Params, name) && strings.Contains(c.Params, "karpenter.sh/nodepool") {
			looks++
		}
	}
	return looks
}

// collected waits until the Dovetail of that name has looked for instances that no claim owns once more than it had before, and has ended what it
// found.
func (e *env) collected(name string, before int) {
	e.Helper()
	if err := wait.PollUntilContextCancel(e.wait(), 100*time.Millisecond, true, func(context.Context) (bool, error) {
		return e.looks(name) >= before+2, nil // the first of these is done when the second begins
	}); err != nil {
		e.Fatalf("%s doesn't look for instances without claims: %d times, then %d", name, before, e.looks(name))
	}
}

// Two Dovetails, each with a name, a lease and pools of its own, share a cluster: each launches nodes for its own pods from its own pools, and
// neither ends, counts or takes over what is the other's, even while the other is gone. A third without a name doesn't start, and neither
// does one that selects a pool of another.
func TestSeveralDovetails(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.idle, s.mortal = true, true })
	e.apply(leasesOfSeveral, nodeClass, teamPool("apples", "a"), teamPool("bananas", "b"))
	var err error
	if e.sched, err = e.c.StartScheduler(e.ctx, e.severalOptions("red", "a")); err != nil {
		t.Fatal(err)
	}
	blue, err := e.c.StartScheduler(e.ctx, e.severalOptions("blue", "b"))
	if err != nil {
		t.Fatal(err)
	}
	e.pods("apple", 3, "3", "1Gi", scheduler("red"))
	e.pods("banana", 4, "3", "1Gi", scheduler("blue"))
	e.onPools("apple", 3, "apples")
	e.onPools("banana", 4, "bananas")
	e.running("apple", 3)
	e.running("banana", 4)
	e.settled(7)
	of := map[string]string{"apples": "red", "bananas": "blue"}
	for _, c := range e.claims() {
		if want := of[c.Labels[karpv1.NodePoolLabelKey]]; c.Labels[managedBy] != want {
			t.Errorf("claim %s of pool %s is managed by %q, want %q", c.Name, c.Labels[karpv1.NodePoolLabelKey], c.Labels[managedBy], want)
		}
	}
	for _, n := range e.nodes() {
		if want := of[n.Labels[karpv1.NodePoolLabelKey]]; n.Labels[managedBy] != want {
			t.Errorf("node %s of pool %s is managed by %q, want %q", n.Name, n.Labels[karpv1.NodePoolLabelKey], n.Labels[managedBy], want)
		}
	}

	for _, third := range []struct {
		name, team string
		want       []string
	}{
		{"", "", []string{"ProvisionArgs: name: Required value", "manages nodes of this cluster: a second one needs a name, a nodePoolSelector", "(lease kube-system/"}},
		{"green", "a", []string{`ProvisionArgs: nodePoolSelector: Invalid value: "team=a"`, `Dovetail "red" (lease kube-system/red, held by `}},
	} {
		p, err := e.c.StartScheduler(e.ctx, e.severalOptions(third.name, third.team))
		if err == nil {
			p.Kill()
			t.Fatalf("a third Dovetail, named %q, has started", third.name)
		}
		for _, want := range third.want {
			if !strings.Contains(strings.ReplaceAll(err.Error(), `\"`, `"`), want) { // it is quoted in the log
				t.Errorf("the third, named %q, doesn't say %q but: %v", third.name, want, err)
			}
		}
	}

	// Red is gone: blue leaves what it had alone, and launches nothing for its pods, but goes on with its own.
	e.sched.Kill()
	reds := e.launchedBy("red")
	e.pods("more-apple", 1, "3", "1Gi", scheduler("red"))
	claim := e.claimsOf("bananas")[0]
	e.patch(&karpv1.NodeClaim{}, claim.Name, `{"metadata":{"finalizers":null}}`)
	if err := e.api.Delete(e.ctx, claim); err != nil {
		t.Fatal(err)
	}
	instance := claim.Status.ProviderID[strings.LastIndex(claim.Status.ProviderID, "/")+1:]
	if err := wait.PollUntilContextCancel(e.wait(), 100*time.Millisecond, true, func(context.Context) (bool, error) {
		state := e.launchedBy("blue")[instance]
		return state != "running" && state != "pending", nil
	}); err != nil {
		t.Errorf("blue doesn't collect its instance %s, whose claim was removed: %v", instance, e.launchedBy("blue"))
	}
	// What collected that one has looked at all that are as old. It drains a node before it ends its instance.
	if now := e.launchedBy("red"); fmt.Sprint(now) != fmt.Sprint(reds) {
		t.Errorf("without red its instances became %v, want %v", now, reds)
	}
	for _, n := range e.nodes() {
		if n.Labels[managedBy] == "red" && n.DeletionTimestamp != nil {
			t.Errorf("blue has deleted node %s of red", n.Name)
		}
	}

	// It comes back, takes over what is its own, and leaves the instances of the other alone, which is gone now.
	blue.Kill()
	blues, before := e.launchedBy("blue"), e.looks("red")
	if e.sched, err = e.c.StartScheduler(e.ctx, e.severalOptions("red", "a")); err != nil {
		t.Fatal(err)
	}
	e.onPools("more-apple", 1, "apples")
	e.running("more-apple", 1)
	e.collected("red", before)
	for id, state := range e.launchedBy("blue") {
		if was := blues[id]; was == "running" && state != "running" {
			t.Errorf("red has ended %s of blue", id)
		}
	}
	for _, n := range e.nodes() {
		if n.Labels[managedBy] == "blue" && n.Name != claim.Status.NodeName && n.DeletionTimestamp != nil {
			t.Errorf("red has deleted node %s of blue", n.Name)
		}
	}
	if n := len(e.launchedBy("red")); n != len(reds)+1 {
		t.Errorf("red has launched %d instances, want %d", n, len(reds)+1)
	}
	if n := len(e.claimsOf("apples")); n != 4 {
		t.Errorf("%d claims in red's pool, want 4", n)
	}
}

// A Dovetail that had no name gets one: its nodes are labelled by hand, and it goes on with them. Without the label they would be nobody's.
func TestANameIsGiven(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.idle, s.mortal = true, true })
	e.apply(leasesOfSeveral, nodeClass, teamPool("apples", "a"))
	var err error
	unnamed := e.severalOptions("", "")
	unnamed.Config.Profiles()[0]["schedulerName"] = "red"
	if e.sched, err = e.c.StartScheduler(e.ctx, unnamed); err != nil {
		t.Fatal(err)
	}
	e.pods("apple", 2, "3", "1Gi", scheduler("red"))
	e.running("apple", 2)
	e.settled(2)
	e.sched.Stop() // which releases its lease
	const label = `{"metadata":{"labels":{"dovetail.sh/managed-by":"red"}}}`
	for _, c := range e.claims() {
		e.patch(&karpv1.NodeClaim{}, c.Name, label)
	}
	for name := range e.nodes() {
		e.patch(&corev1.Node{}, name, label)
	}
	if e.sched, err = e.c.StartScheduler(e.ctx, e.severalOptions("red", "a")); err != nil {
		t.Fatal(err)
	}
	e.pods("more-apple", 1, "3", "1Gi", scheduler("red"))
	e.running("more-apple", 1)
	e.collected("red", e.looks("red"))
	e.settled(3)
	if n := e.launches(); n != 3 {
		t.Errorf("%d instances were launched, want 3", n)
	}
	// The claims without tagged instances end theirs, too.
	for i := range 2 {
		if err := e.api.Delete(e.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("apple-", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range e.claims() {
		if instance := e.launchedBy(""); instance[c.Status.ProviderID[strings.LastIndex(c.Status.ProviderID, "/")+1:]] != "" {
			if err := e.api.Delete(e.ctx, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.settled(1)
}
