package launch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

func TestClaimMadeByHandBecomesANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.during["Launch"] = func() {
		c := w.claims["mine"]
		if c.LaunchBatch == nil || c.LaunchBatch.Token == "" || c.LaunchBatch.For != capacity.ForOrder || w.calls["Take"] != 1 || len(c.Largest) == 0 {
			t.Errorf("launched before it was ours and recorded: %+v", c)
		}
	}
	w.run()
	w.writes("mine")
	w.until("a node", func() bool { return w.isNode("mine") })
	w.exactly(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.claims["mine"]
	if got := w.instances[c.Instance().ID].InstanceType; got != "large" {
		t.Errorf("launched as %s, which does not hold what is asked", got)
	}
	if c.Labels["by"] != "hand" || len(w.tokens) != 1 {
		t.Errorf("labels %v, %d launch batches", c.Labels, len(w.tokens))
	}
}

func TestEachOrderIsALaunchBatchOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		w.writes(fmt.Sprint("mine-", i)) // before any leader runs
	}
	w.run()
	w.exactly(5)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tokens) != 5 {
		t.Errorf("%d launch batches", len(w.tokens))
	}
}

func TestWhatIsNoOrderIsNotLaunched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, change := range map[string]func(*capacity.Claim){
		"launched":   func(c *capacity.Claim) { c.ProviderID, c.Launched = "aws:///a/i-old", true },
		"recorded":   func(c *capacity.Claim) { c.ProviderID = "aws:///a/i-older" },
		"deleting":   func(c *capacity.Claim) { c.Deleting = true },
		"unreadable": func(c *capacity.Claim) { c.Order, c.Unreadable = nil, "annotation dovetail.sh/launch-batch: nonsense" },
	} {
		w.writes(name, change, func(c *capacity.Claim) { c.NodeName, c.Initialized = "n-"+name, name == "launched" })
	}
	w.run()
	w.writes("mine")
	w.until("a node of the only order", func() bool { return w.isNode("mine") })
	w.stop()
	if len(w.tokens) != 1 || len(w.claims) != 5 {
		t.Errorf("%d launch batches, %d claims; want one and all five", len(w.tokens), len(w.claims))
	}
}

func TestOrdersThatCannotBeLaunched(t *testing.T) {
	for _, tt := range []struct {
		name   string
		world  func(*world)
		change func(*capacity.Claim)
		says   string
	}{
		{"an invalid claim", func(*world) {}, func(c *capacity.Claim) { c.Order.Invalid = "spec.taints[0].key: Required value" },
			"mine Invalid for good: spec.taints[0].key: Required value"},
		{"more than any machine has", func(*world) {}, func(c *capacity.Claim) { c.Requests = capacity.Resources{corev1.ResourceCPU: 64000} },
			"mine NoCompatibleInstanceTypes for good: spec.resources.requests: none of 2 instance types has capacity for it: cpu 64 requested, 4 at most"},
		{"a type that there is not", func(*world) {}, func(c *capacity.Claim) {
			c.Order.Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelTopologyZone, "nowhere"))
		}, "mine NoCompatibleInstanceTypes for now: spec.requirements: none of 2 instance types is available"},
		{"a class that is going", func(w *world) { w.classProblem = "EC2NodeClass class is being deleted" }, func(*capacity.Claim) {},
			"mine NodeClassNotReady for now: spec.nodeClassRef.name: EC2NodeClass class is being deleted"},
		{"a class that nobody could look for", func(w *world) {
			w.classProblem, w.broken["NodeClassEnds"] = "there is no EC2NodeClass class", errors.New("timeout")
		}, func(*capacity.Claim) {}, "mine NodeClassNotReady for now: spec.nodeClassRef.name: there is no EC2NodeClass class"},
		{"a class that isn't resolved", func(w *world) { w.unready = "EC2NodeClass class: not resolved yet" }, func(*capacity.Claim) {},
			"mine NodeClassNotReady for now: spec.nodeClassRef.name: EC2NodeClass class: not resolved yet"},
		{"no permission", func(w *world) { w.broken["Launch"] = fmt.Errorf("%w: not authorized", capacity.ErrRefused) }, func(*capacity.Claim) {},
			"mine LaunchRefused for now: refused by the cloud: not authorized"},
		{"no capacity", func(w *world) { w.capacity["large"] = 0 }, func(*capacity.Claim) {}, "mine NoCompatibleInstanceTypes for now: all matching offerings are unavailable now: none of"},
		{"a cloud that doesn't answer", func(w *world) { w.broken["FindClaim"] = errors.New("timeout") }, func(*capacity.Claim) {},
			"mine LaunchFailed for now: looking for an instance that was launched for it: timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tt.world(w)
			w.run()
			w.writes("mine", tt.change)
			w.until("what is wrong said", w.noted(tt.says))
			w.mu.Lock()
			if len(w.instances) > 0 || w.claims["mine"] == nil {
				t.Errorf("%d instances; the claim is there: %v", len(w.instances), w.claims["mine"] != nil)
			}
			clear(w.broken)
			clear(w.capacity)
			w.classProblem, w.unready = "", ""
			w.mu.Unlock()
			if !strings.Contains(tt.says, "for now") || strings.Contains(tt.says, "is available") {
				return
			}
			w.until("it is launched after all", func() bool { return w.isNode("mine") })
			w.exactly(1)
		})
	}
}

