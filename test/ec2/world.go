package ec2

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/ec2/iam"
)

// world is the state of the simulated account. It has no lock and no clock; Sim provides both.
type world struct {
	cfg    *Config
	shifts []Shift
	policy *iam.Policy // nil: everything is allowed
	now    time.Time
	// agenda holds the events that are due later.
	agenda  agenda
	counter map[string]int

	network      network
	images       []*image
	templates    []*template
	instances    []*instance // in the order of launch
	byID         map[string]*instance
	tokens       map[string]*tokenUse
	capacity     capacities
	reservations []*reservation
	placements   []*placementGroup
	// quotas are in vCPUs by capacity type; no entry: no quota.
	quotas map[string]int
	// spotRole: the account has the service-linked role that spot instances need.
	spotRole bool
	// doomed is how many of the next instances are terminated before they start (-1: all), doomReason why.
	doomed     int
	doomReason string
	profiles   map[string]*profile
	parameters map[string]string
	queue      queue
	journal    journal

	effects []effect
}

func newWorld(cfg *Config, now time.Time) *world {
	w := &world{
		cfg: cfg, now: now, counter: map[string]int{}, byID: map[string]*instance{}, tokens: map[string]*tokenUse{}, capacity: newCapacities(),
		profiles: map[string]*profile{}, parameters: map[string]string{}, quotas: map[string]int{}, spotRole: !cfg.NoSpotRole,
	}
	w.network = newNetwork(w)
	w.addImages()
	w.addProfile(cfg.InstanceProfile, "/", cfg.Role, nil).known = now
	return w
}

// settle runs all events that are due by now.
func (w *world) settle(now time.Time) {
	for len(w.agenda) > 0 && !w.agenda[0].at.After(now) {
		e := heap.Pop(&w.agenda).(*event)
		w.now = e.at
		e.do()
	}
	if now.After(w.now) {
		w.now = now
	}
}

func (w *world) next() (time.Time, bool) {
	if len(w.agenda) == 0 {
		return time.Time{}, false
	}
	return w.agenda[0].at, true
}

// after schedules do for d of simulated time from now.
func (w *world) after(d time.Duration, do func()) { w.at(w.now.Add(w.cfg.scaled(d)), do) }

// at schedules do for a time on the clock.
func (w *world) at(t time.Time, do func()) {
	w.counter["event"]++
	heap.Push(&w.agenda, &event{at: t, order: w.counter["event"], do: do})
}

// id returns the next ID of a kind, such as i-0123456789abcdef0.
func (w *world) id(kind string) string {
	w.counter[kind]++
	return fmt.Sprintf("%s-0%016x", kind, w.draw(kind, w.counter[kind]).Uint64())
}

// draw returns a random source that depends only on the seed and the key, so that the draws for one instance don't depend on other
// requests.
func (w *world) draw(key ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintln(h, key...)
	return rand.New(rand.NewPCG(w.cfg.Seed, h.Sum64()))
}

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Float64()*float64(high-low))
}

type event struct {
	at    time.Time
	order int
	do    func()
}

// agenda is a heap of events, ordered by time and then by when they were scheduled.
type agenda []*event

func (a agenda) Len() int      { return len(a) }
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a agenda) Less(i, j int) bool {
	if !a[i].at.Equal(a[j].at) {
		return a[i].at.Before(a[j].at)
	}
	return a[i].order < a[j].order
}
func (a *agenda) Push(x any) { *a = append(*a, x.(*event)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}
