package cluster

import (
	"math"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/quality/workload"
)

// Vector is an amount per dimension: milli-CPU, MiB of memory, pods.
type Vector [3]int64

// Holds reports whether a pod with this need fits.
func (v Vector) Holds(need Vector) bool { return v[0] >= need[0] && v[1] >= need[1] && v[2] >= need[2] }

func (v Vector) minus(o Vector) Vector { return Vector{v[0] - o[0], v[1] - o[1], v[2] - o[2]} }

// Class is a number of identical pods: a Deployment.
type Class struct {
	Name string
	Need Vector
	// Count is how many pods it has at first, or at most in a simulated day.
	Count int
	// Capacity is the class as the planner knows it.
	Capacity *capacity.Class
}

// Type is an instance type. Room is what is left for pods when the daemons run.
type Type struct {
	Name     string
	OnDemand float64
	VCPUs    float64
	Room     Vector
	// Capacity is the type as the planner knows it.
	Capacity *capacity.InstanceType
}

// World is what nodes can be bought, and for which pods.
type World struct {
	Classes []Class
	Types   []Type
	Spot    bool
	// DaemonSets run on every node. Type.Room is without their pods.
	DaemonSets []*capacity.DaemonSet
	// Price is the current price by type.
	Price []float64
	// Offers are the types that no other type beats in room and price, cheapest first; ByPrice are all types, cheapest first.
	Offers, ByPrice []int
	candidates      []packing.Candidate
}

// mostVCPUs is the largest size of nodes in these worlds. Users limit sizes like that: larger nodes would make the unit in which capacity
// is bought and given back too coarse for clusters of some hundred nodes.
const mostVCPUs = 16

// New returns the world of a workload whose numbers of pods are multiplied.
func New(w *workload.Workload, from *catalog.Catalog, multiply float64, spot bool) (*World, error) {
	view, err := w.View(from)
	if err != nil {
		return nil, err
	}
	out := &World{DaemonSets: view.DaemonSets, Spot: spot}
	var daemons Vector
	for _, d := range w.Daemons {
		daemons[0] += d.CPU
		daemons[1] += d.Mem
		daemons[2]++
	}
	for _, t := range w.Pool.Types(from) {
		a := t.Allocatable
		room := Vector{a[corev1.ResourceCPU], a[corev1.ResourceMemory] >> 20, a[corev1.ResourcePods]}.minus(daemons)
		vcpus := float64(t.Capacity[corev1.ResourceCPU]) / 1000
		if vcpus <= mostVCPUs && room.Holds(Vector{1, 1, 1}) {
			out.Types = append(out.Types, Type{Name: t.Name, OnDemand: t.Offers[0].Price, VCPUs: vcpus, Room: room, Capacity: t})
		}
	}
	prices := make([]float64, len(out.Types))
	for i := range out.Types {
		prices[i] = out.Types[i].OnDemand
	}
	out.SetPrices(prices)
	for i, g := range w.Groups {
		need := Vector{g.CPU, g.Mem, 1}
		if slices.ContainsFunc(out.Types, func(t Type) bool { return t.Room.Holds(need) }) {
			out.Classes = append(out.Classes, Class{Name: g.App, Need: need, Count: int(math.Round(float64(g.Count) * multiply)), Capacity: view.Demand[i].Class})
		}
	}
	return out, nil
}

// SetPrices sets the types' prices.
func (w *World) SetPrices(prices []float64) {
	w.Price, w.ByPrice, w.Offers, w.candidates = prices, nil, nil, nil
	for i := range w.Types {
		w.ByPrice = append(w.ByPrice, i)
	}
	sort.SliceStable(w.ByPrice, func(i, j int) bool { return prices[w.ByPrice[i]] < prices[w.ByPrice[j]] })
	for _, t := range w.ByPrice {
		room := w.Types[t].Room
		if !slices.ContainsFunc(w.Offers, func(o int) bool { return w.Types[o].Room.Holds(room) }) {
			w.Offers = append(w.Offers, t)
			w.candidates = append(w.candidates, packing.Candidate{Room: room[:], Price: prices[t]})
		}
	}
}

// Pack returns a cheap packing of so many pods per class into new nodes. The packing's items are the classes, its candidates the offers.
func (w *World) Pack(counts []int, effort int) *packing.Result {
	all := packing.NewBits(len(w.candidates))
	for i := range w.candidates {
		all.Set(i)
	}
	p := &packing.Problem{Candidates: w.candidates, Items: make([]packing.Item, len(counts))}
	for i, n := range counts {
		p.Items[i] = packing.Item{Need: w.Classes[i].Need[:], Count: n, Candidates: all}
	}
	return packing.Pack(p, effort)
}