// If its node class doesn't exist, or another controller reports that it can't be used, a claim ends at once, as in Karpenter.
func TestOrdersEndWithoutTheirClass(t *testing.T) {
	for name, tt := range map[string]struct{ reason, why string }{
		"there is none": {"NodeClassNotFound", "there is no EC2NodeClass class"},
		"not ready":     {"NodeClassNotReady", "EC2NodeClass class: another controller reports that it is not ready (Testing): by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.classProblem, w.classEnds = tt.why, tt.reason
			w.run()
			w.writes("mine")
			w.until("it is said, and the claim is gone", func() bool {
				return w.claims["mine"] == nil && slices.Contains(w.notes, "mine "+tt.reason+" for good: spec.nodeClassRef.name: "+tt.why)
			})
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.instances) > 0 || w.calls["Take"] > 0 {
				t.Errorf("%d instances, taken %d times", len(w.instances), w.calls["Take"])
			}
		})
	}
}

// A node class can become unusable between the plan and the launch, and between two attempts: the next attempt is not made.
func TestNothingIsLaunchedWithAClassThatIsNotReadyAnyMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.during["Create"] = func() {
		w.classProblem = "EC2NodeClass class: another controller reports that it is not ready (Testing): by hand"
	}
	w.run()
	w.submit(1)
	w.until("the launch is given up", func() bool {
		return slices.ContainsFunc(w.notes, func(s string) bool { return strings.Contains(s, "another controller reports") })
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls["Launch"] > 0 || len(w.instances) > 0 {
		t.Errorf("%d calls, %d instances", w.calls["Launch"], len(w.instances))
	}
}

// A launch under one token was refused; the next try is another attempt with its own token.
func TestOrderThatWasRefusedIsTriedUnderANewToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tokens := map[string]bool{}
	w.broken["Launch"] = fmt.Errorf("%w: not authorized", capacity.ErrRefused)
	w.during["Launch"] = func() { tokens[w.claims["mine"].LaunchBatch.Token] = true }
	w.run()
	w.writes("mine")
	w.until("two tries", func() bool { return w.calls["Launch"] > 1 })
	w.mu.Lock()
	delete(w.broken, "Launch")
	w.mu.Unlock()
	w.until("a node", func() bool { return w.isNode("mine") })
	w.stop()
	if len(tokens) != w.calls["Launch"] || len(w.instances) != 1 {
		t.Errorf("%d tokens in %d calls, %d instances", len(tokens), w.calls["Launch"], len(w.instances))
	}
}

