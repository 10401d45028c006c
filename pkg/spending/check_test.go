package spending

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// Nodes of a static pool that are Ready and lack a device count against the pool that they were bought for.
func TestNewImageOfAStaticPool(t *testing.T) {
	p := newPurse(t, Config{NewImageNodes: 2})
	pool := &capacity.Pool{Name: "pool", NodeClass: "class"}
	offers := []capacity.NodeOffer{{Type: &capacity.InstanceType{Name: "m", Image: "ami-new"}, Offer: capacity.Offer{Zone: "a", Available: true}}}
	w := guard.Workload{Owner: "NodePool/pool"}
	bought := 0
	for round := range 5 { // as for a static pool
		node, held := p.ForPool(pool, &capacity.PlannedNode{Pool: pool, Offers: offers}, w)
		adm := p.spent(10-bought, &Cost{})
		for range 10 - bought {
			if why, _ := adm.Refuses(pool, node.Offers, []guard.Workload{w}, held.Probe, false, ""); why != "" {
				break
			}
			name := fmt.Sprint("m", bought)
			p.Buy(&capacity.Claim{Name: name, Pool: "pool", NodeClass: "class",
				Purchase: &guard.Purchase{Round: fmt.Sprint("r", round), Workloads: []guard.Workload{w}, Probes: held.Probe}}, node.Offers, nil)
			p.Named(name, "node-"+name)
			p.NodeReady("node-" + name) // but no device plugin registers
			bought++
		}
		p.clock.Step(time.Minute)
	}
	if bought != 2 {
		t.Errorf("%d machines of an image none of which was ever initialized, want 2", bought)
	}
}

// A purchase for one breaker leaves, to other breakers that are due, only offerings without an alternative.
func TestOffersOfAProbeThatOthersHoldBack(t *testing.T) {
	offer := func(image, zone string) capacity.NodeOffer {
		return capacity.NodeOffer{Type: &capacity.InstanceType{Image: image}, Offer: capacity.Offer{Zone: zone}}
	}
	for _, tt := range []struct {
		name   string
		offers []capacity.NodeOffer
		want   string
		spares bool
	}{
		{"some are free", []capacity.NodeOffer{offer("i", "a"), offer("i", "b")}, "b", true},
		{"none is free", []capacity.NodeOffer{offer("i", "a")}, "a", false},
		{"all are free", []capacity.NodeOffer{offer("i", "b"), offer("j", "a")}, "b a", false},
	} {
		n := &capacity.PlannedNode{Pool: &capacity.Pool{NodeClass: "class"}, Offers: tt.offers}
		spares := Spares(guard.MachineKey("class", "i", "a"), n)
		if got := strings.Join(zonesOf(n.Offers), " "); got != tt.want || spares != tt.spares {
			t.Errorf("%s: %s, spared: %v; want %s, %v", tt.name, got, spares, tt.want, tt.spares)
		}
	}
}

// A node that may become a known image or a new one counts among the nodes of the new one, until there are enough of these.
func TestNewImagesBesideKnownOnes(t *testing.T) {
	p := newPurse(t, Config{NewImageNodes: 2})
	p.state.breakers.Know("class", "ami-known")
	pool := &capacity.Pool{Name: "pool", NodeClass: "class"}
	offer := func(name, image string) capacity.NodeOffer {
		return capacity.NodeOffer{Type: &capacity.InstanceType{Name: name, Image: image}, Offer: capacity.Offer{Zone: "a", Available: true, Price: 1}}
	}
	check := p.spent(10, &Cost{})
	fresh := 0
	for range 10 {
		offers := check.Spare(pool, []capacity.NodeOffer{offer("m7g.large", "ami-new"), offer("m7i.large", "ami-known")}, []guard.Workload{web})
		if why, _ := check.Refuses(pool, offers, []guard.Workload{web}, nil, false, ""); why != "" {
			t.Fatalf("a node that may become a known image is refused: %s", why)
		}
		if len(offers) == 2 {
			fresh++
		}
	}
	if fresh != 2 {
		t.Errorf("%d nodes may become the new image, want 2", fresh)
	}
	only := []capacity.NodeOffer{offer("m7g.large", "ami-new")}
	if why, soon := check.Refuses(pool, check.Spare(pool, only, nil), nil, nil, false, ""); why == "" || !soon {
		t.Errorf("a third node of the new image alone: %q", why)
	}
}

// Images of nodes that were initialized before purchases were recorded are known.
func TestImagesOfOldNodesAreKnown(t *testing.T) {
	p := newPurse(t, Config{NewImageNodes: 1})
	old := &capacity.Claim{Name: "old", NodeClass: "class", ImageID: "ami", Initialized: true, Launched: true}
	if err := p.Restore(t.Context(), []*capacity.Claim{old}); err != nil {
		t.Fatal(err)
	}
	if !p.state.breakers.KnownImage("class", "ami") {
		t.Error("the image of a node that is there counts as new")
	}
}
