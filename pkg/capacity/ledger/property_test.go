package ledger

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func testClass(key string, cpu int64, prio int32) *capacity.Class {
	return &capacity.Class{Key: capacity.ClassKey(key), Priority: prio, Requests: capacity.Resources{corev1.ResourceCPU: cpu}}
}

// world makes random events for a ledger and keeps its own record of what the outside knows.
type world struct {
	l       *Ledger
	r       *rand.Rand
	now     time.Time
	classes []*capacity.Class
	pods    map[types.UID]*capacity.Class // unbound pods that exist
	claims  map[string]string             // claim to node name, or ""
	cached  map[string]bool
	assumed map[types.UID]string
	n       int
}

func (w *world) anyPod() types.UID {
	k := w.r.Intn(len(w.pods) + 1)
	for i := range w.n + 1 { // deterministic order
		uid := types.UID(fmt.Sprintf("p%d", i))
		if _, ok := w.pods[uid]; ok {
			if k == 0 {
				return uid
			}
			k--
		}
	}
	return ""
}

func (w *world) anyClaim() string {
	k := w.r.Intn(len(w.claims) + 1)
	for i := range w.n + 1 {
		c := fmt.Sprintf("c%d", i)
		if _, ok := w.claims[c]; ok {
			if k == 0 {
				return c
			}
			k--
		}
	}
	return ""
}

// buffers makes an event of CapacityBuffers.
func (w *world) buffers() string {
	place := capacity.Placement{Class: w.classes[0], Owner: "buffer-1", Node: w.anyClaim()}
	switch w.r.Intn(6) {
	case 0:
		w.l.Want([]Buffer{{UID: "buffer-1", Class: w.classes[w.r.Intn(2)], Chunks: w.r.Intn(5)}, {UID: types.UID(fmt.Sprint("buffer-", 2+w.r.Intn(2))), Class: w.classes[0], Chunks: 2}})
		return "want"
	case 1:
		w.l.SiftChunks([]LostChunks{{Node: place.Node, Buffer: "buffer-1", N: 1 + w.r.Intn(3), Misfit: w.r.Intn(3) == 0}}, nil, w.now)
		return "sift " + place.Node
	case 2:
		w.l.MoveChunks(w.anyClaim(), []capacity.Placement{place})
		return "move a chunk to " + place.Node
	case 3:
		w.l.GiveUpChunks(place.Node)
		return "give up the chunks of " + place.Node
	default:
		if w.r.Intn(3) == 0 {
			place.Node = fmt.Sprintf("c%d", w.n)
			w.claims[place.Node] = ""
			w.l.AddNode(place.Node, nil, nil, false, w.now)
		}
		w.l.PlaceChunks([]capacity.Placement{place, place, {Class: w.classes[0], Owner: "buffer-2", Node: place.Node}})
		return "chunks on " + place.Node
	}
}

