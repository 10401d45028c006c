package simulate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// TestSpreadState fills twelve domains at random and compares the corrected state with a fresh PreFilter after each pod: the counts
// and the minimum that Filter reads. It is the first to fail when an upgrade of Kubernetes changes the state.
func TestSpreadState(t *testing.T) {
	c := newCluster(t, nil)
	var nodes []*corev1.Node
	for i := range 12 {
		nodes = append(nodes, node(fmt.Sprintf("n%d", i), fmt.Sprintf("z%d", i%4)).Obj())
	}
	c.load(nodes, nil)
	web := pod("web", "web").
		SpreadConstraint(1, corev1.LabelTopologyZone, corev1.DoNotSchedule, app("web").Obj(), nil, nil, nil, nil).
		SpreadConstraint(1, corev1.LabelHostname, corev1.DoNotSchedule, app("web").Obj(), nil, nil, nil, nil).Obj()

	tr := &trial{world: c.world, overlay: c.world.newOverlay(nil), infos: map[classKey]*framework.PodInfo{}}
	c.world.lister.SharedLister = tr.overlay
	kept, err := tr.preFilterAll(c.ctx, web)
	if err != nil || kept.spread == nil {
		t.Fatalf("PreFilter: %v, spread %v", err, kept.spread)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		s := step(web, nodes[random.IntN(len(nodes))].Name)
		info, at := tr.podInfo(s), tr.overlay.writable(s.Node)
		tr.overlay.place(info, at)
		tr.placed = append(tr.placed, placement{info, at})
		if ok, err := tr.catchUp(c.ctx, kept); !ok || err != nil {
			t.Fatalf("catchUp: %v, %v", ok, err)
		}
		fresh, err := tr.preFilterAll(c.ctx, web)
		if err != nil {
			t.Fatalf("PreFilter: %v", err)
		}
		for i, want := range fresh.spread.constraints {
			got := kept.spread.constraints[i]
			if diff := cmp.Diff(want.counts, got.counts); diff != "" {
				t.Fatalf("counts by %s (-fresh +kept):\n%s", want.key, diff)
			}
			if *got.least != *want.least || *want.least != want.low {
				t.Fatalf("minimum by %s: kept %d, fresh %d, true %d", want.key, *got.least, *want.least, want.low)
			}
		}
	}
}

// otherState is a state that an unknown version of the plugin might keep.
type otherState struct{ Counts map[string]int }

func (s *otherState) Clone() fwk.StateData { return s }

func TestUnknownSpreadStateIsAnError(t *testing.T) {
	state := framework.NewCycleState()
	state.Write(spreadKey, &otherState{})
	if _, err := spreadOf(state); !errors.Is(err, errSpreadState) {
		t.Errorf("spreadOf = %v, want %v", err, errSpreadState)
	}
}

// TestSpreadMinimumOverManyDomains is the case that AddPod alone gets wrong: the two domains it tracks have grown, a third is still
// empty.
func TestSpreadMinimumOverManyDomains(t *testing.T) {
	c := newCluster(t, nil)
	web := pod("web", "web").SpreadConstraint(1, corev1.LabelTopologyZone, corev1.DoNotSchedule, app("web").Obj(), nil, nil, nil, nil).Obj()
	var trial capacity.Trial
	for _, zone := range []string{"a", "b", "c", "d"} {
		trial.Nodes = append(trial.Nodes, capacity.TrialNode{Node: node("n-"+zone, zone).Obj()})
	}
	// Whichever two zones are tracked, one of these orders fills them first.
	for _, order := range []string{"abcd", "cdab", "acbd", "bdac", "adbc", "bcad"} {
		trial.Steps = nil
		for _, zone := range order[:2] + order[:2] {
			trial.Steps = append(trial.Steps, step(web, "n-"+string(zone)))
		}
		want := []string{
			"2 PodTopologySpread: node(s) didn't match pod topology spread constraints",
			"3 PodTopologySpread: node(s) didn't match pod topology spread constraints",
		}
		if diff := cmp.Diff(want, c.verify(trial)); diff != "" {
			t.Errorf("order %s: rejections (-want +got):\n%s", order, diff)
		}
	}
}
