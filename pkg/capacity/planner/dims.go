package planner

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// dims are the dimensions of one plan: the resources that the demand requests, then the CSI drivers and their storage. Resources that no
// pod requests can't prevent a placement.
type dims struct {
	resources []corev1.ResourceName
	drivers   []string
}

func dimsOf(demand []capacity.Demand) *dims {
	resources, drivers := map[corev1.ResourceName]bool{}, map[string]bool{}
	for i := range demand {
		for name, v := range demand[i].Class.Requests {
			if v > 0 {
				resources[name] = true
			}
		}
		for driver, v := range demand[i].Class.Volumes {
			if v > 0 {
				drivers[driver] = true
			}
		}
	}
	return &dims{resources: slices.Sorted(maps.Keys(resources)), drivers: slices.Sorted(maps.Keys(drivers))}
}

func (d *dims) len() int { return len(d.resources) + len(d.drivers) }

func (d *dims) name(i int) string {
	if i < len(d.resources) {
		return string(d.resources[i])
	}
	driver := d.drivers[i-len(d.resources)]
	if class, ok := capacity.StorageClassOf(driver); ok {
		return "storage of class " + class
	}
	return "volumes of " + driver
}

// need returns what a pod of the class takes, per dimension.
func (d *dims) need(c *capacity.Class) []int64 {
	out := make([]int64, 0, d.len())
	for _, name := range d.resources {
		out = append(out, c.Requests[name])
	}
	for _, driver := range d.drivers {
		out = append(out, c.Volumes[driver])
	}
	return out
}

// room returns what resources and volume limits provide, per dimension; a driver that isn't listed is unlimited.
func (d *dims) room(amounts capacity.Resources, volumes map[string]int64) []int64 {
	out := make([]int64, 0, d.len())
	for _, name := range d.resources {
		out = append(out, amounts[name])
	}
	for _, driver := range d.drivers {
		limit, ok := volumes[driver]
		if !ok {
			limit = packing.Unlimited
		}
		out = append(out, limit)
	}
	return out
}

// less subtracts need from room once, in place.
func less(room, need []int64) {
	for i := range room {
		if room[i] != packing.Unlimited {
			room[i] = capacity.SatAdd(room[i], -need[i])
		}
	}
}

// amount formats an amount of a dimension for people; text adds the dimension's name.
func (d *dims) amount(i int, v int64) string {
	name := corev1.ResourceStorage
	if i < len(d.resources) {
		name = d.resources[i]
	} else if _, ok := capacity.StorageClassOf(d.drivers[i-len(d.resources)]); !ok {
		return strconv.FormatInt(v, 10)
	}
	q := capacity.Resources{name: v}.List()[name]
	return q.String()
}

func (d *dims) text(i int, v int64) string { return d.name(i) + " " + d.amount(i, v) }
