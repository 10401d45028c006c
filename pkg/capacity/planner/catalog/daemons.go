package catalog

import (
	"bytes"
	"encoding/binary"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// DaemonSets are the daemons, and the candidates that each of them runs on.
type DaemonSets struct {
	sets       []*capacity.DaemonSet
	Candidates []packing.Bits // by position in sets
	// byKey holds the daemons that run on a candidate, by Candidate.daemons.
	byKey map[string][]*capacity.DaemonSet
}

// AddDaemons computes each candidate's daemons and the capacity that they leave, in the dimensions of a plan.
func (c *Catalog) AddDaemons(sets []*capacity.DaemonSet, d *Dims) *DaemonSets {
	c.dims = d
	ds := &DaemonSets{sets: sets, byKey: map[string][]*capacity.DaemonSet{"": nil}}
	for _, d := range sets {
		ds.Candidates = append(ds.Candidates, c.Matching(&Asks{Terms: d.Class.Terms, Tolerations: d.Class.Tolerations, Preferred: true}))
	}
	c.rooms = c.rooms[:0]
	type roomKey struct {
		typ     *capacity.InstanceType
		daemons string
	}
	rooms := map[roomKey]int{}
	var key, last []byte
	for b := range c.Candidates {
		x := &c.Candidates[b]
		typ := c.TypeOf(b)
		key = key[:0]
		for i := range sets {
			if ds.Candidates[i].Has(b) {
				key = binary.AppendUvarint(key, uint64(i))
			}
		}
		if b > 0 && typ == c.TypeOf(b-1) && bytes.Equal(key, last) {
			x.Room, x.daemons = c.Candidates[b-1].Room, c.Candidates[b-1].daemons // candidates of a type are adjacent
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
		x.Room, x.daemons = at, k.daemons
	}
	return ds
}

// room returns the capacity that daemons leave of a type; key names the daemons that run on candidate b.
func (ds *DaemonSets) room(c *Catalog, typ *capacity.InstanceType, key string, b int) []int64 {
	if _, known := ds.byKey[key]; !known {
		for i, d := range ds.sets {
			if ds.Candidates[i].Has(b) {
				ds.byKey[key] = append(ds.byKey[key], d)
			}
		}
	}
	room := c.dims.Room(typ.Allocatable, typ.VolumeLimits)
	total := capacity.Resources{}
	for _, d := range ds.byKey[key] {
		less(room, c.dims.Need(d.Class))
		total.Add(d.Class.Requests, 1)
	}
	if !total.Fits(typ.Allocatable) {
		clear(room) // a node that can't even hold its daemons gets no pods
	}
	return room
}

// Among returns how many of the daemons at these positions run on candidate b.
func (ds *DaemonSets) Among(positions []int, b int) int {
	n := 0
	for _, i := range positions {
		if ds.Candidates[i].Has(b) {
			n++
		}
	}
	return n
}

// PortsTaken returns the candidates on which a daemon uses one of the host ports. candidates is the number of all candidates.
func (ds *DaemonSets) PortsTaken(ports []corev1.ContainerPort, candidates int) packing.Bits {
	out := packing.NewBits(candidates)
	for i, d := range ds.sets {
		if capacity.PortsConflict(ports, d.Class.HostPorts) {
			out.Or(ds.Candidates[i])
		}
	}
	return out
}
