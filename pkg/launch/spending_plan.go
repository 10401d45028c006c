package launch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// restrict removes from a view what open breakers stop: offerings of images that fail become unavailable, and classes whose workloads fail
// in a pool are forbidden there. lift holds the breakers that are being probed, which stop nothing. It returns what is forbidden, and
// refusals for the pods that have to wait while others of their class need not.
func (s *Spending) restrict(v *view, pod func(types.UID) *corev1.Pod, lift []guard.Key) (forbidden []capacity.Forbidden, wait []capacity.Refusal) {
	if s == nil {
		return nil, nil
	}
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.guard.Breakers(), func(b *guard.Breaker) bool { return b.Open() }) {
		return nil, nil
	}
	for i, p := range v.Pools {
		v.Pools[i] = s.withoutHeld(p, lift)
	}
	for i := range v.Demand {
		d := &v.Demand[i]
		held := map[string][]*guard.Breaker{} // by pool: one breaker per pod, in the order of the pods
		byWorkload := map[guard.Workload]map[string]*guard.Breaker{}
		breakers := func(p *corev1.Pod) map[string]*guard.Breaker {
			w := s.workloadOf(p)
			if byWorkload[w] == nil {
				byWorkload[w] = s.heldIn(v.Pools, w, lift, now)
			}
			return byWorkload[w]
		}
		pods := max(len(d.Pods), 1)
		for j := range pods {
			p := d.Class.Pod
			if len(d.Pods) > 0 {
				if live := pod(d.Pods[j].UID); live != nil {
					p = live
				}
			}
			for pool, b := range breakers(p) {
				if held[pool] == nil {
					held[pool] = make([]*guard.Breaker, pods)
				}
				held[pool][j] = b
			}
		}
		if len(held) > 0 {
			clear(s.idle)
		}
		var out []int // pods that a breaker stops somewhere where it doesn't stop others of their class
		for _, pool := range slices.Sorted(maps.Keys(held)) {
			all := held[pool]
			if !slices.Contains(all, nil) {
				forbidden = append(forbidden, capacity.Forbidden{Class: d.Class.Key, Pool: pool, Reason: all[0].Text(), Paused: true})
				continue
			}
			for j, b := range all {
				if b != nil && !slices.Contains(out, j) {
					out = append(out, j)
				}
			}
		}
		if len(out) > 0 {
			slices.Sort(out)
			wait = append(wait, s.without(d, out, held))
		}
	}
	v.Demand = slices.DeleteFunc(v.Demand, func(d capacity.Demand) bool { return len(d.Pods) == 0 && d.Owner == "" })
	return forbidden, wait
}

// without removes pods from a demand and refuses them.
func (s *Spending) without(d *capacity.Demand, out []int, held map[string][]*guard.Breaker) capacity.Refusal {
	r := capacity.Refusal{Class: d.Class, Retryable: true}
	var kept []capacity.PodRef
	for j, ref := range d.Pods {
		if slices.Contains(out, j) {
			r.Pods = append(r.Pods, ref)
		} else {
			kept = append(kept, ref)
		}
	}
	d.Pods = kept
	for _, pool := range slices.Sorted(maps.Keys(held)) {
		if b := held[pool][out[0]]; b != nil {
			r.Reasons = append(r.Reasons, capacity.PoolReason{Pool: pool, Reason: b.Text()})
		}
	}
	for _, reason := range r.Reasons {
		r.Message = strings.TrimPrefix(r.Message+"; "+reason.Pool+": "+reason.Reason, "; ")
	}
	return r
}

// heldIn returns the breakers that stop a workload, by pool.
func (s *Spending) heldIn(pools []*capacity.Pool, w guard.Workload, lift []guard.Key, now time.Time) map[string]*guard.Breaker {
	var out map[string]*guard.Breaker
	for _, p := range pools {
		b := s.guard.HoldsPods(p.Name, w, now)
		if b == nil || slices.Contains(lift, b.Key) {
			continue
		}
		if out == nil {
			out = map[string]*guard.Breaker{}
		}
		out[p.Name] = b
	}
	return out
}

