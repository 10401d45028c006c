package guard

import (
	"container/heap"
	"fmt"
	"slices"
	"testing"
	"time"
)

// buyer is a launcher in virtual time that immediately buys for its pods what the guard allows. A test decides what happens to the
// machines.
type buyer struct {
	t       *testing.T
	g       *Guard
	now     time.Time
	queue   happenings
	places  []place
	waiting []pod
	alive   map[string]*node
	bought  []*node
	// fate decides what happens to a machine: it calls after.
	fate func(b *buyer, n *node)
	// perNode is how many pods share a machine if they are planned together. patience is how long after its machine failed a pod is not
	// planned for, except with a probe. newImage limits the machines of an image of which none was ever initialized; 0: any number.
	perNode  int
	patience time.Duration
	newImage int
	first    int // number of machines in the first round
}

type place struct{ pool, zone string }

type pod struct {
	workload Workload
	desired  int
	again    time.Time // not planned for before this time
}

type node struct {
	name, round string
	place
	at      time.Time
	pods    []pod
	probes  []Key
	machine Bought
	served  time.Time
	failed  bool
}

type happening struct {
	at  time.Time
	seq int
	do  func()
}

type happenings []happening

func (h happenings) Len() int { return len(h) }
func (h happenings) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].seq < h[j].seq
}
func (h happenings) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *happenings) Push(x any)   { *h = append(*h, x.(happening)) }
func (h *happenings) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func newBuyer(t *testing.T, fate func(*buyer, *node), places ...place) *buyer {
	if len(places) == 0 {
		places = []place{{"a", "x"}}
	}
	b := &buyer{t: t, g: New(), now: epoch, places: places, alive: map[string]*node{}, fate: fate, perNode: 1}
	b.g.Recovered(b.now)
	return b
}

// wants adds workloads with that many pods each.
func (b *buyer) wants(workloads, pods int) *buyer {
	for i := range workloads {
		for range pods {
			b.waiting = append(b.waiting, pod{workload: Workload{Namespace: "n", Owner: fmt.Sprintf("Deployment/d%03d", i)}, desired: pods})
		}
	}
	return b
}

func (b *buyer) after(d time.Duration, do func()) {
	heap.Push(&b.queue, happening{b.now.Add(d), len(b.queue) + len(b.bought), do})
}

// each calls do at regular intervals.
func (b *buyer) each(d time.Duration, do func()) {
	b.after(d, func() { do(); b.each(d, do) })
}

// run lets time pass: first everything happens that is due at a time, then machines are bought.
func (b *buyer) run(d time.Duration) {
	end := b.now.Add(d)
	for !b.now.After(end) {
		for len(b.queue) > 0 && !b.queue[0].at.After(b.now) {
			heap.Pop(&b.queue).(happening).do()
		}
		b.g.Tick(b.now)
		b.plan()
		b.g.Take()
		next := end.Add(time.Second)
		soon := func(at time.Time) {
			if at.After(b.now) && at.Before(next) {
				next = at
			}
		}
		if len(b.queue) > 0 {
			soon(b.queue[0].at)
		}
		for _, o := range b.g.Breakers() {
			soon(o.Next)
		}
		for _, p := range b.waiting {
			soon(p.again)
		}
		b.now = next
	}
	b.now = end
}

func (b *buyer) plan() {
	due := b.g.Due(b.now, nil)
	round := fmt.Sprintf("r%d", len(b.bought))
	fresh := map[place]*node{}
	var left []pod
	var plan []*node
	underway, _ := b.g.Underway("c", "i", nil)
	for _, p := range b.waiting {
		n := b.choose(p, due, fresh, underway+len(plan))
		if n == nil {
			left = append(left, p)
			continue
		}
		n.pods = append(n.pods, p)
		if len(n.pods) == 1 {
			n.name, n.round, n.at = fmt.Sprintf("%s-%d", round, len(plan)), round, b.now
			plan = append(plan, n)
			fresh[n.place] = n
			due = slices.DeleteFunc(due, func(k Key) bool { return slices.Contains(n.probes, k) })
		}
	}
	b.waiting = left
	if b.bought == nil {
		b.first = len(plan)
	}
	for _, n := range plan {
		n.machine = Bought{
			Purchase: Purchase{Round: round, Probes: n.probes}, Pool: n.pool, Class: "c", Images: []string{"i"}, Zones: []string{n.zone}, At: b.now,
		}
		for _, p := range n.pods {
			if !slices.Contains(n.machine.Workloads, p.workload) {
				n.machine.Workloads = append(n.machine.Workloads, p.workload)
			}
		}
		b.g.Buy(n.name, n.machine)
		b.g.Locate(n.name, "i", n.zone)
		b.alive[n.name] = n
		b.bought = append(b.bought, n)
		b.fate(b, n)
	}
}

