package launch

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// A probe is a launch like others: it is not for pods of namespaces that namespaceSelector leaves out, nor for pods that preemption makes
// room for.
func TestProbesAreForPodsThatMayCauseLaunches(t *testing.T) {
	for _, tc := range []struct {
		selected, nominated bool
		want                int
	}{{true, false, 1}, {false, false, 0}, {true, true, 0}} {
		w := newWorld(t)
		w.clock, w.budget = clocktesting.NewFakeClock(epoch), &SpendingConfig{}
		w.selector = labels.SelectorFromSet(labels.Set{"nodes": "true"})
		w.leads()
		if err := w.namespaces.Add(namespace("d", labels.Set{"nodes": fmt.Sprint(tc.selected)})); err != nil {
			t.Fatal(err)
		}
		w.opens(badImage, broken)
		w.submit(1)
		w.plans()
		if tc.nominated {
			pod := w.pending.All()[0].DeepCopy()
			pod.Status.NominatedNodeName = "n"
			w.pending.Handler().OnAdd(pod, false)
		}
		w.parts.prober.probe(t.Context())
		w.settled()
		if got := len(w.bought()); got != tc.want {
			t.Errorf("%+v: %d machines were launched", tc, got)
		}
	}
}

// oneInPool plans pods of the application "a" in one pool only and others anywhere, as far as nothing is forbidden.
type oneInPool struct{ pool string }

func (p oneInPool) Plan(v *capacity.View, o capacity.Options) *capacity.Plan {
	out := &capacity.Plan{}
	for _, d := range v.Demand {
		for _, ref := range d.Pods {
			n, why := p.node(v, o, d.Class, len(out.Nodes))
			if n == nil {
				out.Refused = append(out.Refused, capacity.Refusal{Class: d.Class, Pods: []capacity.PodRef{ref}, Message: why, Retryable: true})
				continue
			}
			out.Nodes = append(out.Nodes, n)
			out.Placements = append(out.Placements, capacity.Placement{Class: d.Class, Pod: ref, Node: n.ID})
		}
	}
	return out
}

func (p oneInPool) node(v *capacity.View, o capacity.Options, c *capacity.Class, i int) (n *capacity.PlannedNode, why string) {
	for _, pool := range v.Pools {
		forbidden := c.Pod.Labels["app"] == "a" && pool.Name != p.pool
		for _, f := range o.Forbidden {
			if f.Class == c.Key && f.Pool == pool.Name {
				forbidden, why = true, f.Reason
			}
		}
		if !forbidden {
			return cheapest(pool, fmt.Sprint("new-", i)), ""
		}
	}
	return nil, why
}

// Two workloads fail in one pool of the same cause, and one of them can't run elsewhere. That must not keep the other from being tried in
// another pool.
func TestTrialsAreForWhoCanUseThePool(t *testing.T) {
	w, c := guarded(t, SpendingConfig{})
	w.otherPool = "z"
	w.parts.planning.planner = oneInPool{"pool"}
	for i, app := range []string{"a", "b"} {
		w.opens(guard.PodKey("pool", guard.Workload{Namespace: "d", Owner: "ReplicaSet/" + app}), guard.Fault{Cause: "taint x", Message: "taint x evicts it"})
		pod := w.pod(i)
		pod.Name, pod.UID, pod.Labels = app, types.UID(app), map[string]string{"app": app}
		pod.OwnerReferences[0].Name, pod.OwnerReferences[0].UID = app, types.UID("rs-"+app)
		w.pending.Handler().OnAdd(pod, false)
		class, err := w.pending.Classes.Class(pod)
		if err != nil {
			t.Fatal(err)
		}
		w.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Submit(capacity.RefOf(pod), class, now) })
	}
	for _, b := range w.spending.guard.Breakers() {
		b.Next = c.Now().Add(6 * time.Hour)
	}
	for range 10 {
		w.plans()
		w.parts.prober.probe(t.Context())
		w.settled()
		c.Step(10 * time.Second)
	}
	if got := w.bought(); len(got) != 1 || w.claims[got[0]].Pool != "z" {
		t.Errorf("launched %v, want a machine of the other pool for the workload that may run there", got)
	}
}

// What a policy demands of Nodes may be mended on the pool, whose labels they get.
func TestPoolChangesAreTriedWhereNodesWereRefused(t *testing.T) {
	w, c := refusedNode(t)
	w.broken["CreateNode"] = errors.New("label team is missing") // of the Node as it was
	w.spending.PoolChanged("pool", "class", false)
	w.asks(c, 2)
	if got := w.spending.due(); len(got) == 0 {
		t.Errorf("nothing is tried after the pool has changed: %s", w.spending.guard.Breakers()[0].Text())
	}
}

// Admission has let a Node pass that meets another of its name.
func TestANodeThatExistsIsNotRefused(t *testing.T) {
	w, c := refusedNode(t)
	w.broken["CreateNode"] = apierrors.NewAlreadyExists(schema.GroupResource{Resource: "nodes"}, "n")
	w.asks(c, 20)
	if got := w.spending.due(); len(got) == 0 {
		t.Errorf("nothing is tried: %s", w.spending.guard.Breakers()[0].Text())
	}
}

func refusedNode(t *testing.T) (*world, *clocktesting.FakeClock) {
	w, c := guarded(t, SpendingConfig{})
	s := w.spending
	claim := &capacity.Claim{Name: "c", Pool: "pool", NodeClass: "class", Launched: true, CreatedAt: c.Now(), Purchase: &guard.Purchase{Round: "r"}}
	s.buy(claim, nil, nil)
	s.nodeRefused(claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, errors.New("label team is missing"))
	s.overClaim("c", true)
	return w, c
}

