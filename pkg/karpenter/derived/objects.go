package derived

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Objects holds the pools and classes that have no API object of their own: those derived from Provisioners and those from profiles'
// arguments. They exist in memory only, and callers treat them like API objects. What would be written to their status is kept here (PutStatus).
//
//	Provisioner or AWSNodeTemplate seen, or arguments read -> derived -> callbacks called (Parts) -> status kept -> removed
//
// Lock order: deriving, then mu, then the locks that the callbacks take. Callbacks are called under deriving, in the order of derivations, and
// must not derive anything.
type Objects struct {
	parts Parts
	// Set before anything is derived and only read afterwards.
	legacy   karpenter.LegacyCloud
	profiles karpenter.Profiles

	deriving sync.Mutex

	mu      sync.RWMutex
	pools   map[string]*karpv1.NodePool
	classes map[string]status.Object
}

// Parts are the functions and settings by which derived objects are connected to the store.
type Parts struct {
	// Class is the cloud's kind of node class.
	Class cloudprovider.NodeClassKind
	// Provisioner and Template return the watched object with that name, or nil.
	Provisioner func(name string) *legacy.Provisioner
	Template    func(name string) *legacy.AWSNodeTemplate
	// PoolChanged and ClassChanged are called after each change, like a watch's handlers: one argument is nil if the object is new or gone.
	PoolChanged  func(before, after *karpv1.NodePool)
	ClassChanged func(before, after status.Object)
	// StatusChanged is called after the status or the annotations of the object with that name were kept.
	StatusChanged func(name string)
}

// New returns Objects that holds no pools and classes yet.
func New(p Parts) *Objects {
	return &Objects{parts: p, pools: map[string]*karpv1.NodePool{}, classes: map[string]status.Object{}}
}

// SetLegacy sets what converts the cloud's settings of Provisioners. Call it before anything is derived.
func (d *Objects) SetLegacy(cloud karpenter.LegacyCloud) { d.legacy = cloud }

// Legacy returns what converts the cloud's settings of Provisioners.
func (d *Objects) Legacy() karpenter.LegacyCloud { return d.legacy }

// PoolFor converts a pool, with the pods that the profiles let it serve.
func (d *Objects) PoolFor(np *karpv1.NodePool) *capacity.Pool {
	return d.profiles.PoolFor(np, d.parts.Class.GroupKind())
}

// Selects reports whether a profile selects pools with these labels.
func (d *Objects) Selects(labels map[string]string) bool { return d.profiles.Selects(labels) }

// Pool returns the derived pool with that name, or nil. It must not be changed.
func (d *Objects) Pool(name string) *karpv1.NodePool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.pools[name]
}

// Class returns the derived class with that name, or nil. It must not be changed.
func (d *Objects) Class(name string) status.Object {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.classes[name]
}

// Makes reports whether objects of the kind can be derived.
func (d *Objects) Makes(k karpenter.CustomKind) bool {
	return k.Kind == karpenter.NodePools.Kind || k.Kind == d.parts.Class.Kind
}

// Object returns the derived object of that kind and name. It must not be changed.
func (d *Objects) Object(k karpenter.CustomKind, name string) (client.Object, bool) {
	switch k.Kind {
	case karpenter.NodePools.Kind:
		np := d.Pool(name)
		return np, np != nil
	case d.parts.Class.Kind:
		nc := d.Class(name)
		return nc, nc != nil
	}
	return nil, false
}

// All returns all derived objects of a kind. They are shared and must not be changed.
func (d *Objects) All(k karpenter.CustomKind) []client.Object {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []client.Object
	switch k.Kind {
	case karpenter.NodePools.Kind:
		for _, name := range slices.Sorted(maps.Keys(d.pools)) {
			out = append(out, d.pools[name])
		}
	case d.parts.Class.Kind:
		for _, name := range slices.Sorted(maps.Keys(d.classes)) {
			out = append(out, d.classes[name])
		}
	}
	return out
}

// putPool replaces or removes (nil) a derived pool and calls the callbacks. The caller holds deriving. The status of the previous
// version is kept.
func (d *Objects) putPool(name string, np *karpv1.NodePool) {
	before := d.Pool(name)
	if np != nil {
		karpenter.PoolStamp(np).Put(np.Annotations)
		np.Generation = 1
		if before != nil && before.UID == np.UID {
			np.Status = *before.Status.DeepCopy()
			np.Generation = before.Generation
			if !equality.Semantic.DeepEqual(before.Spec, np.Spec) || karpenter.Malformed(before) != karpenter.Malformed(np) {
				np.Generation++
			}
		}
	}
	d.keepPool(name, np)
	if before != nil || np != nil {
		d.parts.PoolChanged(before, np)
	}
}

func (d *Objects) keepPool(name string, np *karpv1.NodePool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if np == nil {
		delete(d.pools, name)
	} else {
		d.pools[name] = np
	}
}

// putClass replaces or removes (nil) a derived class and calls the callbacks. The caller holds deriving. The status of the previous version is
// kept.
func (d *Objects) putClass(name string, nc status.Object) {
	before := d.Class(name)
	if nc != nil {
		nc.SetGeneration(1)
		if before != nil && before.GetUID() == nc.GetUID() {
			part(nc, "Status").Set(part(copyOf(before), "Status"))
			nc.SetGeneration(before.GetGeneration())
			if !equality.Semantic.DeepEqual(part(before, "Spec").Interface(), part(nc, "Spec").Interface()) ||
				before.GetAnnotations()[objects.AnnotationLaunchTemplate] != nc.GetAnnotations()[objects.AnnotationLaunchTemplate] {
				nc.SetGeneration(before.GetGeneration() + 1)
			}
		}
	}
	d.keepClass(name, nc)
	if before != nil || nc != nil {
		d.parts.ClassChanged(before, nc)
	}
}

// part returns the spec or the status of a node class.
func part(nc status.Object, field string) reflect.Value {
	return reflect.ValueOf(nc).Elem().FieldByName(field)
}

func (d *Objects) keepClass(name string, nc status.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if nc == nil {
		delete(d.classes, name)
	} else {
		d.classes[name] = nc
	}
}

func copyOf(nc status.Object) status.Object { return nc.DeepCopyObject().(status.Object) }
