package fidelity

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// single is a world in which one constraint decides. The scheduler's own filter for it must reject the plan of a planner that ignores
// the constraint, which proves that the world tests it, and must accept our planner's plan.
type single struct {
	name string
	pods []*corev1.Pod
	// change turns the plain scene into that of the case.
	change func(*scene)
	// blind removes the constraint from a pod, unseen from the rest of the world.
	blind  func(*corev1.Pod)
	unseen func(*provisioning.Scene)
	// by is the filter that rejects the blind plan. Empty if the constraint is one that only scores, or one on nodes to launch, which
	// the scheduler knows nothing about.
	by string
	// zones are the zones of the pods, in the order of the pods' names: empty for a node that may be launched in several zones,
	// "refused" for none; a nil slice is not compared. nodes is the number of nodes to launch; 0 is not compared.
	zones []string
	nodes int
}

// plain returns a world with one pool: a small instance type, a large one that is cheaper per CPU if it is filled, and one with a GPU.
// Zones are more expensive in alphabetical order; spot is cheap in all of them.
func plain() *scene {
	s := &scene{gangs: map[types.UID]*capacity.Gang{}, pools: []*capacity.Pool{newPool("general", 0)}}
	return s
}

func newPool(name string, weight int32) *capacity.Pool {
	p := &capacity.Pool{Name: name, Weight: weight, Labels: map[string]string{"karpenter.sh/nodepool": name}}
	for _, m := range []struct {
		name  string
		cpu   int64
		gpus  int64
		price float64
	}{{"m5.4", 4, 0, 0.2}, {"m5.16", 16, 0, 0.7}, {"g4.4", 4, 1, 1}} {
		family, _, _ := strings.Cut(m.name, ".")
		t := &capacity.InstanceType{
			Name: m.name,
			Labels: map[string]string{corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", familyKey: family, cpuKey: fmt.Sprint(m.cpu),
				corev1.LabelInstanceTypeStable: m.name},
			Capacity:    capacity.Resources{"cpu": m.cpu * 1000, "memory": m.cpu * 4 << 30, "pods": 110},
			Allocatable: capacity.Resources{"cpu": m.cpu*1000 - 100, "memory": m.cpu*4<<30 - 500<<20, "pods": 110},
		}
		if m.gpus > 0 {
			t.Capacity["nvidia.com/gpu"], t.Allocatable["nvidia.com/gpu"] = m.gpus, m.gpus
		}
		for i, zone := range zones {
			price := m.price * (1 + 0.05*float64(i))
			t.Offers = append(t.Offers, capacity.Offer{Zone: zone, CapacityType: "on-demand", Price: price, Available: true},
				capacity.Offer{Zone: zone, CapacityType: "spot", Price: price / 2, Available: true})
		}
		p.Types = append(p.Types, t)
	}
	return p
}

// there adds an existing node with so many free CPUs.
func (s *scene) there(name, zone string, cpu int64, pods ...*corev1.Pod) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hostKey: name, zoneKey: zone, ctKey: "on-demand",
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", familyKey: "m5"}}}
	n.Status.Allocatable = capacity.Resources{"cpu": cpu * 1000, "memory": cpu * 4 << 30, "pods": 20}.List()
	n.Status.Capacity = n.Status.Allocatable
	s.nodes = append(s.nodes, n)
	for _, p := range pods {
		p.Spec.NodeName = name
		s.bound = append(s.bound, p)
	}
	return n
}

// full adds a node without free capacity in each of the zones, which makes the zones count for spreading.
func (s *scene) full(zones ...string) {
	for _, z := range zones {
		s.there("full-"+z, z, 0)
	}
}

// pods returns n pods of an application, each requesting so much CPU.
func pods(app string, n int, cpu string, change ...func(*corev1.Pod)) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", app, i), Labels: map[string]string{"app": app}}}
		p.Spec.Containers = []corev1.Container{{Name: "main", Resources: requesting(cpu, "64Mi")}}
		for _, c := range change {
			c(p)
		}
		out = append(out, p)
	}
	return out
}

// single plans the case as it is or, if sighted is false, as a planner would that ignores the constraint.
func (j *judge) single(t *testing.T, tc *single, sighted bool) *planned {
	w := &planned{judge: j, tb: t, scene: plain()}
	if tc.change != nil {
		tc.change(w.scene)
	}
	for i, p := range w.scene.bound {
		p.UID = types.UID(fmt.Sprintf("%s/bound/%d", t.Name(), i))
	}
	for _, pod := range tc.pods {
		p := pod.DeepCopy()
		p.UID = types.UID(fmt.Sprintf("%s/%v/%s", t.Name(), sighted, p.Name))
		if !sighted && tc.blind != nil {
			tc.blind(p)
		}
		w.scene.pending = append(w.scene.pending, p)
	}
	sortPools(w.scene.pools)
	w.leave = j.enter(t, w.scene)
	w.view, w.pods = j.look(w.scene)
	seen := *w.view
	if !sighted && tc.unseen != nil {
		tc.unseen(&seen)
	}
	w.plan = planner.Decide(&seen.View, w.scene.opts)
	return w
}

// asItIs returns the blind plan as the filters see it, with the constraint.
func (w *planned) asItIs(t *testing.T, pods []*corev1.Pod) capacity.Trial {
	pools, allocatable := map[string]*capacity.Pool{}, map[string]capacity.Resources{}
	for _, p := range w.scene.pools {
		pools[p.Name] = p
		for _, typ := range p.Types {
			allocatable[typ.Name] = typ.Allocatable
		}
	}
	for _, n := range w.plan.Nodes {
		n.Pool, n.Allocatable, n.Daemons = pools[n.Pool.Name], allocatable[n.Offers[0].Type.Name], w.scene.daemons
	}
	out := trial(w.view, w.plan, w.pods)
	for i := range out.Steps {
		name := out.Steps[i].Pod.Name
		at := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name == name })
		p := pods[at].DeepCopy()
		p.UID = types.UID(t.Name() + "/judged/" + name)
		class, err := w.classes.Class(p)
		if err != nil {
			t.Fatal(err)
		}
		out.Steps[i].Pod, out.Steps[i].Class = p, class.Key
	}
	return out
}

// zonesOf returns the zones of the pods in the order of their names.
func (w *planned) zonesOf() []string {
	node := map[string]string{}
	for _, n := range w.view.Nodes {
		node[n.Name] = n.Labels[zoneKey]
	}
	for _, n := range w.plan.Nodes {
		node[n.ID] = n.Labels[zoneKey]
	}
	where := map[string]string{}
	for _, pl := range w.plan.Placements {
		where[pl.Pod.Name] = node[pl.Node]
	}
	for _, r := range w.plan.Refused {
		for _, p := range r.Pods {
			where[p.Name] = "refused"
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(where)) {
		out = append(out, where[name])
	}
	return out
}