func (w *world) step() string {
	w.n++
	w.now = w.now.Add(time.Duration(w.r.Intn(2000)) * time.Millisecond)
	switch op := w.r.Intn(15); op {
	case 0, 1, 2:
		uid := types.UID(fmt.Sprintf("p%d", w.n))
		c := w.classes[w.r.Intn(len(w.classes))]
		w.pods[uid] = c
		if w.r.Intn(3) == 0 {
			expected := w.l.Expects(c)
			if w.l.Adopt(capacity.PodRef{UID: uid}, c, w.now) != expected {
				panic(fmt.Sprintf("room is held for a pod of the owner: %v, and the pod is told the opposite", expected))
			}
			return "adopt " + string(uid)
		}
		w.l.Submit(capacity.PodRef{UID: uid}, c, w.now)
		return "submit " + string(uid)
	case 3, 4:
		queued := InOrder(w.l.QueuedPods(w.l.Queue()))
		if len(queued) == 0 {
			return "nothing queued"
		}
		if w.r.Intn(5) == 0 {
			w.l.Refuse([]types.UID{queued[0].Ref.UID}, "no offer", w.r.Intn(2) == 0, w.now)
			return "refuse " + string(queued[0].Ref.UID)
		}
		claims := []string{fmt.Sprintf("c%d", w.n)}
		w.claims[claims[0]] = ""
		w.l.AddNode(claims[0], nil, nil, false, w.now)
		if old := w.anyClaim(); old != "" && old != claims[0] {
			w.l.AddNode("c-extra", nil, nil, true, w.now) // it exists for a moment and never gets a slot
			w.l.ClaimGone("c-extra", "", true, w.now)
		}
		var pl []capacity.Placement
		for _, q := range queued {
			pl = append(pl, capacity.Placement{Class: q.Class, Pod: q.Ref, Node: claims[0], Group: w.r.Intn(3)})
		}
		if w.r.Intn(3) == 0 {
			pl = append(pl, capacity.Placement{Class: w.classes[0], Owner: "rs1", Node: claims[0]})
		}
		w.l.Commit(fmt.Sprint(w.n), pl, w.now)
		if w.r.Intn(3) == 0 { // reservations for the replacements of a drained node's pods
			moved := []capacity.Placement{{Class: w.classes[1], Owner: "rs2", Node: claims[0], Group: w.r.Intn(2)}, {Class: w.classes[0], Owner: "rs1", Node: claims[0]}}
			w.l.Move(fmt.Sprint(w.n, "m"), moved, []string{"old-1", "old-2"}, w.now.Add(time.Duration(w.r.Intn(90))*time.Second), w.now)
		}
		if w.r.Intn(3) == 0 { // and for pods of nodes that need not be drained
			moved := []capacity.Placement{{Class: w.classes[1], Owner: "rs2", Node: claims[0]}, {Class: w.classes[0], Owner: "rs1", Node: []string{claims[0], "fenced"}[w.r.Intn(2)]}}
			w.l.Fence("fenced")
			w.l.Reserve(fmt.Sprint(w.n, "r"), moved, []string{"used-1", "used-1"}, w.now.Add(time.Duration(w.r.Intn(90))*time.Second), w.now)
		}
		return fmt.Sprintf("commit %d placements", len(pl))
	case 5, 6:
		c := w.anyClaim()
		if c == "" || w.claims[c] != "" || !w.l.Launching(c, w.now) {
			return "no launch"
		}
		w.claims[c] = "n-" + c
		w.l.Named(c, "n-"+c, "")
		return "launch " + c
	case 7, 8:
		c := w.anyClaim()
		if c == "" || w.claims[c] == "" {
			return "no node"
		}
		w.cached[w.claims[c]] = true
		st := NodeStatus{Managed: true, Registered: w.r.Intn(2) == 0, Initialized: w.r.Intn(3) == 0}
		if w.r.Intn(4) == 0 {
			st.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
		}
		w.l.Cached(w.claims[c], st, w.now)
		return "cached " + c
	case 9:
		c := w.anyClaim()
		if c == "" {
			return "no claim"
		}
		if w.r.Intn(2) == 0 && w.claims[c] != "" {
			w.l.Uncached(w.claims[c], "", w.now)
			delete(w.cached, w.claims[c])
			return "uncached " + c
		}
		w.l.ClaimGone(c, "lost", w.r.Intn(2) == 0, w.now)
		delete(w.cached, w.claims[c])
		delete(w.claims, c)
		return "gone " + c
	case 10, 11:
		uid := w.anyPod()
		if uid == "" || w.assumed[uid] != "" {
			return "no pod"
		}
		if closed, _ := w.l.Gate(uid); closed {
			return "gated " + string(uid)
		}
		node, _ := w.l.Pin(uid)
		switch {
		case node == "" || !w.cached[node]:
			w.l.Submit(capacity.PodRef{UID: uid}, w.pods[uid], w.now)
			return "no room, submit " + string(uid)
		case w.r.Intn(5) == 0:
			plugin := []string{"PodTopologySpread", "PodTopologySpread", "InterPodAffinity", ""}[w.r.Intn(4)]
			w.l.SubmitRefused(capacity.PodRef{UID: uid}, w.pods[uid], func(string) (string, string) { return plugin, "" }, w.now)
			return "failed " + string(uid) + ": " + plugin
		}
		if why := w.l.Assume(uid, node, false); why == nil {
			w.assumed[uid] = node
		}
		return "assume " + string(uid)
	case 12:
		uid := w.anyPod()
		node := w.assumed[uid]
		if uid == "" || node == "" {
			return "nothing assumed"
		}
		delete(w.assumed, uid)
		if w.r.Intn(3) == 0 {
			w.l.Unassume(uid, node, w.now)
			return "unassume " + string(uid)
		}
		delete(w.pods, uid)
		w.l.Settled(uid, node)
		return "settled " + string(uid)
	case 13:
		return w.buffers()
	default:
		switch w.r.Intn(6) {
		case 5:
			c := w.anyClaim()
			if c == "" || !w.cached[w.claims[c]] {
				return "nothing to close"
			}
			st := NodeStatus{Managed: true, Registered: true, Initialized: w.r.Intn(2) == 0}
			if bindsInFlight, want := w.l.Close(w.claims[c], st, w.now), slices.Contains(slices.Collect(maps.Values(w.assumed)), w.claims[c]); want && !bindsInFlight {
				panic("pods are being bound to " + w.claims[c])
			}
			return "close " + c
		case 3:
			launched := w.r.Intn(2) == 0
			movable := w.l.Releasable(launched)
			if len(movable) == 0 {
				return "nothing to rehouse"
			}
			var pl []capacity.Placement
			for _, m := range movable[:1+w.r.Intn(len(movable))] {
				pl = append(pl, capacity.Placement{Class: m.Class, Pod: m.Ref, Node: "there"})
			}
			w.cached["there"] = true
			w.l.Existing("there", NodeStatus{})
			w.l.Reassign(pl, launched)
			return fmt.Sprintf("rehouse %d", len(pl))
		case 0, 1:
			w.l.Tick(w.now)
			return "tick"
		case 2:
			w.l.Extend("old-1", w.now.Add(time.Minute))
			w.l.Release("old-2")
			switch w.r.Intn(4) {
			case 3:
				w.l.Surge("used-1", "rs2", "d/web")
			case 0:
				w.l.Begin("used-1")
			case 1:
				w.l.Release("used-1")
			}
			return "release old-2"
		}
		uid := w.anyPod()
		if uid == "" {
			return "no pod"
		}
		c := w.pods[uid]
		delete(w.pods, uid)
		delete(w.assumed, uid)
		if c.ByOthers && w.r.Intn(2) == 0 {
			on := w.claims[w.anyClaim()]
			w.l.Bound(uid, on, w.now)
			return fmt.Sprintf("taken %s on %q", uid, on)
		}
		w.l.Gone(uid)
		return "deleted " + string(uid)
	}
}

