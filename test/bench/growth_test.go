package bench

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/plugins/binder"
)

// growthPods is how many pods the ledger has in the worlds of BenchmarkGrowth.
var growthPods = flag.Int("growth.pods", 100_000, "pods in the ledger of BenchmarkGrowth; half as many are of the one class, a fiftieth keep apart")

// podsPerNode is how many of them are planned for each node.
const podsPerNode = 100

// crowded is a ledger full of pods.
type crowded struct {
	*rig
	gate   fwk.PreEnqueuePlugin
	gated  []*corev1.Pod // planned for nodes that are being launched
	opened []*corev1.Pod // planned for nodes that exist: they may be bound
	kind   func(*corev1.Pod)
	app    string   // of the largest class
	booted []string // the nodes that exist
	claims []string // those that are being launched
}

// BenchmarkGrowth measures what a scheduling cycle asks of the ledger, and for how long the launcher's steps hold its lock, in clusters that
// the other benchmarks don't have: every pod is a class of its own (Spark executors, workflows); half of the pods are of one class;
// pods that keep apart from each other, of which as many were refused as nodes boot. The steps that change much at once are among them: a node that
// fails, one whose pods have to wait again, a reservation that becomes free, all pods refused and queued. p50-us, p99-us and p99.9-us are of one call.
func BenchmarkGrowth(b *testing.B) {
	n := *growthPods
	for _, world := range []struct {
		name string
		fill func(*crowded)
	}{
		{"classes", func(c *crowded) {
			c.app = "job-1"
			c.fill(n, func(i int) string { return fmt.Sprintf("job-%d", i) })
		}},
		{"class", func(c *crowded) {
			c.app = "array"
			c.fill(n/2, func(int) string { return "array" })
			c.fill(n/2, func(i int) string { return fmt.Sprintf("other-%d", i%20) })
		}},
		{"apart", func(c *crowded) { c.keepApart(n / 50) }},
	} {
		b.Run(world.name, func(b *testing.B) {
			c := &crowded{rig: newRig(b), kind: kinds[0].shape}
			gate, err := binder.NewGate(c.reservations, func(fwk.Handle) binder.Classifier { return c.classes }, unheard{})(c.ctx, nil, c.profile(withPlugins))
			if err != nil {
				b.Fatal(err)
			}
			c.gate = gate.(fwk.PreEnqueuePlugin)
			world.fill(c)
			c.measure(b)
		})
	}
}

// unheard is told which pods wait.
type unheard struct{}

func (unheard) Add(*corev1.Pod) {}

// fill adds pods, nine of ten planned for nodes that are being launched and one for nodes that exist.
func (c *crowded) fill(n int, app func(i int) string) {
	c.Helper()
	var gated, opened []*corev1.Pod
	for i := range n {
		p := c.pod(app(i), "100m", c.kind)
		if i%10 == 0 {
			opened = append(opened, p)
		} else {
			gated = append(gated, p)
		}
	}
	name := fmt.Sprintf("fill-%d", c.seq)
	c.plan(name+"-booting", gated, max(1, len(gated)/podsPerNode))
	c.planExisting(name+"-there", opened, max(1, len(opened)/podsPerNode), ready)
	for i := range max(1, len(gated)/podsPerNode) {
		c.claims = append(c.claims, fmt.Sprintf("%s-booting-%d", name, i))
	}
	c.gated, c.opened = append(c.gated, gated...), append(c.opened, opened...)
}

var ready = ledger.NodeStatus{Managed: true, Registered: true, Ready: true}

// planExisting reserves capacity for the pods on existing nodes.
func (c *crowded) planExisting(prefix string, pods []*corev1.Pod, nodes int, status ledger.NodeStatus) {
	c.Helper()
	for _, p := range pods {
		c.reservations.Submit(refOf(p), c.class(p))
	}
	placements := c.placements(prefix, pods, nodes)
	c.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		for i := range nodes {
			node := fmt.Sprintf("%s-%d", prefix, i)
			l.Existing(node, status)
			c.booted = append(c.booted, node)
		}
		l.Commit(prefix, placements, now)
	})
}

