package planner

import (
	"bytes"
	"encoding/binary"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// daemonSets are the daemons, and the candidates that each of them runs on.
type daemonSets struct {
	sets       []*capacity.DaemonSet
	candidates []packing.Bits
	// of are the daemons by the key that candidates store.
	of map[string][]*capacity.DaemonSet
}

// addDaemons computes each candidate's daemons and the capacity that they leave.
func (c *catalog) addDaemons(sets []*capacity.DaemonSet) *daemonSets {
	ds := &daemonSets{sets: sets, of: map[string][]*capacity.DaemonSet{"": nil}}
	for _, d := range sets {
		ds.candidates = append(ds.candidates, c.matching(&asks{terms: d.Class.Terms, tolerations: d.Class.Tolerations, preferred: true}))
	}
	c.rooms = c.rooms[:0]
	type roomKey struct {
		typ     *capacity.InstanceType
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

// room returns the capacity that daemons leave of a type; key names the daemons that run on candidate b.
func (ds *daemonSets) room(c *catalog, typ *capacity.InstanceType, key string, b int) []int64 {
	if _, known := ds.of[key]; !known {
		for i, d := range ds.sets {
			if ds.candidates[i].Has(b) {
				ds.of[key] = append(ds.of[key], d)
			}
		}
	}
	room := c.dims.room(typ.Allocatable, typ.VolumeLimits)
	total := capacity.Resources{}
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

// portsTaken returns the candidates on which a daemon uses a host port that the class requests.
func (ds *daemonSets) portsTaken(ports []corev1.ContainerPort, candidates int) packing.Bits {
	out := packing.NewBits(candidates)
	for i, d := range ds.sets {
		if capacity.PortsConflict(ports, d.Class.HostPorts) {
			out.Or(ds.candidates[i])
		}
	}
	return out
}