// asks has the API server asked for some minutes whether it would accept what it refused.
func (w *world) asks(c *clocktesting.FakeClock, minutes int) {
	for range minutes {
		c.Step(time.Minute)
		w.parts.records.askAboutNodes(w.t.Context())
		w.spending.settle(w.reservations)
	}
}

// Whoever makes NodeClaims anew under other names is known by what they ask for, or by the controller.
func TestStandaloneClaimsAreCountedByWhatTheyAskFor(t *testing.T) {
	for _, pool := range []string{"", "pool"} {
		w, c := guarded(t, SpendingConfig{})
		launched := 0
		for i := range 96 { // one each quarter of an hour for a day
			name := fmt.Sprint("workstation-", i)
			w.writes(name, func(c *capacity.Claim) { c.Pool = pool })
			w.parts.standalone.takeOrders(t.Context())
			w.settled()
			if got := w.claims[name]; got != nil && got.ProviderID != "" {
				launched++
				w.spending.Ending(name, &guard.Fault{Cause: guard.CauseUninitialized + ": resource nvidia.com/gpu", Message: "no device"})
				w.spending.overClaim(name, true)
			}
			c.Step(15 * time.Minute)
			w.mu.Lock()
			delete(w.claims, name)
			w.mu.Unlock()
			w.parts.cleanup.forget(name)
			w.spending.settle(w.reservations)
		}
		if launched > 10 {
			t.Errorf("pool %q: %d machines in a day", pool, launched)
		}
	}
	one := capacity.Claim{Name: "x", NodeClass: "class", Requests: capacity.Resources{"cpu": 1000}, Order: &capacity.Order{}}
	two := one
	two.Requests = capacity.Resources{"cpu": 2000}
	if orderedAs(&one) == orderedAs(&two) {
		t.Error("what asks for something else counts as the same")
	}
	two.Order = &capacity.Order{Owner: "Workspace/a"}
	if got := orderedAs(&two).Owner; got != "Workspace/a" {
		t.Errorf("a controller's claim counts as %s", got)
	}
}

// A node that may become a known image or a new one counts among the nodes of the new one, until there are enough of these.
func TestNewImagesBesideKnownOnes(t *testing.T) {
	p := newPurse(t, SpendingConfig{NewImageNodes: 2})
	p.guard.Know("class", "ami-known")
	pool := &capacity.Pool{Name: "pool", NodeClass: "class"}
	offer := func(name, image string) capacity.NodeOffer {
		return capacity.NodeOffer{Type: &capacity.InstanceType{Name: name, Image: image}, Offer: capacity.Offer{Zone: "a", Available: true, Price: 1}}
	}
	check := p.admit(10, func() *money { return &money{} })
	fresh := 0
	for range 10 {
		offers := check.spare(pool, []capacity.NodeOffer{offer("m7g.large", "ami-new"), offer("m7i.large", "ami-known")}, []guard.Workload{web})
		if why, _ := check.refuses(pool, offers, []guard.Workload{web}, nil, false, ""); why != "" {
			t.Fatalf("a node that may become a known image is refused: %s", why)
		}
		if len(offers) == 2 {
			fresh++
		}
	}
	if fresh != 2 {
		t.Errorf("%d nodes may become the new image, want 2", fresh)
	}
	only := []capacity.NodeOffer{offer("m7g.large", "ami-new")}
	if why, soon := check.refuses(pool, check.spare(pool, only, nil), nil, nil, false, ""); why == "" || !soon {
		t.Errorf("a third node of the new image alone: %q", why)
	}
}

// A controller may never make the pods that capacity was launched ahead for. None is launched ahead for it again for an hour.
func TestCapacityAheadOfPodsThatDoNotCome(t *testing.T) {
	p := newPurse(t, SpendingConfig{})
	pod := p.pod("p", "")
	p.buys("for-a-pod", pod)
	p.Emptied("for-a-pod")
	if p.unfulfilledOf(pod) {
		t.Error("a machine for a pod that is known counts as one for pods that did not come")
	}
	p.buys("ahead")
	p.Emptied("ahead")
	if !p.unfulfilledOf(pod) {
		t.Error("more would be launched ahead at once")
	}
	p.passes(time.Hour)
	if p.unfulfilledOf(pod) {
		t.Error("nothing is launched ahead any more an hour later")
	}
}

// Each of many Jobs of one owner wants one pod. Some that are thrown off are few of the owner's.
func TestPodsOfManyControllersAreCountedTogether(t *testing.T) {
	p := newPurse(t, SpendingConfig{})
	for i := range 20 {
		p.buys(fmt.Sprint("c", i), p.pod(fmt.Sprint("p", i), ""))
	}
	for i := range 3 {
		pod := p.pod(fmt.Sprint("p", i), "", func(pod *corev1.Pod) {
			pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].APIVersion = "Job", "batch/v1"
		})
		p.mu.Lock()
		p.throwLocked(p.machines[fmt.Sprint("c", i)], web, pod, &guard.Fault{Cause: causePreempted}, p.clock.Now())
		p.mu.Unlock()
	}
	if got := len(p.guard.Breakers()); got != 0 {
		t.Errorf("%d breakers after three pods of twenty were preempted", got)
	}
}
