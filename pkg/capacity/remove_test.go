package capacity

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestRemove(t *testing.T) {
	gang := &Gang{Key: "ns/gang", Missing: 2}
	refused, tried := Removal{Message: "no room"}, Removal{Message: "no room", RestHolds: true}
	// Placements are written "pod@node", with "#1" for the group and "!" for a member of the gang.
	for _, tc := range []struct {
		name   string
		placed string
		out    map[int]Removal
		want   string
		nodes  string
		said   []string
	}{
		{name: "nothing", placed: "a@1 b@2", want: "a@1 b@2", nodes: "1 2"},
		{
			name: "an empty node goes with its last pod", placed: "a@1 b@1 c@2 d@there", out: map[int]Removal{0: refused, 2: refused},
			want: "b@1 d@there", nodes: "1", said: []string{"a,c: no room"},
		},
		{
			name: "a group goes with one of it", placed: "a@1 b@2#1 c@3#1 d@there#1 e@3#2", out: map[int]Removal{1: refused},
			want: "a@1 e@3#2", nodes: "1 3", said: []string{"b,c,d: no room"},
		},
		{
			name: "a group stays when it was tried without the one that goes", placed: "b@2#1 c@3#1", out: map[int]Removal{0: tried},
			want: "c@3#1", nodes: "3", said: []string{"b: no room"},
		},
		{
			name: "a gang that falls short goes, tried or not", placed: "a@1 b@2#1! c@3#1!", out: map[int]Removal{2: tried},
			want: "a@1", nodes: "1", said: []string{"b: not all of the 2 pods that its group needs can be placed: no room", "c: no room"},
		},
		{
			name: "a gang that has enough left stays", placed: "b@1#1! c@2#1! d@3#1!", out: map[int]Removal{1: tried},
			want: "b@1#1! d@3#1!", nodes: "1 3", said: []string{"c: no room"},
		},
		{
			name: "with a gang goes who was placed by where it is", placed: "a@1#1 b@2#1! c@3#1! d@3", out: map[int]Removal{1: tried},
			want: "d@3", nodes: "3",
			said: []string{"a,c: not all of the 2 pods that its group needs can be placed: no room", "b: no room"},
		},
		{
			name: "with a group goes what a gang has left elsewhere", placed: "a@1#1 b@1#1! c@2! d@3", out: map[int]Removal{0: refused},
			want: "d@3", nodes: "3", said: []string{"a,b: no room", "c: not all of the 2 pods that its group needs can be placed: no room"},
		},
		{
			name: "a pod that is only expected goes without a word", placed: "~1@1 b@2", out: map[int]Removal{0: refused},
			want: "b@2", nodes: "2",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			class := &Class{Key: "class"}
			plan := &Plan{CostPerHour: 3, LowerBound: 3, Nodes: []*PlannedNode{{ID: "1", Price: 1}, {ID: "2", Price: 1}, {ID: "3", Price: 1}}}
			for _, text := range strings.Fields(tc.placed) {
				pl := Placement{Class: class}
				if rest, ok := strings.CutSuffix(text, "!"); ok {
					text, pl.Gang = rest, gang
				}
				text, group, _ := strings.Cut(text, "#")
				_, _ = fmt.Sscan(group, &pl.Group)
				text, pl.Node, _ = strings.Cut(text, "@")
				if owner, ok := strings.CutPrefix(text, "~"); ok {
					pl.Owner = types.UID(owner)
				} else {
					pl.Pod.Name = text
				}
				plan.Placements = append(plan.Placements, pl)
			}
			used := func(n *PlannedNode) bool {
				return slices.ContainsFunc(plan.Placements, func(pl Placement) bool { return pl.Node == n.ID })
			}
			plan.Nodes = slices.DeleteFunc(plan.Nodes, func(n *PlannedNode) bool { return !used(n) })
			plan.CostPerHour = float64(len(plan.Nodes))
			plan.Remove(tc.out)
			var placed, nodes, said []string
			for _, pl := range plan.Placements {
				text := pl.Pod.Name + "@" + pl.Node
				if pl.Group != 0 {
					text += fmt.Sprintf("#%d", pl.Group)
				}
				if pl.Gang != nil {
					text += "!"
				}
				placed = append(placed, text)
			}
			for _, n := range plan.Nodes {
				nodes = append(nodes, n.ID)
			}
			for _, r := range plan.Refused {
				var names []string
				for _, ref := range r.Pods {
					names = append(names, ref.Name)
				}
				said = append(said, strings.Join(names, ",")+": "+r.Message)
				if !r.Retryable {
					t.Errorf("%v are refused for good", names)
				}
			}
			slices.Sort(said)
			if diff := cmp.Diff(tc.want, strings.Join(placed, " ")); diff != "" {
				t.Errorf("placements (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.nodes, strings.Join(nodes, " ")); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.said, said); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
			if plan.CostPerHour != float64(len(plan.Nodes)) {
				t.Errorf("%v $/h for %d nodes", plan.CostPerHour, len(plan.Nodes))
			}
		})
	}
}

func TestRemoveNodes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		out   []string
		left  string
		pods  int
		costs float64
	}{
		{"none", nil, "1 2 3", 2, 3},
		{"one with pods", []string{"1"}, "2 3", 1, 2},
		{"one that never had any", []string{"3"}, "1 2", 2, 2},
		{"all", []string{"1", "2", "3"}, "", 0, 0},
	} {
		plan := &Plan{CostPerHour: 3, Nodes: []*PlannedNode{{ID: "1", Price: 1}, {ID: "2", Price: 1}, {ID: "3", Price: 1}}}
		for _, node := range []string{"1", "2"} {
			plan.Placements = append(plan.Placements, Placement{Class: &Class{Key: "class"}, Pod: PodRef{Name: "on-" + node}, Node: node})
		}
		out := map[string]Removal{}
		for _, id := range tc.out {
			out[id] = Removal{Message: "no room"}
		}
		plan.RemoveNodes(out)
		var left []string
		for _, n := range plan.Nodes {
			left = append(left, n.ID)
		}
		if got := strings.Join(left, " "); got != tc.left || len(plan.Placements) != tc.pods || plan.CostPerHour != tc.costs {
			t.Errorf("%s: %d pods on nodes %q for $%v, want %d on %q for $%v", tc.name, len(plan.Placements), got, plan.CostPerHour, tc.pods, tc.left, tc.costs)
		}
	}
}
