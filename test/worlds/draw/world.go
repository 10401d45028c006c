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

// Size is how large worlds are.
type Size struct {
	// Apps and Replicas bound how many workloads there are and how many pods each has.
	Apps, Replicas int
}

// Sizes for the slice of the gate, and for the whole run.
var (
	Small = Size{Apps: 5, Replicas: 12}
	Large = Size{Apps: 9, Replicas: 40}
)

// World is what happens to a cluster. Its objects are fresh and belong to the caller.
type World struct {
	Seed uint64
	// Namespace holds the workloads.
	Namespace string
	// Setup is there before the scheduler is, Bursts come one after the other.
	Setup  []client.Object
	Bursts []Burst
	// EC2 and Kubelet are how instances come up; Limits what can't be had.
	EC2     ec2.Config
	Kubelet kubelet.Config
	Limits  []Limit
	// StartupTaint is the key of the taint that an agent takes off each node a while after it is Ready; empty: there is none.
	StartupTaint string
	// Misfits are applications (by label app) of which no machine can run a pod.
	Misfits map[string]bool
	// Gangs are the groups of pods that start together, by name, with how many of them have to.
	Gangs map[string]int

	story []string
}

// Burst is what arrives at one moment.
type Burst struct {
	// After is the time since the burst before.
	After   time.Duration
	Objects []client.Object
	// Scale are Deployments that grow, by name.
	Scale map[string]int32
}

// Limit is how many instances of a type can be launched; ec2.Any stands for every zone.
type Limit struct {
	Type, Zone, CapacityType string
	N                        int
}

// String says in a line what is special about the world.
func (w *World) String() string {
	return fmt.Sprintf("seed %d: %s", w.Seed, strings.Join(w.story, ", "))
}

// Pods is how many pods of an application the world ends with, DaemonSets aside.
func (w *World) Pods() map[string]int { return w.count(len(w.Bursts)) }

// generator draws one world.
type generator struct {
	*rand.Rand
	w    *World
	size Size
	// arm and gpu say that the world has a pool for these.
	arm, gpu bool
	// apps so far, for terms about each other.
	apps []string
}

// New is the world of the seed.
func New(seed uint64, size Size) *World {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), size: size, w: &World{
		Seed: seed, Namespace: fmt.Sprintf("world-%d", seed), Misfits: map[string]bool{}, Gangs: map[string]int{},
	}}
	g.machines()
	g.pools()
	g.extras()
	g.bursts()
	return g.w
}

// maybe is true with probability p.
func (g *generator) maybe(p float64) bool { return g.Float64() < p }

// between is a number from low to high.
func (g *generator) between(low, high int) int { return low + g.IntN(high-low+1) }

// duration is a time from low to high.
func (g *generator) duration(low, high time.Duration) time.Duration {
	return low + time.Duration(g.Int64N(int64(high-low)+1))
}

func (g *generator) tell(format string, args ...any) {
	g.w.story = append(g.w.story, fmt.Sprintf(format, args...))
}

// pick is one of the choices.
func pick[T any](g *generator, choices ...T) T { return choices[g.IntN(len(choices))] }
