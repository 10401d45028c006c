package burst

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// arrivals answers for a test.
type arrivals struct {
	settled func(quiet, window time.Duration) bool
	likely  func() bool
}

func (a *arrivals) Settled(quiet, window time.Duration) bool { return a.settled(quiet, window) }
func (a *arrivals) More() bool                               { return a.likely() }

// rest is what a plan is for, and where it is placed, by node.
type rest struct {
	*testing.T
	clock    *testingclock.FakeClock
	arrivals arrivals
	window   *Window
	classes  map[string]*capacity.Class
	waiting  []ledger.Waiting
	plan     *capacity.Plan
}

func newRest(t *testing.T) *rest {
	r := &rest{T: t, clock: testingclock.NewFakeClock(time.Now()), arrivals: arrivals{likely: func() bool { return true }}, classes: map[string]*capacity.Class{}, plan: &capacity.Plan{LowerBound: 1}}
	r.window = NewWindow(&r.arrivals, r.clock, 300*time.Millisecond, 3*time.Second)
	for _, name := range []string{"web", "db"} {
		r.classes[name] = &capacity.Class{Key: capacity.ClassKey(name), Pod: &corev1.Pod{}}
	}
	return r
}

// node plans a new node; a node that isn't planned exists.
func (r *rest) node(id string, filled float64) {
	r.plan.Nodes = append(r.plan.Nodes, &capacity.PlannedNode{ID: id, Filled: filled, Price: 1})
	r.plan.CostPerHour++
}

// pod places a pod that has waited so long.
func (r *rest) pod(class, name, node string, waited time.Duration) *capacity.Placement {
	ref := capacity.PodRef{Name: name, UID: types.UID(name)}
	r.waiting = append(r.waiting, ledger.Waiting{Ref: ref, Class: r.classes[class], Since: r.clock.Now().Add(-waited)})
	r.plan.Placements = append(r.plan.Placements, capacity.Placement{Class: r.classes[class], Pod: ref, Node: node})
	return &r.plan.Placements[len(r.plan.Placements)-1]
}

// anticipated places a pod that doesn't exist yet.
func (r *rest) anticipated(class, node string) {
	r.plan.Placements = append(r.plan.Placements, capacity.Placement{Class: r.classes[class], Owner: "owner", Node: node})
}

// want holds nodes of the plan, and checks what is left and until when the others wait; zero: for no pod.
func (r *rest) want(held int, until time.Duration, left ...string) {
	r.Helper()
	if got := r.window.Hold(r.plan, r.waiting); got != held {
		r.Errorf("%d nodes are held, want %d", got, held)
	}
	var got []string
	for _, pl := range r.plan.Placements {
		name := pl.Pod.Name
		if name == "" {
			name = "(" + string(pl.Owner) + ")"
		}
		got = append(got, fmt.Sprintf("%s %s %s", pl.Class.Key, name, pl.Node))
	}
	if !slices.Equal(got, left) {
		r.Errorf("the plan places\n%q, want\n%q", got, left)
	}
	if want := float64(len(r.plan.Nodes)); r.plan.CostPerHour != want {
		r.Errorf("the plan costs %v, want %v", r.plan.CostPerHour, want)
	}
	var waits time.Duration
	if !r.window.until.IsZero() {
		waits = r.window.until.Sub(r.clock.Now())
	}
	if waits != until {
		r.Errorf("the tail is launched after %v, want %v", waits, until)
	}
}

