package draw

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

// Size bounds the size of worlds.
type Size struct {
	// Apps and Replicas are the maximum number of workloads, and of pods in each.
	Apps, Replicas int
}

// Sizes for the small run in the tests and for the whole run.
var (
	Small = Size{Apps: 5, Replicas: 12}
	Large = Size{Apps: 9, Replicas: 40}
)

// World describes the objects and events of one run. Its objects belong to the caller.
type World struct {
	Seed uint64
	// Namespace holds the workloads.
	Namespace string
	// Setup is created before the scheduler starts, Bursts after that, one after the other.
	Setup  []client.Object
	Bursts []Burst
	// EC2 and Kubelet configure how instances boot, Limits what is not available.
	EC2     ec2.Config
	Kubelet kubelet.Config
	Limits  []Limit
	// MemoryOverhead is the share of its memory that a machine of the world keeps at most. The scheduler doesn't know it: it has its default, 7.5 %.
	MemoryOverhead float64
	// StartupTaint is the key of the taint that an agent removes from each node some time after it is Ready; empty: there is none.
	StartupTaint string
	// Misfits are applications (by label app) whose pods no instance type can run.
	Misfits map[string]bool
	// Gangs are the groups of pods that start together, by name, with the number of pods that must do so.
	Gangs map[string]int
	// Cut is how it becomes smaller in the end; nil: it doesn't.
	Cut *Cut
	// Chunks is how many chunks its CapacityBuffer has; 0: there is none.
	Chunks int
	// Repair: a node becomes unhealthy once everything runs.
	Repair bool

	story []string
}

// Burst is what is created at one moment.
type Burst struct {
	// After is the time since the previous burst.
	After   time.Duration
	Objects []client.Object
	// Scale is the new size of Deployments that grow, by name.
	Scale map[string]int32
}

// Limit is how many instances of a type can be launched; ec2.Any stands for every zone.
type Limit struct {
	Type, Zone, CapacityType string
	N                        int
}

// String describes the world's special features in one line.
func (w *World) String() string {
	return fmt.Sprintf("seed %d: %s", w.Seed, strings.Join(w.story, ", "))
}

// Pods returns how many pods each application has at the end, without DaemonSets.
func (w *World) Pods() map[string]int { return w.count(len(w.Bursts)) }

// generator draws one world.
type generator struct {
	*rand.Rand
	w    *World
	size Size
	// arm and gpu: the world has a pool for these.
	arm, gpu bool
	// apps drawn so far, for affinity terms between them.
	apps []string
}

// New returns the world of the seed.
func New(seed uint64, size Size) *World {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), size: size, w: &World{
		Seed: seed, Namespace: fmt.Sprintf("world-%d", seed), Misfits: map[string]bool{}, Gangs: map[string]int{},
	}}
	g.machines()
	g.pools()
	g.extras()
	g.bursts()
	g.cut()
	g.spare()
	return g.w
}

// maybe returns true with probability p.
func (g *generator) maybe(p float64) bool { return g.Float64() < p }

// between returns a number from low to high.
func (g *generator) between(low, high int) int { return low + g.IntN(high-low+1) }

// duration returns a duration from low to high.
func (g *generator) duration(low, high time.Duration) time.Duration {
	return low + time.Duration(g.Int64N(int64(high-low)+1))
}

func (g *generator) tell(format string, args ...any) {
	g.w.story = append(g.w.story, fmt.Sprintf(format, args...))
}

// pick returns one of the choices.
func pick[T any](g *generator, choices ...T) T { return choices[g.IntN(len(choices))] }