// choose returns a machine for a pod: one of this plan with free capacity, a new one if no breaker stops it, or one that is a probe.
func (b *buyer) choose(p pod, due []Key, fresh map[place]*node, underway int) *node {
	for _, at := range b.places {
		var probes []Key
		free := true
		for _, o := range []*Breaker{b.g.HoldsPods(at.pool, p.workload, b.now), b.g.HoldsMachine("c", "i", at.zone)} {
			if o != nil {
				probes = append(probes, o.Key)
				free = free && slices.Contains(due, o.Key) && (!slices.Contains(o.Tried, at.zone) || !b.untried(o.Tried, at.zone)) && !b.bystander(o, p)
			}
		}
		if n := fresh[at]; n != nil && len(n.pods) < b.perNode && !slices.ContainsFunc(probes, func(k Key) bool { return !slices.Contains(n.probes, k) }) {
			return n
		}
		if !free || len(probes) == 0 && (p.again.After(b.now) || b.newImage > 0 && underway >= b.newImage && !b.g.KnownImage("c", "i")) {
			continue
		}
		return &node{place: at, probes: probes}
	}
	return nil
}

// bystander reports whether a pool's probe should be for another pod, whose workload has not failed.
func (b *buyer) bystander(o *Breaker, p pod) bool {
	return o.Key.PoolWide() && o.failedFor(p.workload) && slices.ContainsFunc(b.waiting, func(p pod) bool { return !o.failedFor(p.workload) })
}

// untried reports whether a probe should go to another zone than this one.
func (b *buyer) untried(tried []string, zone string) bool {
	return slices.ContainsFunc(b.places, func(p place) bool { return slices.Index(tried, p.zone) < slices.Index(tried, zone) })
}

// throwOff throws the pods off a machine; their controllers create new ones. failed: before the machine served.
func (b *buyer) throwOff(n *node, cause string, failed bool) {
	if b.alive[n.name] == nil {
		return
	}
	var off []Workload
	for _, p := range n.pods {
		if !slices.Contains(off, p.workload) {
			off = append(off, p.workload)
		}
		b.g.Throw(n.name, n.pool, p.workload, p.desired, Fault{Cause: cause, Message: cause}, b.now)
	}
	if n.failed = failed; failed {
		b.g.Fail(n.name, Fault{Cause: cause, Message: cause, Workloads: off}, b.now)
	}
	b.end(n, true)
}

// breakDown ends a machine with a machine fault.
func (b *buyer) breakDown(n *node, cause string) {
	n.failed = true
	b.g.Fail(n.name, Fault{Machine: true, Cause: cause, Message: cause}, b.now)
	b.end(n, true)
}

// serve makes the machine serve all its pods.
func (b *buyer) serve(n *node) {
	n.served = b.now
	b.g.Initialized(n.name, b.now)
	b.g.Steady(n.name, b.now)
	for _, p := range n.pods {
		b.g.Serve(n.name, p.workload, b.now)
	}
}

func (b *buyer) end(n *node, again bool) {
	b.g.End(n.name, b.now)
	delete(b.alive, n.name)
	if again {
		for _, p := range n.pods {
			p.again = b.now.Add(b.patience)
			b.waiting = append(b.waiting, p)
		}
	}
}

// restart replaces the guard by a new one, made from the records and from what is recorded on the machines.
func (b *buyer) restart() {
	fresh := New()
	for o := range b.g.Owners() {
		if err := fresh.Restore(o, b.g.Encode(o, b.now)); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, n := range b.bought {
		if b.alive[n.name] != nil {
			fresh.Buy(n.name, n.machine)
			fresh.Locate(n.name, "i", n.zone)
			if !n.served.IsZero() {
				fresh.Initialized(n.name, n.served)
				fresh.Serve(n.name, Workload{}, n.served)
				fresh.Steady(n.name, b.now)
			}
		}
	}
	fresh.Recovered(b.now)
	b.g = fresh
}

// count returns how many machines were bought within a time, in all and without the first round.
func (b *buyer) count(within time.Duration) (all, afterFirst int) {
	for _, n := range b.bought {
		if n.at.Sub(epoch) <= within {
			all++
		}
	}
	return all, all - b.first
}
