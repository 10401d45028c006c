package catalog

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Dims are the dimensions of one plan: the resources that the demand requests, then the keys of Class.Volumes (CSI drivers, storage, devices).
// Resources that no pod requests can't prevent a placement.
type Dims struct {
	Resources []corev1.ResourceName
	drivers   []string // the keys of Class.Volumes
}

func DimsOf(demand []capacity.Demand) *Dims {
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
	return &Dims{Resources: slices.Sorted(maps.Keys(resources)), drivers: slices.Sorted(maps.Keys(drivers))}
}

func (d *Dims) Len() int { return len(d.Resources) + len(d.drivers) }

func (d *Dims) Name(i int) string {
	if i < len(d.Resources) {
		return string(d.Resources[i])
	}
	driver := d.drivers[i-len(d.Resources)]
	if class, ok := capacity.StorageClassOf(driver); ok {
		return "storage of class " + class
	}
	if classes, ok := capacity.DeviceClassesOf(driver); ok {
		return "devices of class " + classes + " (known from ResourceSlices of such nodes, or from annotation " + objects.AnnotationDevices + " of the node class)"
	}
	return "volumes of " + driver
}

// Need returns what a pod of the class takes, per dimension.
func (d *Dims) Need(c *capacity.Class) []int64 {
	out := make([]int64, 0, d.Len())
	for _, name := range d.Resources {
		out = append(out, c.Requests[name])
	}
	for _, driver := range d.drivers {
		out = append(out, c.Volumes[driver])
	}
	return out
}

// Room returns what resources and volume limits provide, per dimension; a driver that isn't listed is unlimited.
func (d *Dims) Room(amounts capacity.Resources, volumes map[string]int64) []int64 {
	return d.AppendRoom(make([]int64, 0, d.Len()), amounts, volumes)
}

// AppendRoom appends to out what Room returns.
func (d *Dims) AppendRoom(out []int64, amounts capacity.Resources, volumes map[string]int64) []int64 {
	for _, name := range d.Resources {
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

// Amount formats an amount of a dimension for people, without the dimension's name.
func (d *Dims) Amount(i int, v int64) string {
	name := corev1.ResourceStorage
	if i < len(d.Resources) {
		name = d.Resources[i]
	} else if _, ok := capacity.StorageClassOf(d.drivers[i-len(d.Resources)]); !ok {
		return strconv.FormatInt(v, 10)
	}
	q := capacity.Resources{name: v}.List()[name]
	return q.String()
}

func (d *Dims) Text(i int, v int64) string { return d.Name(i) + " " + d.Amount(i, v) }

// AmountLike formats an amount of a dimension in the unit in which another amount of it is written, rounded down to hundredths: "191.45" cores beside
// "500", not "191450m".
func (d *Dims) AmountLike(i int, v, other int64) string {
	if i >= len(d.Resources) || v == 0 {
		return d.Amount(i, v)
	}
	name := d.Resources[i]
	scale := float64(scaleOf(d.Amount(i, other)))
	if scale == 0 || scaleOf(d.Amount(i, v)) == scaleOf(d.Amount(i, other)) {
		return d.Amount(i, v)
	}
	q := capacity.Resources{name: v}.List()[name]
	suffix := strings.TrimLeft(d.Amount(i, other), "0123456789.")
	in := math.Floor(q.AsApproximateFloat64()*1000/scale*100+1e-6) / 100
	return strconv.FormatFloat(in, 'f', -1, 64) + suffix
}

// scaleOf returns the unit of a written quantity, in thousandths; 0: it isn't one of those that amounts of pods are written in.
func scaleOf(text string) int64 {
	return map[string]int64{"m": 1, "": 1000, "Ki": 1000 << 10, "Mi": 1000 << 20, "Gi": 1000 << 30, "Ti": 1000 << 40}[strings.TrimLeft(text, "0123456789.")]
}
