package launch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// What the plan counts as free may have been used since: the pool's limit is checked once more when the plan is written to the ledger.
func TestAPlanThatPassesALimitIsCutWhenItIsBooked(t *testing.T) {
	w := newWorld(t)
	w.limits = capacity.Resources{capacity.ResourceNodes: 2}
	w.run()
	w.submit(10) // three planned nodes
	w.until("two nodes, and a word about the rest", func() bool {
		return len(w.bound) == 8 && strings.Contains(strings.Join(w.notes, "\n"), "over the pool's limit")
	})
	w.exactly(2)
	w.mu.Lock()
	w.limits[capacity.ResourceNodes] = 3
	w.mu.Unlock()
	w.parts.Triggers.Changed()
	w.allBound(10)
	w.exactly(3)
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.reserved {
		if w.claims[name] == nil {
			t.Errorf("%s is reserved still and was never written", name)
		}
	}
}

func TestReserve(t *testing.T) {
	a, b := &capacity.Class{Key: "a"}, &capacity.Class{Key: "b"}
	pod := func(name string) capacity.PodRef { return capacity.PodRef{Name: name} }
	plan := func() *capacity.Plan {
		pool := &capacity.Pool{Name: "pool"}
		p := &capacity.Plan{CostPerHour: 3}
		for _, id := range []string{"1", "2", "3"} {
			p.Nodes = append(p.Nodes, &capacity.PlannedNode{ID: id, Pool: pool, Price: 1, Largest: capacity.Resources{"cpu": 2000}})
		}
		p.Placements = []capacity.Placement{
			{Class: a, Pod: pod("a1"), Node: "1"}, {Class: a, Pod: pod("a2"), Node: "there"},
			{Class: b, Pod: pod("b1"), Node: "2", Group: 1}, {Class: b, Owner: "rs", Node: "3", Group: 1}, {Class: b, Pod: pod("b2"), Node: "there", Group: 1},
		}
		return p
	}
	for name, tc := range map[string]struct {
		limits   capacity.Resources
		inFlight int
		nodes    string
		placed   string
		refused  string
	}{
		"everything can be had":                {nodes: "1 2 3", placed: "a1@1 a2@there b1@2 rs@3 b2@there"},
		"a node less takes its group with it":  {limits: capacity.Resources{"cpu": 5000}, nodes: "1", placed: "a1@1 a2@there", refused: "b1,b2: pool: over the pool's limit: cpu"},
		"nothing can be had":                   {limits: capacity.Resources{"cpu": 1999}, placed: "a2@there", refused: "a1: pool: over the pool's limit: cpu; b1,b2: pool: over the pool's limit: cpu"},
		"too many claims are in flight by one": {inFlight: 98, nodes: "1", placed: "a1@1 a2@there", refused: "b1,b2: 98 nodes are being launched already, the limit is 100 (maxClaimsInFlight)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.limits = tc.limits
			w.build()
			p := plan()
			w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
				for i := range tc.inFlight {
					l.AddNode(fmt.Sprint("in-flight-", i), &capacity.Node{}, nil, true, now)
				}
			})
			claims := w.parts.purchases.reserve(&provisioning.Proposal{Plan: p}, nil).Claims
			var nodes, placed, refused []string
			for _, n := range p.Nodes {
				nodes = append(nodes, n.ID)
				if c := claims[n.ID]; c == nil || w.reserved[c.Name] == nil {
					t.Errorf("node %s has no claim, or it isn't reserved", n.ID)
				}
			}
			for _, pl := range p.Placements {
				placed = append(placed, pl.Pod.Name+string(pl.Owner)+"@"+pl.Node)
			}
			for _, r := range p.Refused {
				var names []string
				for _, ref := range r.Pods {
					names = append(names, ref.Name)
				}
				refused = append(refused, strings.Join(names, ",")+": "+r.Message)
				if !r.Retryable {
					t.Errorf("%v are refused for good", names)
				}
			}
			got := map[string]string{"nodes": strings.Join(nodes, " "), "placed": strings.Join(placed, " "), "refused": strings.Join(refused, "; ")}
			if diff := cmp.Diff(map[string]string{"nodes": tc.nodes, "placed": tc.placed, "refused": tc.refused}, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if len(claims) != len(p.Nodes) || len(w.reserved) != len(p.Nodes) || p.CostPerHour != float64(len(p.Nodes)) {
				t.Errorf("%d claims, %d reserved, $%v for %d nodes", len(claims), len(w.reserved), p.CostPerHour, len(p.Nodes))
			}
		})
	}
}
