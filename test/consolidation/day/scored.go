package day

import (
	"math"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/product"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/scheduler"
)

// placing is a side whose arriving pods a scheduler places.
type placing interface {
	// place places pods, and returns how many of each class fit nowhere.
	place(d *Day, pods []cluster.Share) (left []int, err error)
}

// Scored is the product with kube-scheduler itself, which places pods by the profile's scores.
type Scored struct {
	*Product
	scheduler *scheduler.Scheduler
	ranks     map[string]int64
}

// NewScored returns the product with a policy and a way to score nodes, and a function that ends its goroutines.
func NewScored(w *cluster.World, policy consolidation.Policy, scoring scheduler.Scoring) (side func(*Day) Consolidator, end func(), err error) {
	s := &Scored{ranks: map[string]int64{}}
	if s.scheduler, err = scheduler.New(w, scoring, s.rank); err != nil {
		return nil, nil, err
	}
	return func(d *Day) Consolidator {
		s.Product = &Product{lives: map[*cluster.Node]*product.Life{}}
		s.c = product.New(d.Cluster, func(n *cluster.Node) *product.Life { return s.life(d, n) }, policy, boot*time.Minute)
		return s
	}, s.scheduler.Close, nil
}

// rank is 100 for a node whose price its pods were worth at the last pass, less the larger the part is that they weren't worth. What was
// launched since was launched for the pods that it has.
func (s *Scored) rank(node string) int64 {
	if r, ok := s.ranks[node]; ok {
		return r
	}
	return 100
}

// Pass consolidates, and ranks the nodes.
func (s *Scored) Pass(d *Day) error {
	if err := s.Product.Pass(d); err != nil || d.Now%passEvery != 0 {
		return err
	}
	clear(s.ranks)
	for _, n := range d.Cluster.Nodes {
		if waste, ok := s.c.Waste[n.ID]; ok {
			s.ranks[scheduler.NodeName(n)] = int64(math.Round(100 * min(1, max(0, 1-waste/d.Cluster.Price(n)))))
		}
	}
	return nil
}

func (s *Scored) place(d *Day, pods []cluster.Share) (left []int, err error) {
	if err := s.scheduler.Sync(d.Cluster, d.Draining); err != nil {
		return nil, err
	}
	left = make([]int, len(d.Cluster.World.Classes))
	for _, p := range pods {
		for i := range p.Count {
			n, err := s.scheduler.Place(p.Class)
			if err != nil {
				return nil, err
			}
			if n == nil { // neither do the others
				left[p.Class] += p.Count - i
				break
			}
			d.put(n, p.Class)
		}
	}
	return left, nil
}
