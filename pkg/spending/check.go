package spending

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// Check is asked before instances are bought: one check per plan or per group of claims. One goroutine uses it.
type Check struct {
	g             *Guard
	now           time.Time
	total         int            // nodes of the plan
	newImageNodes map[string]int // nodes that this check has allowed with images that never had an initialized node, by node class and image
	underway      map[string]underway
	claims        func() map[string]*capacity.Claim
	cost          *Cost                      // counted when it is first asked for
	granted       int                        // nodes that this check has allowed
	doubt         map[guard.Key]*guard.Doubt // what guard.Doubts has answered, with the nodes allowed since
	gangs         map[string]bool            // gangs whose first node is granted: their other nodes must be bought, too
	// Moves: the nodes are for pods that run on nodes which need not end. Half of the launches of a minute are left to pods that wait.
	Moves bool
}

// underway counts the instances of a new image that were bought before this plan.
type underway struct {
	n     int
	since time.Time // when the first of them was bought
}

// spent returns what the nodes cost.
func (a *Check) spent() *Cost {
	if a.cost == nil {
		a.cost = a.g.Cost(a.claims())
	}
	return a.cost
}

// Check begins a check of a plan with total new nodes (see Config.NewImageNodes). claims returns all NodeClaims by name, in informers or not yet.
func (g *Guard) Check(total int, claims func() map[string]*capacity.Claim) *Check {
	if g == nil {
		return nil
	}
	return &Check{g: g, now: g.clock.Now(), total: total, newImageNodes: map[string]int{}, underway: map[string]underway{}, claims: claims, doubt: map[guard.Key]*guard.Doubt{}, gangs: map[string]bool{}}
}

// Refuses returns why a node must not be bought, or "". lift holds the breakers that the node probes. gang is a gang that has pods there, if any:
// limits on the number of instances that are tried count a gang as one. A refused node counts for nothing. soon: by the time that a new node would
// have booted it is known whether the node may be bought after all (capacity.Refusal).
func (a *Check) Refuses(pool *capacity.Pool, offers []capacity.NodeOffer, workloads []guard.Workload, lift []guard.Key, urgent bool, gang string) (why string, soon bool) {
	if a == nil {
		return "", false
	}
	s, limited := &a.g.state, a.g.cfg.Budget.limits(pool)
	if limited {
		a.spent() // before mu: it takes other locks
	}
	a.g.mu.Lock()
	defer a.g.mu.Unlock()
	lifted := func(b *guard.Breaker) bool {
		return b == nil || slices.Contains(lift, b.Key) && !b.Probing() // another goroutine may have bought the probe
	}
	for i := range offers {
		if b := s.breakers.HoldsMachine(pool.NodeClass, offers[i].Type.Image, offers[i].Offer.Zone); !lifted(b) {
			return b.Text(), false
		}
	}
	for _, w := range workloads {
		if b := s.breakers.HoldsPods(pool.Name, w, a.now); !lifted(b) {
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
	if why := a.g.budgets.exceeded(a, pool, offers, urgent); why != "" {
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
	if limited {
		a.spent().InFlight[pool.Name] += dearestOf(offers)
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
func (a *Check) doubts(keys []guard.Key) string {
	for _, k := range keys {
		d, asked := a.doubt[k]
		if !asked {
			d = a.g.state.breakers.Doubts(k)
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
func (a *Check) newImages(class string, offers []capacity.NodeOffer, workloads []guard.Workload) (keys []string, why string) {
	for _, image := range imagesOf(offers) {
		key, text := a.newImage(class, image, workloads)
		if key != "" {
			keys = append(keys, key)
		}
		why = cmp.Or(why, text)
	}
	return keys, why
}

// newImage returns the key of an image if it is new, and why no more machines of it are bought for now.
func (a *Check) newImage(class, image string, workloads []guard.Workload) (key, why string) {
	if a.g.cfg.NewImageNodes <= 0 || image == "" || a.g.state.breakers.KnownImage(class, image) {
		return "", ""
	}
	key = class + " " + image
	most := max(a.g.cfg.NewImageNodes, a.total/10)
	of := key + " " + fmt.Sprint(workloads)
	u, counted := a.underway[of]
	if !counted {
		if u.n, u.since = a.g.state.breakers.Underway(class, image, workloads); u.since.IsZero() {
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

// Spare leaves out the offers of images of which no node was ever initialized and enough machines are being launched. It leaves out none if no other
// offers are left, or if minValues of the pool may need all.
func (a *Check) Spare(pool *capacity.Pool, offers []capacity.NodeOffer, workloads []guard.Workload) []capacity.NodeOffer {
	if a == nil {
		return offers
	}
	for _, r := range pool.Requirements {
		if r.MinValues > 0 {
			return offers
		}
	}
	a.g.mu.Lock()
	defer a.g.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(offers), func(o capacity.NodeOffer) bool {
		_, why := a.newImage(pool.NodeClass, o.Type.Image, workloads)
		return why != ""
	})
	if len(left) == 0 {
		return offers
	}
	return left
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
