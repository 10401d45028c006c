package planner

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestResolve(t *testing.T) {
	daemon := &capacity.DaemonSet{Namespace: "d", Name: "agent", Class: &capacity.Class{Key: "agent", Pod: &corev1.Pod{}, Requests: capacity.Resources{"cpu": 500, "pods": 1}}}
	for _, tt := range []struct {
		name     string
		pool     func(*capacity.Pool)
		requests capacity.Resources
		daemons  []*capacity.DaemonSet
		first    string // the cheapest offering; "" if there is none
		types    int    // how many types are left open
		labels   map[string]string
		why      string
		retry    bool
	}{
		{name: "nothing asked is the cheapest there is", first: "c.2 a on-demand", types: 12},
		{name: "what is asked has to fit", requests: capacity.Resources{"cpu": 3000, "memory": 14 << 30}, first: "m.4 a on-demand", types: 8},
		{name: "so have the pods of daemons", requests: capacity.Resources{"cpu": 1800}, daemons: []*capacity.DaemonSet{daemon}, first: "c.4 a on-demand", types: 9},
		{name: "spot where it may be", pool: func(p *capacity.Pool) {
			p.Requirements[capacity.LabelCapacityType] = capacity.ValueIn(capacity.LabelCapacityType, "on-demand", "spot")
		}, first: "c.2 a spot", types: 5},
		{name: "a label of its own", pool: func(p *capacity.Pool) { p.Requirements = p.Requirements.And(capacity.ValueIn("tier", "gold", "iron")) },
			first: "c.2 a on-demand", types: 12, labels: map[string]string{"tier": "gold"}},
		{name: "its taints are no obstacle", pool: func(p *capacity.Pool) {
			p.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoExecute}}
		}, first: "c.2 a on-demand", types: 12},
		{name: "limits are somebody else's", pool: func(p *capacity.Pool) { p.Limits = capacity.Resources{"cpu": 1000} }, first: "c.2 a on-demand", types: 12},
		{name: "minValues keep a dearer family open", pool: func(p *capacity.Pool) {
			r := capacity.ValueIn("karpenter.k8s.aws/instance-family", "c", "m", "r")
			r.MinValues = 3
			p.Requirements = p.Requirements.And(r)
		}, first: "c.2 a on-demand", types: 12},
		{name: "minValues that can't be had", pool: func(p *capacity.Pool) {
			r := capacity.ValueIn("karpenter.k8s.aws/instance-family", "c")
			r.MinValues = 2
			p.Requirements = p.Requirements.And(r)
		}, why: "minValues: only 1 of 2 values of karpenter.k8s.aws/instance-family are possible", retry: true},
		{name: "too much", requests: capacity.Resources{"cpu": 64000}, why: "none of 12 instance types has capacity for it: cpu 64 requested, 15.9 at most"},
		{name: "no such type", pool: func(p *capacity.Pool) {
			p.Requirements = p.Requirements.And(capacity.ValueIn(corev1.LabelInstanceTypeStable, "z.1"))
		},
			why: "its requirements exclude all 16 instance types that its node class's images and zones allow"},
		{name: "no type in the region", pool: func(p *capacity.Pool) { p.Types = nil }, why: "the region has no instance type that its node class's images and zones allow"},
		{name: "no such zone", pool: func(p *capacity.Pool) { p.Requirements = p.Requirements.And(capacity.ValueIn(capacity.LabelZone, "z")) },
			why: "none of 12 instance types is available in the zones and capacity types it allows", retry: true},
		{name: "a class that isn't ready", pool: func(p *capacity.Pool) { p.Unready = "not resolved yet" }, why: "not resolved yet", retry: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := testPool("default")
			if tt.pool != nil {
				tt.pool(p)
			}
			n, err := Resolve(p, tt.requests, tt.daemons, capacity.Options{})
			got := &Unavailable{}
			errors.As(err, &got)
			if (err != nil) != (tt.first == "") || (n == nil) != (err != nil) || *got != (Unavailable{tt.why, tt.retry}) {
				t.Fatalf("node %v, error %v, %+v; want %q, %v", n != nil, err, *got, tt.why, tt.retry)
			}
			if n == nil {
				return
			}
			types, last := map[string]bool{}, 0.0
			for _, o := range n.Offers {
				if o.Offer.Price < last {
					t.Errorf("%s in %s is cheaper than the one before", o.Type.Name, o.Offer.Zone)
				}
				last = o.Offer.Price
				types[o.Type.Name] = true
				if o.Offer.CapacityType != n.CapacityType {
					t.Errorf("%s in a node that is %s", o.Offer.CapacityType, n.CapacityType)
				}
			}
			o := n.Offers[0]
			if first := fmt.Sprint(o.Type.Name, " ", o.Offer.Zone, " ", o.Offer.CapacityType); first != tt.first || len(types) != tt.types {
				t.Errorf("%s first of %d types, want %s of %d", first, len(types), tt.first, tt.types)
			}
			for k, v := range tt.labels {
				if n.Labels[k] != v {
					t.Errorf("label %s is %q, want %q", k, n.Labels[k], v)
				}
			}
			want := tt.requests.Clone()
			for range tt.daemons {
				want.Add(daemon.Class.Requests, 1)
			}
			for _, both := range []capacity.Resources{want, n.Requests} {
				for name := range both {
					if want[name] != n.Requests[name] {
						t.Errorf("requests %v, want %v", n.Requests, want)
					}
				}
			}
			if n.Pool != p {
				t.Error("the node is of another pool")
			}
		})
	}
}

func TestResolveKeepsToSixtyTypes(t *testing.T) {
	p := testPool("default")
	p.Types = nil
	for i := range 90 {
		p.Types = append(p.Types, testType(fmt.Sprintf("f%d.x", i), "amd64", 4, 8, float64(90-i)))
	}
	n, err := Resolve(p, capacity.Resources{"cpu": 1000}, nil, capacity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]bool{}
	for _, o := range n.Offers {
		types[o.Type.Name] = true
	}
	if len(types) != capacity.MaxFleetTypes || !strings.HasPrefix(n.Offers[0].Type.Name, "f89.") {
		t.Errorf("%d types, the first is %s; want the %d cheapest", len(types), n.Offers[0].Type.Name, capacity.MaxFleetTypes)
	}
}