// keepApart adds nodes that boot, each with a reservation for a pod that keeps apart from its like, and as many such pods that were refused.
func (c *crowded) keepApart(n int) {
	c.Helper()
	c.kind, c.app = kinds[3].shape, "apart"
	var planned, refused []*corev1.Pod
	for range n {
		planned, refused = append(planned, c.pod("apart", "100m", c.kind)), append(refused, c.pod("apart", "100m", c.kind))
	}
	c.planExisting("booting", planned, n, ledger.NodeStatus{Managed: true})
	var uids []types.UID
	for _, p := range refused {
		c.reservations.Submit(refOf(p), c.class(p))
		uids = append(uids, p.UID)
	}
	c.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Refuse(uids, "the pool's limit is reached", false, now) })
	c.gated, c.opened = planned, planned
}

// measure runs a benchmark for each of the calls.
func (c *crowded) measure(b *testing.B) {
	ctx := context.Background()
	fresh := func(i int) *corev1.Pod { return c.pod(fmt.Sprintf("fresh-%d", i%20), "100m", c.kind) }
	var used []*corev1.Pod
	forget := func() {
		c.gone(used)
		used = used[:0]
	}
	c.each(b, "PostFilter", func(i int) func() {
		if len(used) == batch {
			forget()
		}
		p := fresh(i)
		used = append(used, p)
		return func() { c.provision.PostFilter(ctx, nil, p, framework.NewDefaultNodeToStatus()) }
	})
	forget()
	c.each(b, "PostFilter-largest", func(int) func() { // of the largest class
		if len(used) == batch {
			forget()
		}
		p := c.pod(c.app, "100m", c.kind)
		used = append(used, p)
		return func() { c.provision.PostFilter(ctx, nil, p, framework.NewDefaultNodeToStatus()) }
	})
	forget()
	c.each(b, "PreEnqueue", func(i int) func() {
		p := c.gated[i*7919%len(c.gated)]
		return func() { c.gate.PreEnqueue(ctx, p) }
	})
	c.each(b, "PreFilter", func(i int) func() {
		p := fresh(i)
		c.class(p) // Classes have computed it in PreEnqueue's time
		return func() { c.binder.PreFilter(ctx, framework.NewCycleState(), p, nil) }
	})
	c.each(b, "PreFilter-apart", func(i int) func() { // keeps apart from its like, which is one of those in the ledger
		p := c.pod(fmt.Sprintf("job-%d", i), "100m", kinds[3].shape)
		c.class(p)
		return func() { c.binder.PreFilter(ctx, framework.NewCycleState(), p, nil) }
	})
	c.each(b, "PreFilter-planned", func(i int) func() {
		p := c.opened[i*7919%len(c.opened)]
		c.class(p)
		return func() { c.binder.PreFilter(ctx, framework.NewCycleState(), p, nil) }
	})
	c.each(b, "bind", func(i int) func() {
		p := c.opened[i*7919%len(c.opened)]
		return func() {
			if node, _ := c.reservations.Pin(p.UID); node != "" && c.reservations.Assume(p.UID, node, false) == nil {
				c.reservations.Unassume(p.UID, node)
			}
		}
	})
	c.each(b, "deleted", func(i int) func() {
		if len(used) == 0 {
			for j := range batch {
				p := fresh(j)
				c.reservations.Submit(refOf(p), c.class(p))
				used = append(used, p)
			}
		}
		p := used[len(used)-1]
		used = used[:len(used)-1]
		return func() { c.gone([]*corev1.Pod{p}) }
	})
	forget()
	for name, part := range map[string]func(*ledger.Ledger, time.Time){
		"TickPods": func(l *ledger.Ledger, now time.Time) { l.TickPods(now) }, "TickClasses": func(l *ledger.Ledger, now time.Time) { l.TickClasses(now) }, "TickNodes": func(l *ledger.Ledger, now time.Time) { l.TickNodes(now) },
	} {
		c.each(b, name, func(int) func() { return func() { c.reservations.Step(part) } })
	}
	c.each(b, "RoomAppeared", func(int) func() {
		return func() { c.reservations.Read(func(l ledger.Reader) { l.Waits(true) }) }
	})
	c.each(b, "TickPods-freed", func(i int) func() {
		p := fresh(i)
		c.plan(fmt.Sprintf("freed-%d", i), []*corev1.Pod{p}, 1)
		c.gone([]*corev1.Pod{p})
		return func() { c.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.TickPods(now) }) }
	})
	c.each(b, "pods-wait-again", func(i int) func() { // the node isn't Ready any more
		return c.changes(i, ledger.NodeStatus{Managed: true, Registered: true})
	})
	c.each(b, "pods-wait-no-more", func(i int) func() {
		node := c.booted[i%len(c.booted)]
		c.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			l.Cached(node, ledger.NodeStatus{Managed: true, Registered: true}, now)
		})
		return c.changes(i, ready)
	})
	c.each(b, "commit-20-pods-ahead", func(i int) func() { // that their controller has yet to create
		prefix, p := fmt.Sprintf("ahead-%d", i), fresh(0)
		placements := make([]capacity.Placement, 20)
		for j := range placements {
			placements[j] = capacity.Placement{Class: c.class(p), Owner: types.UID(prefix), Node: prefix}
		}
		return func() {
			c.reservations.Step(func(l *ledger.Ledger, now time.Time) {
				l.AddNode(prefix, &capacity.Node{}, nil, true, now)
				l.Commit(prefix, placements, now)
				l.AllSlots([]string{prefix})
			})
		}
	})
	c.each(b, "commit-20-pods", func(i int) func() {
		var pods []*corev1.Pod
		for j := range 20 {
			pods = append(pods, fresh(j))
			c.reservations.Submit(refOf(pods[j]), c.class(pods[j]))
		}
		prefix := fmt.Sprintf("late-%d", i)
		placements := c.placements(prefix, pods, 1)
		return func() {
			c.reservations.Step(func(l *ledger.Ledger, now time.Time) {
				l.AddNode(prefix+"-0", &capacity.Node{}, nil, true, now)
				l.Commit(prefix, placements, now)
			})
		}
	})
	c.each(b, "claim-fails", func(i int) func() {
		if len(c.claims) == 0 {
			prefix := fmt.Sprintf("fails-%d", i)
			c.plan(prefix, []*corev1.Pod{c.pod(c.app, "100m", c.kind)}, 1)
			c.claims = append(c.claims, prefix+"-0")
		}
		claim := c.claims[0]
		c.claims = c.claims[1:]
		return func() {
			c.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.ClaimGone(claim, "it was terminated", false, now) })
		}
	})
	c.each(b, "node-gone", func(i int) func() { // and the next tick, which tries refused pods that its pods kept off
		node := c.booted[i%len(c.booted)]
		c.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Existing(node, ready) })
		return func() {
			c.reservations.Step(func(l *ledger.Ledger, now time.Time) {
				l.Uncached(node, "", now)
				l.TickPods(now)
			})
		}
	})
	var queued []types.UID // all pods that have lost their reservations, and as many as there are in the world
	for i := range *growthPods {
		p := c.pod(fmt.Sprintf("queued-%d", i%20_000), "100m", c.kind)
		c.reservations.Submit(refOf(p), c.class(p))
		queued = append(queued, p.UID)
	}
	var queue ledger.Queue
	c.each(b, "Queue", func(int) func() {
		return func() { c.reservations.Read(func(l ledger.Reader) { queue = l.Queue() }) }
	})
	c.each(b, "QueuedPods", func(i int) func() { // as many as the launcher reads at a time
		some := queue[i*2000%(len(queue)-2000):][:2000]
		return func() { c.reservations.Read(func(l ledger.Reader) { l.QueuedPods(some) }) }
	})
	c.each(b, "Refuse-1000-pods", func(i int) func() {
		uids := queued[i*1000%len(queued):][:1000]
		return func() {
			c.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Refuse(uids, "the pool's limit is reached", true, now) })
		}
	})
	c.each(b, "Changed", func(int) func() {
		c.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Changed() })
		return func() { c.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.TickPods(now) }) }
	})
}

// changes returns the step that tells the ledger of a node's new status.
func (c *crowded) changes(i int, status ledger.NodeStatus) func() {
	node := c.booted[i%len(c.booted)]
	return func() {
		c.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Cached(node, status, now) })
	}
}

// each runs a benchmark of calls that prepare makes, without the time that it takes to make them.
func (c *crowded) each(b *testing.B, name string, prepare func(i int) func()) {
	b.Run(name, func(b *testing.B) {
		var took samples
		for i := 0; b.Loop(); i++ {
			call := prepare(i)
			start := time.Now()
			call()
			took = append(took, time.Since(start))
		}
		report(b, map[string]float64{
			"p50-us": microseconds(took.quantile(0.5)), "p99-us": microseconds(took.quantile(0.99)), "p99.9-us": microseconds(took.quantile(0.999)),
		})
	})
}
