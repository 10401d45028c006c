package disruption

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// lives makes a node expire after so long.
func lives(d string) func(*karpv1.NodeClaim, *corev1.Node) {
	return func(c *karpv1.NodeClaim, _ *corev1.Node) {
		c.CreationTimestamp = metav1.NewTime(epoch)
		c.Spec.ExpireAfter = karpv1.MustParseNillableDuration(d)
	}
}

// controlled gives a pod a controller, which would create it again.
func controlled(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: new(true)}}
}

// staying is a pool that keeps its empty nodes.
func staying(p *karpv1.NodePool) {
	p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
}

// interrupted records an interruption on a claim.
func (w *world) interrupted(name string, at time.Time, kind capacity.InterruptionKind) {
	w.t.Helper()
	claim := w.claim(name)
	claim.Annotations = map[string]string{objects.AnnotationInterrupted: at.UTC().Format(time.RFC3339) + " " + string(kind)}
	if err := w.claims.Update(w.t.Context(), claim); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) event(start string) bool {
	return slices.ContainsFunc(w.events, func(e string) bool { return strings.HasPrefix(e, start) })
}

// passUntil makes passes as often as they come, until just before then, and checks that nothing ends.
func (w *world) passUntil(then time.Time) {
	w.t.Helper()
	for w.clock.Now().Add(pollEvery).Before(then) {
		w.clock.Step(pollEvery)
		if w.mustPass(); len(w.deleted) > 0 {
			w.t.Fatalf("%v ended at %s, before %s", w.deleted, w.clock.Now(), then)
		}
	}
}