// withoutHeld returns the pool with those offerings unavailable that a breaker of machine faults stops.
func (s *Spending) withoutHeld(p *capacity.Pool, lift []guard.Key) *capacity.Pool {
	var out *capacity.Pool
	for i, t := range p.Types {
		var own *capacity.InstanceType
		for j := range t.Offers {
			b := s.guard.HoldsMachine(p.NodeClass, t.Image, t.Offers[j].Zone)
			if b == nil || slices.Contains(lift, b.Key) {
				continue
			}
			if out == nil {
				cp := *p
				out = &cp
				out.Types = slices.Clone(p.Types)
			}
			out.Paused = cmp.Or(out.Paused, b.Text())
			if own == nil {
				cp := *t
				own = &cp
				own.Offers = slices.Clone(t.Offers)
				out.Types[i] = own
			}
			own.Offers[j].Available = false
		}
	}
	if out == nil {
		return p
	}
	return out
}

// imagesOf and zonesOf return the images and zones that a node with these offerings may get.
func imagesOf(offers []capacity.NodeOffer) (out []string) {
	for i := range offers {
		if image := offers[i].Type.Image; !slices.Contains(out, image) {
			out = append(out, image)
		}
	}
	return out
}

func zonesOf(offers []capacity.NodeOffer) (out []string) {
	for i := range offers {
		if z := offers[i].Offer.Zone; !slices.Contains(out, z) {
			out = append(out, z)
		}
	}
	return out
}

// purchaseCheck is asked before instances are bought: one check per plan or per group of claims.
type purchaseCheck struct {
	s             *Spending
	now           time.Time
	total         int            // nodes of the plan
	newImageNodes map[string]int // nodes of this plan of images that are new
	underway      map[string]underway
	spent         func() *money // counted when it is first asked for
	counted       *money
	granted       int
	doubt         map[guard.Key]*guard.Doubt
	gangs         map[string]bool // whose first node is granted: the others have to come, too
}

// underway counts the instances of a new image that were bought before.
type underway struct {
	n     int
	since time.Time // when the first of them was bought
}

func (a *purchaseCheck) money() *money {
	if a.counted == nil {
		a.counted = a.spent()
	}
	return a.counted
}

// admit begins a check for so many nodes.
func (s *Spending) admit(total int, spent func() *money) *purchaseCheck {
	if s == nil {
		return nil
	}
	return &purchaseCheck{s: s, now: s.clock.Now(), total: total, newImageNodes: map[string]int{}, underway: map[string]underway{}, spent: spent, doubt: map[guard.Key]*guard.Doubt{}, gangs: map[string]bool{}}
}

