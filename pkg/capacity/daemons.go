package capacity

import (
	"bytes"
	"encoding/binary"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// daemonSets are the daemons with the bins they run on.
type daemonSets struct {
	sets []*DaemonSet
	bins []packing.Bits
	// of are daemons by the key that bins carry.
	of map[string][]*DaemonSet
}

// addDaemons works out each bin's daemons and what room they leave.
func (c *catalog) addDaemons(sets []*DaemonSet) *daemonSets {
	ds := &daemonSets{sets: sets, of: map[string][]*DaemonSet{"": nil}}
	for _, d := range sets {
		ds.bins = append(ds.bins, c.matching(&asks{terms: d.Class.Terms, tolerations: d.Class.Tolerations, preferred: true}))
	}
	c.rooms = c.rooms[:0]
	type roomKey struct {
		typ     *InstanceType
		daemons string
	}
	rooms := map[roomKey]int{}
	var key, last []byte
	for b := range c.bins {
		x := &c.bins[b]
		typ := c.typeOf(b)
		key = key[:0]
		for i := range sets {
			if ds.bins[i].Has(b) {
				key = binary.AppendUvarint(key, uint64(i))
			}
		}
		if b > 0 && typ == c.typeOf(b-1) && bytes.Equal(key, last) {
			x.room, x.daemons = c.bins[b-1].room, c.bins[b-1].daemons // offers of a type follow each other
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

// RunsOn says whether a pod of the daemon will come to a node with these labels and taints.
func (d *DaemonSet) RunsOn(labels map[string]string, taints []corev1.Taint) bool {
	a := asks{terms: d.Class.Terms, tolerations: d.Class.Tolerations, preferred: true}
	return a.tolerates(taints) == nil && a.matches(func(key string) (string, bool) {
		v, ok := labels[key]
		return v, ok
	})
}

// room is what daemons leave of a type; key names those that run on bin b.
func (ds *daemonSets) room(c *catalog, typ *InstanceType, key string, b int) []int64 {
	if _, known := ds.of[key]; !known {
		for i, d := range ds.sets {
			if ds.bins[i].Has(b) {
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
		clear(room) // a node that can't even hold its daemons is for nobody
	}
	return room
}

// among is how many of the daemons at these positions run on bin b.
func (ds *daemonSets) among(positions []int, b int) int {
	n := 0
	for _, i := range positions {
		if ds.bins[i].Has(b) {
			n++
		}
	}
	return n
}

// avoidDaemons takes out the unit's bins on which daemons run that it must not be with, or that must not be with it.
func (r *run) avoidDaemons(u *unit) {
	avoid := func(g *group, daemons []int) {
		for _, d := range daemons {
			for b := range r.catalog.bins {
				if _, ok := r.catalog.label(b, g.key); u.bins.Has(b) && (ok || g.host) && r.daemons.bins[d].Has(b) {
					u.bins.Clear(b)
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

// countDaemons finds the groups that count pods of daemons, or that their anti-affinity makes.
func (t *topology) countDaemons(sets []*DaemonSet, units []*unit, names NamespaceLabels) {
	for i, d := range sets {
		if a := d.Class.Pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
			for _, g := range t.concerning(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, d.Class.Namespace, units, names) {
				g.repelling = append(g.repelling, i)
			}
		}
	}
	near := map[*group]bool{} // a daemon's pod comes too late for others to be near to it
	for _, u := range units {
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

// portsTaken are the bins on which a daemon holds a host port that the class asks for.
func (ds *daemonSets) portsTaken(ports []corev1.ContainerPort, bins int) packing.Bits {
	out := packing.NewBits(bins)
	for i, d := range ds.sets {
		if portsConflict(ports, d.Class.HostPorts) {
			out.Or(ds.bins[i])
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

// PortConflict says whether one node can't give both host ports: same number and protocol, and the same or any address
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