func randomWorld(seed int64) *world {
	w := &world{l: New(), r: rand.New(rand.NewSource(seed)), now: time.Unix(0, 0), pods: map[types.UID]*capacity.Class{},
		claims: map[string]string{}, cached: map[string]bool{}, assumed: map[types.UID]string{}}
	w.classes = []*capacity.Class{testClass("a", 100, 0), testClass("b", 200, 10), testClass("j", 50, 0), deployed("two", 200)}
	w.classes[2].Bind, w.classes[2].ByOthers = capacity.BindRegistered, seed%2 == 0
	for i, owner := range []types.UID{"rs1", "rs2"} {
		w.classes[i].Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: owner, Controller: new(true)}}}}
		w.classes[i].Pod.Spec = spreadClass().Pod.Spec
	}
	return w
}

// Whatever happens, in whatever order, the ledger is consistent, and every pod that exists either may be scheduled or waits for something
// that will open its gate.
func TestBooksAgreeUnderRandomEvents(t *testing.T) {
	for seed := range int64(300) {
		w := randomWorld(seed)
		var steps []string
		for range 200 {
			steps = append(steps, w.step())
			err := check(w.l)
			if err == nil {
				err = w.everybodyHasAFuture()
			}
			if err != nil {
				t.Fatalf("seed %d: %v\nlast events: %q\n%s", seed, err, steps[max(0, len(steps)-12):], w.l)
			}
		}
	}
}

func (w *world) everybodyHasAFuture() error {
	for uid := range w.pods {
		p := w.l.pods[uid]
		if p == nil {
			continue
		}
		switch p.state {
		case Planned:
			for _, s := range p.class.slots {
				if _, live := w.claims[s.node.key]; !live && !w.cached[s.node.name] {
					return fmt.Errorf("pod %s may be waiting for node %s, which is gone", uid, s.node.key)
				}
			}
		case Queued:
			if p.slot != nil {
				return fmt.Errorf("pod %s is queued and has a slot", uid)
			}
		}
	}
	return nil
}

// The same events have the same effects in the same order: pods are opened, planned for and reported in the order in which they
// arrived, not in that of a map.
func TestEffectsAreInAFixedOrder(t *testing.T) {
	for seed := range int64(150) {
		a, b := randomWorld(seed), randomWorld(seed)
		for range 200 {
			did, again := a.step(), b.step()
			if did != again {
				t.Fatalf("seed %d: once %s, then %s", seed, did, again)
			}
			if diff := cmp.Diff(a.l.Take(), b.l.Take()); diff != "" {
				t.Fatalf("seed %d, %s: effects (-once +again):\n%s", seed, did, diff)
			}
			if a.l.String() != b.l.String() {
				t.Fatalf("seed %d, %s: once\n%s, again\n%s", seed, did, a.l, b.l)
			}
		}
	}
}
