package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// Cut is a cluster that has been packed and has then lost a part of its pods.
type Cut struct {
	// Multiply is by how much the numbers of pods are multiplied.
	Multiply float64
	// Part is the part of the pods that is lost. Uniform: each with the same probability, otherwise each class by a part of its own.
	Part    float64
	Uniform bool
}

// Multipliers for clusters of about 500, 2,000 and 5,000 nodes, and for a simulated day with 130 to 330.
const (
	multiply500, multiply2000, multiply5000 = 1.76, 7.03, 18.2

	DayMultiply = 0.285
)

// Cuts are the clusters of the benchmark, the smallest first.
var Cuts = []Cut{
	{multiply500, .3, true}, {multiply500, .3, false}, {multiply500, .5, true},
	{multiply2000, .3, true}, {multiply2000, .3, false}, {multiply2000, .5, true}, {multiply2000, .5, false}, {multiply2000, .6, true}, {multiply2000, .6, false},
	{multiply5000, .3, true}, {multiply5000, .5, true}, {multiply5000, .5, false},
}

// Name returns the part in per cent, with u for uniform and c for by class.
func (c Cut) Name() string {
	how := "c"
	if c.Uniform {
		how = "u"
	}
	return fmt.Sprintf("%s%.0f", how, 100*c.Part)
}

// Cluster returns the cluster.
func (c Cut) Cluster(types *catalog.Catalog, effort int, seed uint64) (*Cluster, error) {
	w, err := New(Deployments(), types, c.Multiply, false)
	if err != nil {
		return nil, err
	}
	out := Build(w, effort)
	out.Thin(c.Part, c.Uniform, seed)
	return out, nil
}

// Thin deletes a part of the pods: uniformly each with the same probability, otherwise each class with a probability of its own that is
// the part in the mean. Nodes that lose all their pods are removed, and the others get into an order that says nothing of how they were
// filled.
func (c *Cluster) Thin(part float64, uniform bool, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 9))
	keep := make([]float64, len(c.World.Classes))
	for i := range keep {
		keep[i] = 1 - part
		if !uniform {
			keep[i] = min(1, (1-part)*2*random.Float64())
		}
	}
	for _, n := range c.Nodes {
		for _, s := range slices.Clone(n.Pods) {
			lost := 0
			for range s.Count {
				if random.Float64() >= keep[s.Class] {
					lost++
				}
			}
			c.Put(n, s.Class, -lost)
		}
		n.Gone = n.Count == 0
	}
	rand.New(rand.NewPCG(seed, 5)).Shuffle(len(c.Nodes), func(i, j int) { c.Nodes[i], c.Nodes[j] = c.Nodes[j], c.Nodes[i] })
	c.Sweep()
}