// While more pods come, nodes that aren't full wait, and the pods that have waited longest are not among theirs.
func TestHold(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(r *rest)
	}{
		{"no more pods come", func(r *rest) {
			r.arrivals.likely = func() bool { return false }
			r.node("half", 0.5)
			r.pod("web", "a", "half", 0)
			r.want(0, 0, "web a half")
			if r.plan.LowerBound == 0 {
				r.Error("the plan has lost its bound")
			}
		}},
		{"one node is full", func(r *rest) {
			r.node("half", 0.5)
			r.node("full", 0.99)
			r.pod("web", "young", "full", 0)
			r.pod("web", "old", "half", time.Second)
			r.pod("web", "here", "existing", 0)
			r.want(1, 3*time.Second, "web old full", "web here existing")
			if r.plan.LowerBound != 0 {
				r.Error("the plan has kept a bound that is for more pods")
			}
		}},
		{"pods of different classes don't change places", func(r *rest) {
			r.node("half", 0.5)
			r.node("full", 0.99)
			r.pod("web", "young", "full", 0)
			r.pod("db", "old", "half", time.Second)
			r.want(1, 2*time.Second, "web young full")
		}},
		{"a pod has waited long", func(r *rest) {
			r.node("half", 0.5)
			r.node("third", 0.3)
			r.pod("web", "young", "half", 0)
			r.pod("web", "old", "third", 2*time.Second+1)
			r.want(1, 3*time.Second, "web old half") // the fuller one
		}},
		{"pods that don't exist yet wait first", func(r *rest) {
			r.node("full", 1)
			r.node("half", 0.5)
			r.anticipated("web", "full")
			r.pod("web", "a", "half", 2*time.Second)
			r.want(1, 0, "web a full")
		}},
		{"how full a node is isn't known", func(r *rest) {
			r.node("unknown", 0)
			r.pod("web", "a", "unknown", 0)
			r.want(0, 0, "web a unknown")
		}},
		{"placements that depend on others", func(r *rest) {
			r.node("half", 0.5)
			r.node("other", 0.5)
			r.node("gang", 0.5)
			r.pod("web", "a", "half", 0).Group = 1
			r.pod("db", "b", "half", 0)
			r.pod("db", "c", "other", time.Second)
			r.pod("web", "d", "gang", 0).Gang = &capacity.Gang{}
			r.want(1, 3*time.Second, "web a half", "db c half", "web d gang")
		}},
		{"pods that outrank others", func(r *rest) {
			r.classes["db"].Priority = 10
			r.node("half", 0.5)
			r.node("high", 0.5)
			r.node("full", 1)
			r.pod("web", "a", "half", 0)
			r.pod("db", "b", "high", 0)
			r.pod("web", "c", "high", 0)
			r.pod("web", "d", "full", 0)
			r.want(1, 3*time.Second, "db b high", "web a high", "web c full")
		}},
		{"pods with volumes of their own keep their places", func(r *rest) {
			r.classes["db"].Pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
			r.node("full", 1)
			r.node("half", 0.5)
			r.pod("db", "young", "full", 0)
			r.pod("db", "old", "half", time.Second)
			r.want(1, 2*time.Second, "db young full")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.do(newRest(t)) })
	}
}

// Whatever the plan: Hold removes only nodes that aren't full, without groups and without pods that have waited long. All other nodes keep as many pods
// of each class, no pod is placed twice, and those that lose their place wait until the window's longest at most.
func TestHoldKeepsWhatMustNotWait(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 14))
		r := newRest(t)
		nodes := 1 + random.IntN(6)
		for i := range nodes {
			r.node(fmt.Sprint("node-", i), []float64{0, 0.3, 0.6, 0.94, 0.95, 1}[random.IntN(6)])
		}
		for i := range random.IntN(30) {
			class, node := []string{"web", "db"}[random.IntN(2)], fmt.Sprint("node-", random.IntN(nodes+1)) // the last one exists already
			switch random.IntN(8) {
			case 0:
				r.anticipated(class, node)
			case 1:
				r.pod(class, fmt.Sprint("pod-", i), node, 0).Group = 1
			default:
				r.pod(class, fmt.Sprint("pod-", i), node, time.Duration(random.IntN(3000))*time.Millisecond)
			}
		}
		waited := map[types.UID]time.Duration{}
		for _, w := range r.waiting {
			waited[w.Ref.UID] = r.clock.Since(w.Since)
		}
		before := r.plan.Placements
		r.plan.Placements = slices.Clone(before)
		filled := map[string]float64{}
		for _, n := range r.plan.Nodes {
			filled[n.ID] = n.Filled
		}
		held := r.window.Hold(r.plan, r.waiting)
		if len(r.plan.Nodes)+held != nodes {
			t.Fatalf("seed %d: %d nodes are left and %d are held, of %d", seed, len(r.plan.Nodes), held, nodes)
		}
		for _, n := range r.plan.Nodes {
			delete(filled, n.ID)
		}
		count := func(of []capacity.Placement) map[string]int {
			out := map[string]int{}
			for _, pl := range of {
				if _, gone := filled[pl.Node]; !gone {
					out[pl.Node+" "+string(pl.Class.Key)]++
				}
			}
			return out
		}
		if had, has := count(before), count(r.plan.Placements); !maps.Equal(had, has) {
			t.Fatalf("seed %d: pods by node and class were %v, and are %v", seed, had, has)
		}
		placed := map[types.UID]bool{}
		for _, pl := range r.plan.Placements {
			if pl.Pod.UID != "" && placed[pl.Pod.UID] {
				t.Fatalf("seed %d: pod %s is placed twice", seed, pl.Pod.Name)
			}
			placed[pl.Pod.UID] = true
		}
		for _, pl := range before {
			if part, gone := filled[pl.Node]; gone && (part <= 0 || part >= full || pl.Group != 0) {
				t.Fatalf("seed %d: node %s, filled by %v, is held with group %d", seed, pl.Node, part, pl.Group)
			}
		}
		for uid, so := range waited {
			if placed[uid] {
				continue
			}
			if left := r.window.until.Sub(r.clock.Now()); so > 2*time.Second || left <= 0 || so+left > 3*time.Second {
				t.Fatalf("seed %d: pod %s has waited for %v and loses its place for another %v", seed, uid, so, left)
			}
		}
	}
}