// refuses returns why a node must not be bought, or "". lift holds the breakers that it probes. gang is a gang that has pods there, if any:
// limits on the number of instances that are tried count a gang as one. A refused node counts for nothing. soon as in capacity.Refusal.
func (a *purchaseCheck) refuses(pool *capacity.Pool, offers []capacity.NodeOffer, workloads []guard.Workload, lift []guard.Key, urgent bool, gang string) (why string, soon bool) {
	if a == nil {
		return "", false
	}
	s := a.s
	if s.cfg.Budget.limits(pool) {
		a.money() // before mu: it takes other locks
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lifted := func(b *guard.Breaker) bool {
		return b == nil || slices.Contains(lift, b.Key) && !b.Probing() // another goroutine may have bought the probe
	}
	for i := range offers {
		if b := s.guard.HoldsMachine(pool.NodeClass, offers[i].Type.Image, offers[i].Offer.Zone); !lifted(b) {
			return b.Text(), false
		}
	}
	for _, w := range workloads {
		if b := s.guard.HoldsPods(pool.Name, w, a.now); !lifted(b) {
			return b.Text(), false
		}
	}
	keys := doubtKeys(pool, offers, workloads)
	if len(lift) == 0 && !a.gangs[gang] {
		if why := a.doubts(keys); why != "" {
			return why, true
		}
	}
	images, why := a.newImages(pool.NodeClass, offers, workloads)
	if why != "" && !a.gangs[gang] {
		return why, true
	}
	if why := s.overBudgetLocked(a, pool, offers, urgent); why != "" {
		return why, false
	}
	for _, k := range keys {
		if d := a.doubt[k]; d != nil {
			d.More++
		}
	}
	for _, image := range images {
		a.newImageNodes[image]++
	}
	a.granted++
	if gang != "" {
		a.gangs[gang] = true
	}
	if s.cfg.Budget.limits(pool) {
		a.money().inFlight[pool.Name] += dearestOf(offers)
	}
	return "", false
}

// doubtKeys returns the guard's keys that a new node would count for if it failed: the pool with each workload, and the node class with
// each image.
func doubtKeys(pool *capacity.Pool, offers []capacity.NodeOffer, workloads []guard.Workload) (keys []guard.Key) {
	for _, w := range workloads {
		keys = append(keys, guard.PodKey(pool.Name, w))
	}
	for _, image := range imagesOf(offers) {
		keys = append(keys, guard.MachineKey(pool.NodeClass, image, ""))
	}
	return keys
}

// doubts allows one instance at a time while some of a round have failed and none has served.
func (a *purchaseCheck) doubts(keys []guard.Key) string {
	for _, k := range keys {
		d, asked := a.doubt[k]
		if !asked {
			d = a.s.guard.Doubts(k)
			a.doubt[k] = d
		}
		if d != nil && d.More > 0 {
			return fmt.Sprintf("of %d instances that were launched together for %s, %d have failed since %s and none has served: one more is launched at a time until one serves, or until the verdict on each of them is known",
				d.Bought, k, d.Failed, d.Since.UTC().Format(time.RFC3339))
		}
	}
	return ""
}

// newImages keeps down how many machines are bought of an image of which none was ever initialized. keys are those of such images among the
// offers.
func (a *purchaseCheck) newImages(class string, offers []capacity.NodeOffer, workloads []guard.Workload) (keys []string, why string) {
	for _, image := range imagesOf(offers) {
		key, text := a.newImage(class, image, workloads)
		if key != "" {
			keys = append(keys, key)
		}
		why = cmp.Or(why, text)
	}
	return keys, why
}

// newImage is the key of an image if it is new, and says why no more machines of it are bought for now.
func (a *purchaseCheck) newImage(class, image string, workloads []guard.Workload) (key, why string) {
	if a.s.cfg.NewImageNodes <= 0 || image == "" || a.s.guard.KnownImage(class, image) {
		return "", ""
	}
	key = class + " " + image
	most := max(a.s.cfg.NewImageNodes, a.total/10)
	of := key + " " + fmt.Sprint(workloads)
	u, counted := a.underway[of]
	if !counted {
		if u.n, u.since = a.s.guard.Underway(class, image, workloads); u.since.IsZero() {
			u.since = a.now
		}
		a.underway[of] = u
	}
	if u.n+a.newImageNodes[key] < most {
		return key, ""
	}
	return key, fmt.Sprintf("no node of image %s (node class %s) has been initialized yet: the first of at most %d was launched at %s, more are launched once one is initialized (newImageNodes)",
		image, class, most, u.since.UTC().Format(time.RFC3339))
}

// spare leaves out offers of new images of which enough machines are under way, where a node has others. A pool's minValues need all of them.
func (a *purchaseCheck) spare(pool *capacity.Pool, offers []capacity.NodeOffer, workloads []guard.Workload) []capacity.NodeOffer {
	if a == nil {
		return offers
	}
	for _, r := range pool.Requirements {
		if r.MinValues > 0 {
			return offers
		}
	}
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(offers), func(o capacity.NodeOffer) bool {
		_, why := a.newImage(pool.NodeClass, o.Type.Image, workloads)
		return why != ""
	})
	if len(left) == 0 {
		return offers
	}
	return left
}

