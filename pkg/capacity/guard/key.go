package guard

import (
	"cmp"
	"fmt"
	"strings"
)

// Workload is what pods belong to: the topmost controller that can be read, as Kind/name, or the shape of the pods if nothing owns them
// or their Job. What is bought for no pod has an Owner and no Namespace.
type Workload struct {
	Namespace string `json:"ns,omitempty"`
	Owner     string `json:"owner"`
}

// NoPod is the workload of a machine that was bought for no pod and has no Owner of its own.
var NoPod = Workload{Owner: "machines for no pod"}

// byShape is the prefix of the Owner of pods that no object owns.
const byShape = "pods of shape "

// OfShape returns the workload of pods that no object owns.
func OfShape(namespace, shape string) Workload { return Workload{namespace, byShape + shape} }

// ByShape reports whether the workload is a shape, so that no object tells how many pods it has.
func (w Workload) ByShape() bool { return strings.HasPrefix(w.Owner, byShape) }

func (w Workload) String() string {
	if w.Namespace == "" {
		return w.Owner
	}
	return w.Namespace + " " + w.Owner
}

// Key is what a breaker stops. Exactly one of three forms is used:
//
//	machine faults: Class, Image, and Zone when only that zone fails
//	pod faults:     Pool, Workload
//	pool faults:    Pool, Cause
type Key struct {
	Class string `json:"class,omitempty"`
	Image string `json:"image,omitempty"`
	Zone  string `json:"zone,omitempty"`

	Pool     string   `json:"pool,omitempty"`
	Workload Workload `json:"workload,omitzero"`
	Cause    string   `json:"cause,omitempty"`
}

// MachineKey returns the key of machine faults of an image in a zone, or in all zones if zone is empty.
func MachineKey(class, image, zone string) Key { return Key{Class: class, Image: image, Zone: zone} }

// PodKey returns the key of faults of one workload's pods in a pool.
func PodKey(pool string, w Workload) Key { return Key{Pool: pool, Workload: w} }

// PoolKey returns the key of faults that many workloads in a pool have for the same cause.
func PoolKey(pool, cause string) Key { return Key{Pool: pool, Cause: cause} }

// Machine reports whether the key is one of machine faults.
func (k Key) Machine() bool { return k.Class != "" }

// PoolWide reports whether the key stops every pod of a pool.
func (k Key) PoolWide() bool { return !k.Machine() && k.Workload == (Workload{}) }

// valid reports whether the key has one of the three forms.
func (k Key) valid() bool {
	if k.Machine() {
		return k.Pool == "" && k.Workload == (Workload{}) && k.Cause == ""
	}
	return k.Pool != "" && k.Image == "" && k.Zone == "" && (k.Workload == (Workload{}) || k.Cause == "")
}

// includes reports whether a breaker of k stops all that one of other would.
func (k Key) includes(other Key) bool {
	switch {
	case k.Machine() != other.Machine():
		return false
	case k.Machine():
		return k.Class == other.Class && (k.Image == "" || k.Image == other.Image) && (k.Zone == "" || k.Zone == other.Zone)
	case k.Pool != other.Pool:
		return false
	}
	return k.PoolWide() || k.Workload == other.Workload
}

func (k Key) String() string {
	switch {
	case k.Machine() && k.Zone != "":
		return fmt.Sprintf("node class %s, image %s in zone %s", k.Class, k.Image, k.Zone)
	case k.Machine() && k.Image == "":
		return fmt.Sprintf("node class %s", k.Class)
	case k.Machine():
		return fmt.Sprintf("node class %s, image %s", k.Class, k.Image)
	case k.PoolWide():
		return "node pool " + k.Pool
	}
	return fmt.Sprintf("node pool %s, %s", k.Pool, k.Workload)
}

// compareKeys orders keys, so that output is the same each time.
func compareKeys(a, b Key) int {
	return cmp.Or(
		cmp.Compare(a.Class, b.Class), cmp.Compare(a.Image, b.Image), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Pool, b.Pool),
		cmp.Compare(a.Workload.Namespace, b.Workload.Namespace), cmp.Compare(a.Workload.Owner, b.Workload.Owner), cmp.Compare(a.Cause, b.Cause))
}