func TestExpiry(t *testing.T) {
	web := func(w *world) { w.bind("web", "node-a", controlled) }
	dry := func(w *world) {
		web(w)
		w.dryRun()
	}
	for _, tc := range []struct {
		name    string
		pool    func(*karpv1.NodePool)
		machine func(*karpv1.NodeClaim, *corev1.Node)
		setup   func(w *world)
		room    string
		from    time.Duration // another pass is made then; 0: none
		after   time.Duration
		ends    bool
		closed  bool // cordoned and tainted
		asked   string
		event   string
		taken   time.Duration // after the beginning; 0: never
	}{
		{name: "long before its time nothing happens", machine: lives("1h"), setup: web, after: 49 * time.Minute},
		{name: "ten minutes before it is closed and its pods get room", machine: lives("1h"), setup: web, after: 50 * time.Minute, closed: true, asked: "web",
			event: "a Normal ReplacementPlanned: The drain of the node begins at 2026-03-01T13:00:00Z at the latest, because its expireAfter is over: capacity for its pods (1) is being prepared"},
		{name: "what is kept there for CapacityBuffers is given up", machine: lives("1h"), after: 50 * time.Minute, closed: true, asked: "web",
			setup: func(w *world) { web(w); w.chunks["node-a"] = true }},
		{name: "a short life: in its last quarter", machine: lives("4m"), setup: web, after: 3 * time.Minute, closed: true, asked: "web"},
		{name: "it goes when the room is there", machine: lives("1h"), setup: web, room: "ready", after: 50 * time.Minute, ends: true, closed: true, asked: "web",
			event: "a Normal DisruptionTerminating: Terminating the node: its expireAfter is over"},
		{name: "what stands in the way is said", machine: lives("1h"), setup: web, room: "pool default: limit reached", after: 55 * time.Minute, closed: true, asked: "web",
			event: "a Warning ReplacementMissing: No replacement capacity for the pods of the node yet: pool default: limit reached"},
		{name: "the deadline holds without room", machine: lives("1h"), setup: web, room: "nothing to be had", from: 50 * time.Minute, after: time.Hour, ends: true, closed: true, asked: "web",
			event: "a Warning ReplacementMissing: Draining without replacement capacity for all pods: nothing to be had"},
		{name: "without pods that would come again it waits for its time", machine: lives("1h"), after: 59 * time.Minute, setup: func(w *world) {
			w.bind("bare", "node-a")
			w.bind("daemon", "node-a", owned("apps/v1", "DaemonSet"))
			w.bind("guarded", "node-a", controlled, annotated(karpv1.DoNotDisruptAnnotationKey, "true"))
		}},
		{name: "and goes then, whatever asks not to be disturbed", machine: lives("1h"), from: 50 * time.Minute, after: time.Hour, ends: true, setup: func(w *world) {
			w.bind("guarded", "node-a", controlled, annotated(karpv1.DoNotDisruptAnnotationKey, "true"))
		}},
		{name: "a budget of none doesn't hold it", machine: lives("1h"), setup: web, from: 50 * time.Minute, after: time.Hour, ends: true, closed: true, asked: "web", pool: func(p *karpv1.NodePool) {
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
		}},
		{name: "a paused pool does", machine: lives("1h"), setup: web, after: 2 * time.Hour, pool: func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"}
		}},
		{name: "while something is on its way there it isn't closed", machine: lives("1h"), after: 50 * time.Minute, setup: func(w *world) {
			web(w)
			w.promised["node-a"] = true
		}},
		{name: "but its time comes", machine: lives("1h"), from: 50 * time.Minute, after: time.Hour, ends: true, setup: func(w *world) {
			web(w)
			w.promised["node-a"] = true
		}},
		{name: "one whose time was over before is replaced first", machine: lives("1h"), setup: web, after: 5 * time.Hour, closed: true, asked: "web",
			event: "a Normal ReplacementPlanned: The drain of the node begins at 2026-03-01T17:10:00Z at the latest, because its expireAfter is over: capacity for its pods (1) is being prepared"},
		{name: "for which there is as much time as for others", machine: lives("1h"), setup: web, from: 5 * time.Hour, after: 5*time.Hour + 10*time.Minute, ends: true, closed: true, asked: "web"},
		{name: "a short life: its last quarter", machine: lives("4m"), setup: web, from: time.Hour, after: time.Hour + time.Minute, ends: true, closed: true, asked: "web"},
		{name: "but no longer than until its capacity is taken back", machine: lives("1h"), setup: web, from: 2 * time.Hour, taken: 2*time.Hour + 5*time.Minute, after: 2*time.Hour + 5*time.Minute, ends: true, closed: true, asked: "web",
			event: "a Normal DisruptionTerminating: Terminating the node: its capacity block ends"},
		{name: "a node of a static pool isn't replaced, and ends at once", machine: lives("1h"), setup: web, after: 5 * time.Hour, ends: true, pool: func(p *karpv1.NodePool) { p.Spec.Replicas = new(int64(1)) }},
		{name: "Never", machine: lives("Never"), setup: web, after: 1000 * time.Hour},
		{name: "no time at all is never", machine: lives("0s"), setup: web, after: time.Hour},
		{name: "a node that is coming up is no use yet", after: 2 * time.Hour, setup: web, machine: func(c *karpv1.NodeClaim, n *corev1.Node) {
			lives("1h")(c, n)
			c.Status.Conditions = nil
		}},
		{name: "a node that is gone can't be replaced, and ends", after: time.Hour, ends: true, machine: func(c *karpv1.NodeClaim, n *corev1.Node) {
			lives("1h")(c, n)
			c.Status.NodeName = "another"
		}},
		{name: "capacity that is taken back is left before that", machine: lives("Never"), setup: web, taken: time.Hour, after: 50 * time.Minute, closed: true, asked: "web"},
		{name: "and left then, for its own reason", machine: lives("720h"), setup: web, taken: time.Hour, after: time.Hour, ends: true,
			event: "a Normal DisruptionTerminating: Terminating the node: its capacity block ends"},
		{name: "what comes first counts", machine: lives("1h"), setup: web, taken: 2 * time.Hour, from: 50 * time.Minute, after: time.Hour, ends: true, closed: true, asked: "web",
			event: "a Normal DisruptionTerminating: Terminating the node: its expireAfter is over"},
		{name: "nor does an interruption that comes later delay it", machine: lives("1h"), from: 50 * time.Minute, after: time.Hour, ends: true, closed: true, asked: "web", setup: func(w *world) {
			web(w)
			w.interrupted("a", epoch.Add(time.Hour+5*time.Minute), capacity.MaintenanceScheduled)
		}, event: "a Normal DisruptionTerminating: Terminating the node: its expireAfter is over"},
		{name: "an interruption that comes first counts", machine: lives("2h"), after: time.Hour, ends: true, setup: func(w *world) {
			web(w)
			w.interrupted("a", epoch.Add(time.Hour), capacity.MaintenanceScheduled)
		}, event: "a Normal DisruptionTerminating: Terminating the node: EC2 has scheduled a change of its machine"},
		{name: "one by force isn't held by a pause for what comes first", machine: lives("1h"), after: time.Hour + time.Minute, ends: true, pool: func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"}
		}, setup: func(w *world) {
			web(w)
			w.interrupted("a", epoch.Add(time.Hour+time.Minute), capacity.SpotInterrupted)
		}},
		{name: "a dry run doesn't delay an interruption", machine: lives("30m"), after: time.Hour, ends: true, setup: func(w *world) {
			dry(w)
			w.interrupted("a", epoch.Add(time.Hour), capacity.MaintenanceScheduled)
		}},
		{name: "a dry run doesn't keep capacity that is taken back", machine: lives("Never"), setup: dry, taken: time.Hour, after: time.Hour, ends: true,
			event: "a Normal DisruptionTerminating: Terminating the node: its capacity block ends"},
		{name: "nor when it would have expired before", machine: lives("30m"), setup: dry, taken: time.Hour, after: time.Hour, ends: true,
			event: "a Normal DisruptionTerminating: Terminating the node: its capacity block ends"},
		{name: "a dry run keeps what expires", machine: lives("1h"), setup: dry, after: 2 * time.Hour,
			event: "a Normal DisruptionDryRun: Would terminate the node: its expireAfter is over"},
		{name: "a static pool makes its next node by itself", machine: lives("1h"), setup: web, after: 59 * time.Minute, pool: func(p *karpv1.NodePool) { p.Spec.Replicas = new(int64(1)) }},
		{name: "a claim without pool expires, too", from: 50 * time.Minute, after: time.Hour, ends: true, machine: func(c *karpv1.NodeClaim, n *corev1.Node) {
			lives("1h")(c, n)
			delete(c.Labels, karpv1.NodePoolLabelKey)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pool(staying)
			if tc.pool != nil {
				tc.pool(p)
			}
			w := newWorld(t, p)
			w.machine("a", tc.machine)
			if tc.setup != nil {
				tc.setup(w)
			}
			w.room = tc.room
			w.taken = tc.taken
			if tc.from > 0 {
				w.clock.Step(tc.from)
				w.mustPass()
				w.passUntil(epoch.Add(tc.after))
			}
			w.clock.SetTime(epoch.Add(tc.after))
			w.mustPass()
			if ended := !w.alive("a"); ended != tc.ends {
				t.Errorf("ended = %v, want %v; events %q", ended, tc.ends, w.events)
			}
			if w.fenced["node-a"] != tc.closed || disrupted(w.node("node-a")) != tc.closed {
				t.Errorf("fenced = %v, tainted = %v, want %v", w.fenced["node-a"], disrupted(w.node("node-a")), tc.closed)
			}
			if got := strings.Join(w.asked["node-a"], " "); got != tc.asked {
				t.Errorf("room asked for %q, want %q", got, tc.asked)
			}
			if tc.event != "" && !w.event(tc.event) {
				t.Errorf("no event %q in %q", tc.event, w.events)
			}
		})
	}
}