// The leader dies at some point; the next one finds the standalone NodeClaim as it is then.
func TestRestartLaunchesNoOrderTwice(t *testing.T) {
	for _, tt := range []struct {
		name string
		die  func(w *world) (reached func() bool)
	}{
		{"before it was taken", func(w *world) func() bool {
			w.broken["FindClaim"] = errors.New("timeout")
			return func() bool { return w.calls["FindClaim"] > 0 }
		}},
		{"before the call", func(w *world) func() bool {
			w.broken["Launch"] = errors.New("timeout")
			return func() bool { return w.calls["Launch"] > 0 }
		}},
		{"after the call, before its record", func(w *world) func() bool {
			w.lost["Launch"] = 1 << 30
			return func() bool { return len(w.instances) == 1 }
		}},
		{"before the node", func(w *world) func() bool {
			w.broken["Describe"] = errors.New("timeout")
			return func() bool { return w.claims["mine"].Launched }
		}},
		{"between two tries", func(w *world) func() bool {
			w.broken["Launch"] = fmt.Errorf("%w: not authorized", capacity.ErrRefused)
			return w.noted("not authorized")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			reached := tt.die(w)
			w.run()
			w.writes("mine")
			w.until(tt.name, reached)
			w.stop()
			clear(w.broken)
			clear(w.lost)
			w.run()
			w.until("a node", func() bool { return w.isNode("mine") })
			w.exactly(1)
			w.stop()
			if len(w.tokens) != 1 || w.seq != 1 {
				t.Errorf("launched under %d tokens, %d instances in all", len(w.tokens), w.seq)
			}
		})
	}
}

func TestOrderThatIsDeletedBeforeItsLaunch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broken["Launch"] = fmt.Errorf("%w: not authorized", capacity.ErrRefused)
	w.run()
	w.writes("mine")
	w.until("a try", w.noted("not authorized"))
	w.mu.Lock()
	delete(w.claims, "mine")
	delete(w.broken, "Launch")
	w.mu.Unlock()
	w.parts.Claims.ClaimGone("mine", "its NodeClaim was deleted")
	w.writes("other")
	w.until("a node for the other one", func() bool { return w.isNode("other") })
	w.exactly(1)
}

// While its launch takes long the claim is deleted, and another one of the same name created. The instance does not belong to the new one.
func TestOrderOfTheSameNameIsAnotherOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broken["Describe"] = errors.New("timeout")
	w.run()
	w.writes("mine")
	w.until("an instance", func() bool { return len(w.instances) == 1 })
	w.mu.Lock()
	delete(w.claims, "mine")
	w.mu.Unlock()
	w.parts.Claims.ClaimGone("mine", "its NodeClaim was deleted")
	w.writes("mine", func(c *capacity.Claim) { c.UID = "another" })
	w.mu.Lock()
	delete(w.broken, "Describe")
	w.mu.Unlock()
	w.until("a node of its own", func() bool {
		_, old := w.instances["i-0001"]
		return w.isNode("mine") && !old
	})
	w.exactly(1)
}

// A pod that is created while a standalone NodeClaim's instance is in flight waits for it.
func TestPodsArePlannedOnAnOrderInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broken["Describe"] = errors.New("timeout")
	w.run()
	w.writes("mine", func(c *capacity.Claim) { c.Labels = map[string]string{labelPool: "pool"}; c.Pool = "pool" })
	w.until("an instance", func() bool { return len(w.instances) == 1 })
	w.submit(2)
	w.until("a plan", w.noted("p1 Nominated Planned on mine"))
	w.mu.Lock()
	delete(w.broken, "Describe")
	w.mu.Unlock()
	w.allBound(2)
	w.exactly(1)
}

// Karpenter launched the instance and died before it could record it.
func TestInstanceThatBearsTheNameOfAClaim(t *testing.T) {
	t.Parallel()
	for _, provisioned := range []bool{false, true} {
		t.Run(fmt.Sprint("provisioned ", provisioned), func(t *testing.T) {
			w := newWorld(t)
			w.instances["i-karpenter"] = capacity.Instance{ID: "i-karpenter", ProviderID: "aws:///a/i-karpenter", InstanceType: "large", Zone: "a",
				CapacityType: "on-demand", State: capacity.InstanceRunning, NodeName: "node-k", Claim: "theirs"}
			w.writes("theirs", func(c *capacity.Claim) { c.Order.Provisioned = provisioned })
			w.run()
			w.until("a node", func() bool { return w.isNode("theirs") })
			w.exactly(1)
			w.stop()
			if w.calls["Launch"] > 0 {
				t.Error("launched once more")
			}
		})
	}
}