// allowance is what the guard allows where instances are bought for no pod.
type allowance struct {
	none  bool        // none may be bought
	why   string      // why none, or only a probe
	probe []guard.Key // one may be bought, as a probe of these breakers
}

// forPool checks the purchase of instances for no pod: it returns the node with the offerings that may be bought, and the allowance.
func (s *Spending) forPool(p *capacity.Pool, n *capacity.PlannedNode, w guard.Workload) (*capacity.PlannedNode, allowance) {
	if s == nil {
		return n, allowance{}
	}
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.guard.Due(now, nil)
	probe := func(b *guard.Breaker) (*capacity.PlannedNode, allowance) {
		if !slices.Contains(due, b.Key) {
			return n, allowance{none: true, why: b.Text()}
		}
		key := b.Key
		own := *n
		if !probes(key, &own, []guard.Workload{w}, b.Tried) {
			return n, allowance{none: true, why: b.Text()}
		}
		return &own, allowance{why: b.Text(), probe: []guard.Key{key}}
	}
	if b := s.guard.HoldsPods(p.Name, w, now); b != nil {
		return probe(b)
	}
	var last *guard.Breaker
	free := slices.DeleteFunc(slices.Clone(n.Offers), func(o capacity.NodeOffer) bool {
		b := s.guard.HoldsMachine(p.NodeClass, o.Type.Image, o.Offer.Zone)
		if b != nil {
			last = b
		}
		return b != nil
	})
	switch {
	case last == nil:
		return n, allowance{}
	case len(free) == 0:
		return probe(last)
	}
	own := *n
	own.Offers = free
	return &own, allowance{}
}

// buyAs records an instance that is bought for no pod.
func (s *Spending) buyAs(c *capacity.Claim, offers []capacity.NodeOffer, round string, w guard.Workload, probe []guard.Key) {
	if s == nil {
		return
	}
	c.Purchase = &guard.Purchase{Round: round, Workloads: []guard.Workload{w}, Probes: probe}
	s.buy(c, offers, nil)
}

// wantedOn returns what each new node of a plan is bought for: workloads, and pods that exist. pod finds a pod by its UID.
func (s *Spending) wantedOn(plan *capacity.Plan, pod func(types.UID) *corev1.Pod) (workloads map[string][]guard.Workload, wanted map[string]map[types.UID]guard.Workload) {
	workloads, wanted = map[string][]guard.Workload{}, map[string]map[types.UID]guard.Workload{}
	if s == nil {
		return workloads, wanted
	}
	fresh := map[string]bool{}
	for _, n := range plan.Nodes {
		fresh[n.ID], wanted[n.ID] = true, map[types.UID]guard.Workload{}
	}
	type kin struct {
		class capacity.ClassKey
		owner types.UID
	}
	known := map[kin]guard.Workload{} // pods of one controller and class belong to one workload
	for _, pl := range plan.Placements {
		if !fresh[pl.Node] {
			continue
		}
		p := pl.Class.Pod
		if live := pod(pl.Pod.UID); pl.Pod.UID != "" && live != nil {
			p = live
		}
		k := kin{pl.Class.Key, objects.Controller(p)}
		w, ok := known[k]
		if !ok {
			w = s.owners.WorkloadOf(p, func() *capacity.Class { return pl.Class })
			known[k] = w
		}
		workloads[pl.Node] = addWorkload(workloads[pl.Node], w)
		if pl.Pod.UID != "" {
			wanted[pl.Node][pl.Pod.UID] = w
		}
	}
	return workloads, wanted
}

// addWorkload adds a workload that isn't in the list yet. An instance is recorded for a limited number; more would tell nothing new.
func addWorkload(all []guard.Workload, w guard.Workload) []guard.Workload {
	const most = 100
	if len(all) >= most || slices.Contains(all, w) {
		return all
	}
	return append(all, w)
}