// An expiring node from its cordon to its end: the reservations for its pods' successors are kept as long as it drains, and its taint isn't
// removed as a left-over.
func TestReplacementIsKeptWhileDraining(t *testing.T) {
	w := newWorld(t, pool(staying))
	w.machine("a", lives("1h"))
	w.bind("web", "node-a", controlled)
	w.clock.Step(50 * time.Minute)
	for range 3 {
		if got := w.mustPass(); got != replaceEvery {
			t.Errorf("next look after %s", got)
		}
		w.clock.Step(replaceEvery)
	}
	if !disrupted(w.node("node-a")) || !w.alive("a") {
		t.Fatal("not waiting for the room")
	}
	w.room = "ready"
	w.mustPass()
	if w.alive("a") || len(w.kept)+len(w.forgotten) > 0 {
		t.Fatalf("alive %v, kept %v, forgotten %v", w.alive("a"), w.kept, w.forgotten)
	}
	w.mustPass()
	if diff := cmp.Diff([]string{"node-a"}, w.kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	claim := w.claim("a")
	claim.Finalizers = nil
	if err := w.claims.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	w.mustPass()
	if diff := cmp.Diff([]string{"node-a"}, w.forgotten); diff != "" || len(w.c.passes.replacements.begun) > 0 {
		t.Errorf("forgotten (-want +got):\n%s", diff)
	}
}

// When a user pauses a pool, the nodes that were being replaced are uncordoned.
func TestPauseOpensWhatWasClosed(t *testing.T) {
	p := pool(staying)
	w := newWorld(t, p)
	w.machine("a", lives("1h"))
	w.bind("web", "node-a", controlled)
	w.clock.Step(50 * time.Minute)
	w.mustPass()
	p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"}
	if err := w.claims.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.mustPass()
	if w.fenced["node-a"] || disrupted(w.node("node-a")) || len(w.forgotten) != 1 || !w.alive("a") {
		t.Errorf("fenced %v, forgotten %v, alive %v", w.fenced["node-a"], w.forgotten, w.alive("a"))
	}
}

// If the pods of an expiring node end by themselves, it needn't stay longer.
func TestExpiringNodeEmptiesByItself(t *testing.T) {
	w := newWorld(t, pool(staying))
	w.machine("a", lives("1h"))
	w.bind("web", "node-a", controlled)
	w.clock.Step(50 * time.Minute)
	w.mustPass()
	w.unbind("web")
	w.mustPass()
	if w.alive("a") {
		t.Error("a closed node without pods stays")
	}
}

// Pods aren't moved to nodes that will be terminated soon themselves: those that are replaced at the same time, those whose replacement
// begins within the hour, and empty ones that are due.
func TestCapacityIsReservedOnNodesThatRemain(t *testing.T) {
	w := newWorld(t, pool(staying))
	for name, after := range map[string]string{"a": "10h", "same": "10h", "soon": "11h", "later": "11h1m", "never": "Never"} {
		w.machine(name, lives(after))
	}
	for name, after := range map[string]string{"short": "13h", "young": "1h"} {
		w.machine(name, func(c *karpv1.NodeClaim, n *corev1.Node) {
			lives(after)(c, n)
			c.CreationTimestamp = metav1.NewTime(epoch.Add(10*time.Hour - 50*time.Minute)) // young lives for ten minutes after that
		})
	}
	w.bind("web", "node-a", controlled)
	w.clock.Step(10*time.Hour - leadMost)
	w.mustPass()
	if diff := cmp.Diff([]string{"node-a", "node-same", "node-soon", "node-young"}, w.avoid["node-a"]); diff != "" {
		t.Errorf("to be avoided (-want +got):\n%s", diff)
	}
}

// What stops all disruption for a while also stops the preparation of replacements, and what was reserved is lost. Afterwards nodes whose time is over
// aren't drained at once, all together: each is replaced first, as if its time had come then.
func TestExpiryAfterAPause(t *testing.T) {
	for name, pause := range map[string]func(w *world) (goOn func()){
		"nothing may be disrupted": func(w *world) func() {
			w.c.passes.hold = func() error { return errLost }
			return func() { w.c.passes.hold = func() error { return nil } }
		},
		"the pool is paused": func(w *world) func() {
			w.changePool(func(p *karpv1.NodePool) { p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"} })
			return func() { w.changePool(func(p *karpv1.NodePool) { p.Annotations = nil }) }
		},
		"another leader": func(w *world) func() {
			return func() { w.c.passes = newPasses(&w.cfg, w.c.pods.GetIndexer(), w.c.surges) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, pool(staying))
			for _, name := range []string{"a", "b"} {
				w.machine(name, lives("1h"))
				w.bind("web-"+name, "node-"+name, controlled)
			}
			w.clock.Step(50 * time.Minute)
			w.mustPass()
			goOn := pause(w)
			w.mustPass()
			w.clock.Step(2 * time.Hour)
			w.mustPass()
			goOn()
			start := w.clock.Now()
			w.mustPass()
			w.passUntil(start.Add(leadMost))
			if diff := cmp.Diff([]string{"web-b"}, w.asked["node-b"]); diff != "" || len(w.deleted) > 0 || !w.fenced["node-a"] || !disrupted(w.node("node-a")) {
				t.Errorf("capacity is prepared for (-want +got):\n%s ended %v, fenced %v", diff, w.deleted, w.fenced)
			}
			w.clock.SetTime(start.Add(leadMost))
			w.mustPass()
			if diff := cmp.Diff([]string{"a", "b"}, w.deleted); diff != "" {
				t.Errorf("ended (-want +got):\n%s", diff)
			}
		})
	}
}

// broken is a reason that can't be decided about while it has an error.
type broken struct{ err error }

func (*broken) budget() karpv1.DisruptionReason { return "" }

func (b *broken) decide(*candidate, time.Time) (*decision, error) { return nil, b.err }

// The time for a replacement doesn't begin anew after an error, and only so often where passes are far apart: a node whose pods fit nowhere has to end.
func TestExpiryIsNotPutOffForEver(t *testing.T) {
	for name, tc := range map[string]struct {
		every, most time.Duration // between passes, until the end
		err         error         // in every fifth pass
	}{
		"errors":     {every: 30 * time.Second, most: leadMost + 30*time.Second, err: errLost},
		"slow loops": {every: 2 * heldFor, most: 2*2*heldFor + leadMost},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, pool(staying))
			w.machine("a", lives("1h"))
			w.bind("web", "node-a", controlled)
			w.room = "nothing to be had"
			w.clock.Step(2 * time.Hour)
			reason := &broken{}
			w.c.passes.replacements.reasons = append(w.c.passes.replacements.reasons, reason)
			start := w.clock.Now()
			for i := 1; w.alive("a"); i++ {
				if w.clock.Since(start) > tc.most {
					t.Fatalf("the node is left after %s", w.clock.Since(start))
				}
				if reason.err = nil; i%5 == 0 {
					reason.err = tc.err
				}
				if _, err := w.pass(); (err != nil) != (reason.err != nil) {
					t.Fatal(err)
				}
				w.clock.Step(tc.every)
			}
			if w.clock.Since(start) < leadMost {
				t.Errorf("ended after %s: there was no time for a replacement", w.clock.Since(start))
			}
		})
	}
}

