package capacity

import (
	"bytes"
	"encoding/binary"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// daemonSets are the daemons, and the candidates that each of them runs on.
type daemonSets struct {
	sets       []*DaemonSet
	candidates []packing.Bits
	// of are the daemons by the key that candidates store.
	of map[string][]*DaemonSet
}

// addDaemons computes each candidate's daemons and the capacity that they leave.
func (c *catalog) addDaemons(sets []*DaemonSet) *daemonSets {
	ds := &daemonSets{sets: sets, of: map[string][]*DaemonSet{"": nil}}
	for _, d := range sets {
		ds.candidates = append(ds.candidates, c.matching(&asks{terms: d.Class.Terms, tolerations: d.Class.Tolerations, preferred: true}))
	}
	c.rooms = c.rooms[:0]
	type roomKey struct {
		typ     *InstanceType
		daemons string
	}
	rooms := map[roomKey]int{}
	var key, last []byte
	for b := range c.candidates {
		x := &c.candidates[b]
		typ := c.typeOf(b)
		key = key[:0]
		for i := range sets {
			if ds.candidates[i].Has(b) {
				key = binary.AppendUvarint(key, uint64(i))
			}
		}
		if b > 0 && typ == c.typeOf(b-1) && bytes.Equal(key, last) {
			x.room, x.daemons = c.candidates[b-1].room, c.candidates[b-1].daemons // candidates of a type are adjacent
			continue
		}
		last = append(last[:0], key...)
		k := roomKey{typ, string(key)}
		at, ok := rooms[k]
		if !ok {
			at = len(c.rooms)
			rooms[k] = at
			c.rooms = append(c.rooms, ds.room(c, typ, k.daemons, b))
		}
		x.room, x.daemons = at, k.daemons
	}
	return ds
}

// RunsOn reports whether the daemon will run a pod on a node with these labels and taints.
func (d *DaemonSet) RunsOn(labels map[string]string, taints []corev1.Taint) bool {
	a := asks{terms: d.Class.Terms, tolerations: d.Class.Tolerations, preferred: true}
	return a.tolerates(taints) == nil && a.matches(func(key string) (string, bool) {
		v, ok := labels[key]
		return v, ok
	})
}

// room returns the capacity that daemons leave of a type; key names the daemons that run on candidate b.
func (ds *daemonSets) room(c *catalog, typ *InstanceType, key string, b int) []int64 {
	if _, known := ds.of[key]; !known {
		for i, d := range ds.sets {
			if ds.candidates[i].Has(b) {
				ds.of[key] = append(ds.of[key], d)
			}
		}
	}
	room := c.dims.room(typ.Allocatable, typ.VolumeLimits)
	total := Resources{}
	for _, d := range ds.of[key] {
		less(room, c.dims.need(d.Class))
		total.Add(d.Class.Requests, 1)
	}
	if !total.Fits(typ.Allocatable) {
		clear(room) // a node that can't even hold its daemons gets no pods
	}
	return room
}

// among returns how many of the daemons at these positions run on candidate b.
func (ds *daemonSets) among(positions []int, b int) int {
	n := 0
	for _, i := range positions {
		if ds.candidates[i].Has(b) {
			n++
		}
	}
	return n
}

// avoidDaemons removes the batch's candidates with daemons that its pods must not share a node or domain with, by anti-affinity of either
// side.
func (r *run) avoidDaemons(u *podBatch) {
	avoid := func(g *group, daemons []int) {
		for _, d := range daemons {
			for b := range r.catalog.candidates {
				if _, ok := r.catalog.label(b, g.key); u.candidates.Has(b) && (ok || g.host) && r.daemons.candidates[d].Has(b) {
					u.candidates.Clear(b)
				}
			}
		}
	}
	for i := range u.owned {
		if o := &u.owned[i]; o.kind == antiAffinity {
			avoid(o.group, o.group.daemons)
		}
	}
	for _, g := range u.blocked {
		avoid(g, g.repelling)
	}
}

// countDaemons finds the groups that count daemons' pods, and those of anti-affinity terms that daemons' pods have.
func (t *topology) countDaemons(sets []*DaemonSet, podBatches []*podBatch, names NamespaceLabels) {
	for i, d := range sets {
		if a := d.Class.Pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
			for _, g := range t.concerning(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, d.Class.Namespace, podBatches, names) {
				g.repelling = append(g.repelling, i)
			}
		}
	}
	near := map[*group]bool{} // a daemon's pod comes too late for others to have affinity to it
	for _, u := range podBatches {
		for i := range u.all {
			if u.all[i].kind == affinity {
				near[u.all[i].group] = true
			}
		}
	}
	for _, g := range t.groups {
		for i, d := range sets {
			if g.port == nil && !near[g] && g.matches(d.Class.Namespace, d.Class.Labels, names) {
				g.daemons = append(g.daemons, i)
			}
		}
		if g.filter != nil && !g.host || len(g.daemons)+len(g.repelling) > 0 {
			t.opening = append(t.opening, g)
		}
	}
}

// portsTaken returns the candidates on which a daemon uses a host port that the class requests.
func (ds *daemonSets) portsTaken(ports []corev1.ContainerPort, candidates int) packing.Bits {
	out := packing.NewBits(candidates)
	for i, d := range ds.sets {
		if portsConflict(ports, d.Class.HostPorts) {
			out.Or(ds.candidates[i])
		}
	}
	return out
}

func portsConflict(a, b []corev1.ContainerPort) bool {
	for i := range a {
		for j := range b {
			if PortConflict(&a[i], &b[j]) {
				return true
			}
		}
	}
	return false
}

// PortConflict reports whether one node can't provide both host ports: same number and protocol, and the same or any address
// (k8s.io/kube-scheduler/framework, HostPortInfo: only 0.0.0.0 is any).
func PortConflict(a, b *corev1.ContainerPort) bool {
	return a.HostPort == b.HostPort && protocolOf(a) == protocolOf(b) && (anyIP(a.HostIP) || anyIP(b.HostIP) || a.HostIP == b.HostIP)
}

func anyIP(ip string) bool { return ip == "" || ip == "0.0.0.0" }

func protocolOf(p *corev1.ContainerPort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return p.Protocol
}