// Karpenter made a claim for pods and never launched it. The claim ends, and the pods get one node of ours.
func TestClaimThatAnotherProvisionerNeverLaunched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.writes("theirs", func(c *capacity.Claim) { c.Order.Provisioned = true })
	w.run()
	w.submit(3)
	w.allBound(3)
	w.until("their claim is gone", func() bool { return w.claims["theirs"] == nil })
	w.exactly(1)
}

// Another controller launched a claim while it led. When it is gone, waiting pods are planned on that node in flight.
func TestWhatAnotherOwnerLaunchedIsCountedOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	w.mu.Lock()
	w.owner = "Karpenter leads"
	w.mu.Unlock()
	w.parts.Ownership.HoldChanged()
	w.submit(2)
	w.until("a word about it", w.noted("nothing can be launched: Karpenter leads"))
	w.mu.Lock()
	w.instances["i-karpenter"] = capacity.Instance{ID: "i-karpenter", ProviderID: "aws:///a/i-karpenter", InstanceType: "large", Zone: "a",
		CapacityType: "on-demand", State: capacity.InstanceRunning, NodeName: "node-k"}
	w.claims["theirs"] = &capacity.Claim{Name: "theirs", UID: "theirs", Pool: "pool", NodeClass: "class", Launched: true, ProviderID: "aws:///a/i-karpenter",
		InstanceType: "large", Zone: "a", CapacityType: "on-demand", Labels: map[string]string{labelPool: "pool"},
		Allocatable: capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourcePods: 10}, Order: &capacity.Order{Provisioned: true}}
	w.owner = ""
	w.mu.Unlock()
	w.parts.Ownership.HoldChanged()
	w.allBound(2)
	w.exactly(1)
}

// The other controller goes between the moment at which its nodes would be taken over and the round's.
func TestNothingIsPlannedBeforeTheirNodesAreTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.build()
	w.submit(2)
	w.parts.Ownership.HoldChanged()
	w.parts.Rounds.Round(t.Context())
	w.exactly(0)
	select {
	case <-w.parts.Triggers.Demand():
	default:
		t.Error("the planner doesn't look again")
	}
}

func TestOrdersWaitForAnotherOwnerToGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	w.submit(1)
	w.allBound(1)
	w.mu.Lock()
	w.owner = "Karpenter leads"
	w.mu.Unlock()
	w.parts.Ownership.HoldChanged()
	w.writes("mine")
	w.submitPod(1) // enough for another node
	w.submitPod(2)
	w.submitPod(3)
	w.submitPod(4)
	w.until("a word about it", w.noted("nothing can be launched: Karpenter leads"))
	w.mu.Lock()
	if len(w.instances) != 1 || w.claims["mine"].LaunchBatch != nil {
		t.Errorf("%d instances, launch batch %v", len(w.instances), w.claims["mine"].LaunchBatch)
	}
	w.mu.Unlock()
	w.goes()
	w.until("a node", func() bool { return w.isNode("mine") })
}

// A user deletes a NodeClaim and writes it again under its name while the first one is being given up. The second one stays, and is launched.
func TestGiveUpDeletesThisClaimOnly(t *testing.T) {
	w, _ := guarded(t, spending.Config{})
	w.writes("desk", func(c *capacity.Claim) { c.UID = "second" })
	w.parts.orders.refuseOrder(t.Context(), w.claims["desk"], "NodeClassNotReady", "later", true)
	w.parts.cleanup.giveUp(t.Context(), &capacity.Claim{Name: "desk", UID: "first"}, "NotLaunched", "it was never launched")
	w.settled()
	if w.claims["desk"] == nil {
		t.Error("the claim that has the name now was deleted")
	}
	if w.parts.orders.orders["desk"] == nil {
		t.Error("what is known of the claim that has the name now was forgotten: it is launched at once, whatever was recorded")
	}
	w.parts.cleanup.giveUp(t.Context(), &capacity.Claim{Name: "desk", UID: "second"}, "NotLaunched", "it was never launched")
	if w.claims["desk"] != nil {
		t.Error("the claim that was given up is still there")
	}
}