// A node whose time is over while the brake holds it has its replacement kept, or prepared further.
func TestExpiryWhileTheBrakeHolds(t *testing.T) {
	w := newWorld(t, pool(staying))
	w.c.passes.terminations.brake = brake.New(1)
	w.machine("a", lives("1h"))
	w.bind("web", "node-a", controlled)
	w.room = "nothing to be had"
	w.clock.Step(50 * time.Minute)
	w.mustPass()
	w.passUntil(epoch.Add(time.Hour))
	w.clock.SetTime(epoch.Add(time.Hour))
	w.c.passes.terminations.brake.Take(w.clock.Now())
	clear(w.asked)
	w.mustPass()
	if diff := cmp.Diff([]string{"web"}, w.asked["node-a"]); diff != "" || len(w.deleted) > 0 {
		t.Fatalf("capacity is prepared for (-want +got):\n%s ended %v", diff, w.deleted)
	}
	if w.event("a Warning ReplacementMissing: Draining without") {
		t.Error("it is said that the node is drained")
	}
	w.clock.Step(time.Minute)
	w.mustPass()
	if diff := cmp.Diff([]string{"a"}, w.deleted); diff != "" || !w.event("a Warning ReplacementMissing: Draining without") {
		t.Errorf("ended (-want +got):\n%s events %q", diff, w.events)
	}
}
