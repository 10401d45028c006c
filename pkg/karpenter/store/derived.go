package store

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// sources holds the pools and classes that have no API object of their own: those derived from Provisioners and
// those from profiles' arguments. They live in memory, and Pools, Client, the callbacks and the status code treat them like objects.
// What would be written to their status is kept here (statusOfDerived).
//
//	Provisioner or AWSNodeTemplate seen, or arguments read -> derived -> callbacks called as for a watched object -> status kept -> removed
//
// Lock order: deriving, then mu, then Store.mu. Callbacks run under deriving, so that they are called in the order of derivations; no
// callback may derive anything.
type sources struct {
	// class is the kind of the classes.
	class cloudprovider.NodeClassKind
	// Set before Run and only read afterwards.
	legacy   karpenter.LegacyCloud
	profiles karpenter.Profiles

	deriving sync.Mutex

	mu      sync.RWMutex
	pools   map[string]*karpv1.NodePool
	classes map[string]status.Object
}

func newSources(class cloudprovider.NodeClassKind) *sources {
	return &sources{class: class, pools: map[string]*karpv1.NodePool{}, classes: map[string]status.Object{}}
}

// SetLegacy sets what converts the cloud's settings of Provisioners. Call it before Run.
func (s *Store) SetLegacy(cloud karpenter.LegacyCloud) { s.made.legacy = cloud }

func (m *sources) pool(name string) *karpv1.NodePool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.pools[name]
}

func (m *sources) classObject(name string) status.Object {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.classes[name]
}

func (m *sources) makes(k karpenter.CustomKind) bool {
	return k.Kind == karpenter.NodePools.Kind || k.Kind == m.class.Kind
}

func (m *sources) object(k karpenter.CustomKind, name string) (client.Object, bool) {
	switch k.Kind {
	case karpenter.NodePools.Kind:
		np := m.pool(name)
		return np, np != nil
	case m.class.Kind:
		nc := m.classObject(name)
		return nc, nc != nil
	}
	return nil, false
}

// objects returns all derived objects of a kind. They are shared and must not be changed.
func (m *sources) objects(k karpenter.CustomKind) []client.Object {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []client.Object
	switch k.Kind {
	case karpenter.NodePools.Kind:
		for _, name := range slices.Sorted(maps.Keys(m.pools)) {
			out = append(out, m.pools[name])
		}
	case m.class.Kind:
		for _, name := range slices.Sorted(maps.Keys(m.classes)) {
			out = append(out, m.classes[name])
		}
	}
	return out
}

func (s *Store) provisionerChanged(before, after *legacy.Provisioner) {
	name := ""
	if after != nil {
		name = after.Name
	} else {
		name = before.Name
	}
	s.deriveProvisioner(name)
	s.status.changed(karpenter.Provisioners, name) // its own status may have been changed, too
}

// templateChanged derives the pools and classes of all Provisioners that refer to the template again.
func (s *Store) templateChanged(before, after *legacy.AWSNodeTemplate) {
	name := ""
	if after != nil {
		name = after.Name
		s.status.changed(karpenter.NodeTemplates, name)
	} else {
		name = before.Name
	}
	for _, o := range s.provisioners.GetStore().List() {
		if p := o.(*legacy.Provisioner); refersToTemplate(p, name) {
			s.deriveProvisioner(p.Name)
		}
	}
}

func refersToTemplate(p *legacy.Provisioner, name string) bool {
	return p.Spec.Provider == nil && p.Spec.ProviderRef != nil && p.Spec.ProviderRef.Name == name
}

// provisioner and template return the object with that name, or nil. The object must not be changed.
func (s *Store) provisioner(name string) *legacy.Provisioner {
	if o, ok, _ := s.provisioners.GetStore().GetByKey(name); ok {
		return o.(*legacy.Provisioner)
	}
	return nil
}

func (s *Store) template(name string) *legacy.AWSNodeTemplate {
	if o, ok, _ := s.templates.GetStore().GetByKey(name); ok {
		return o.(*legacy.AWSNodeTemplate)
	}
	return nil
}

// deriveProvisioner derives the pool and class of the Provisioner with that name. If the Provisioner has been deleted, they are
// removed. If it can't be understood, the pool carries the error and the class stays unchanged: existing nodes may still need it.
func (s *Store) deriveProvisioner(name string) {
	s.made.deriving.Lock()
	defer s.made.deriving.Unlock()
	p, own := s.provisioner(name), karpenter.PoolOfProvisioner(name)
	if p == nil {
		s.putPool(own, nil)
		s.putClass(own, nil)
		return
	}
	var t *legacy.AWSNodeTemplate
	if p.Spec.ProviderRef != nil {
		t = s.template(p.Spec.ProviderRef.Name)
	}
	np, nc, errs := karpenter.FromProvisioner(p, t, s.made.legacy)
	if len(errs) > 0 {
		np, nc = &karpv1.NodePool{}, nil
		np.Name, np.Labels = own, maps.Clone(p.Labels)
		np.Annotations = map[string]string{objects.AnnotationOrigin: p.Name, objects.AnnotationMalformed: karpenter.JoinErrors(errs)}
	}
	if nc != nil {
		identify(nc, p)
		s.putClass(own, nc)
	}
	identify(np, p)
	for _, key := range []string{objects.AnnotationGuard, objects.AnnotationRetry, objects.AnnotationMaxDollarsPerHour} { // as on a pool of its own
		if v, ok := p.Annotations[key]; ok {
			np.Annotations[key] = v
		}
	}
	s.putPool(own, np)
}

// identify gives a derived object the identity of its origin.
func identify(o, from metav1.Object) {
	o.SetUID(from.GetUID())
	o.SetCreationTimestamp(from.GetCreationTimestamp())
	o.SetDeletionTimestamp(from.GetDeletionTimestamp())
}

// putPool replaces or removes (nil) a derived pool and calls the callbacks. The caller holds deriving. The status of the previous
// version is kept.
func (s *Store) putPool(name string, np *karpv1.NodePool) {
	before := s.made.pool(name)
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
	s.keepPool(name, np)
	if before != nil || np != nil {
		s.poolChanged(before, np)
	}
}

func (s *Store) keepPool(name string, np *karpv1.NodePool) {
	s.made.mu.Lock()
	defer s.made.mu.Unlock()
	if np == nil {
		delete(s.made.pools, name)
	} else {
		s.made.pools[name] = np
	}
}

// putClass is putPool for classes.
func (s *Store) putClass(name string, nc status.Object) {
	before := s.made.classObject(name)
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
	s.keepClass(name, nc)
	if before != nil || nc != nil {
		s.classChanged(before, nc)
	}
}

// part returns the spec or the status of a node class.
func part(nc status.Object, field string) reflect.Value {
	return reflect.ValueOf(nc).Elem().FieldByName(field)
}

func (s *Store) keepClass(name string, nc status.Object) {
	s.made.mu.Lock()
	defer s.made.mu.Unlock()
	if nc == nil {
		delete(s.made.classes, name)
	} else {
		s.made.classes[name] = nc
	}
}
