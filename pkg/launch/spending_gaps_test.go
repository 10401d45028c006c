package launch

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
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
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// A probe is a launch like others: it is not for pods of namespaces that namespaceSelector leaves out, nor for pods that preemption makes
// room for.
func TestProbesAreForPodsThatMayCauseLaunches(t *testing.T) {
	for _, tc := range []struct {
		selected, nominated bool
		want                int
	}{{true, false, 1}, {false, false, 0}, {true, true, 0}} {
		w := newWorld(t)
		w.clock, w.budget = clocktesting.NewFakeClock(epoch), &spending.Config{}
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
		w.parts.plans.Probes.Probe(t.Context())
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
	w, c := guarded(t, spending.Config{})
	w.otherPool, w.planner = "z", oneInPool{"pool"}
	apps := []string{"a", "b"}
	for _, app := range apps {
		w.opens(guard.PodKey("pool", guard.Workload{Namespace: "d", Owner: "ReplicaSet/" + app}), guard.Fault{Cause: "taint x", Message: "taint x evicts it"})
	}
	w.parts.writer.WriteRecords(t.Context())
	later := fmt.Sprintf(`"next":%d`, c.Now().Add(6*time.Hour).Unix())
	w.kept[ofPool] = regexp.MustCompile(`"next":\d+`).ReplaceAllString(w.kept[ofPool], later)
	if n := strings.Count(w.kept[ofPool], later); n != len(apps) {
		t.Fatalf("%d breakers are probed later: %s", n, w.kept[ofPool])
	}
	w.leads()
	for i, app := range apps {
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
	for range 10 {
		w.plans()
		w.parts.plans.Probes.Probe(t.Context())
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
	w.spending.Changes.PoolChanged("pool", "class", false)
	w.asks(c, 2)
	if got := w.spending.Due(); len(got) == 0 {
		t.Errorf("nothing is tried after the pool has changed: %q", w.notes)
	}
}

// Admission has let a Node pass that meets another of its name.
func TestANodeThatExistsIsNotRefused(t *testing.T) {
	w, c := refusedNode(t)
	w.broken["CreateNode"] = apierrors.NewAlreadyExists(schema.GroupResource{Resource: "nodes"}, "n")
	w.asks(c, 20)
	if got := w.spending.Due(); len(got) == 0 {
		t.Errorf("nothing is tried: %q", w.notes)
	}
}

func refusedNode(t *testing.T) (*world, *clocktesting.FakeClock) {
	w, c := guarded(t, spending.Config{})
	s := w.spending
	claim := &capacity.Claim{Name: "c", Pool: "pool", NodeClass: "class", Launched: true, CreatedAt: c.Now(), Purchase: &guard.Purchase{Round: "r"}}
	s.Buy(claim, nil, nil)
	s.NodeRefused(claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, errors.New("label team is missing"))
	s.Ended("c", true)
	return w, c
}

// asks has the API server asked for some minutes whether it would accept what it refused.
func (w *world) asks(c *clocktesting.FakeClock, minutes int) {
	for range minutes {
		c.Step(time.Minute)
		w.parts.writer.RetryNodes(w.t.Context())
		w.spending.Settle(w.reservations)
	}
}

// Whoever makes NodeClaims anew under other names is known by what they ask for, or by the controller.
func TestStandaloneClaimsAreCountedByWhatTheyAskFor(t *testing.T) {
	for _, pool := range []string{"", "pool"} {
		w, c := guarded(t, spending.Config{})
		launched := 0
		for i := range 96 { // one each quarter of an hour for a day
			name := fmt.Sprint("workstation-", i)
			w.writes(name, func(c *capacity.Claim) { c.Pool = pool })
			w.parts.standalone.takeOrders(t.Context())
			w.settled()
			if got := w.claims[name]; got != nil && got.ProviderID != "" {
				launched++
				w.spending.Ending(name, &guard.Fault{Cause: guard.CauseUninitialized + ": resource nvidia.com/gpu", Message: "no device"})
				w.spending.Ended(name, true)
			}
			c.Step(15 * time.Minute)
			w.mu.Lock()
			delete(w.claims, name)
			w.mu.Unlock()
			w.parts.cleanup.forget(name)
			w.spending.Settle(w.reservations)
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
