package derived

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// DeriveProvisioner derives the pool and class of the Provisioner with that name. If the Provisioner has been deleted, they are
// removed. If it can't be understood, the pool carries the error and the class stays unchanged: existing nodes may still need it.
func (d *Objects) DeriveProvisioner(name string) {
	d.deriving.Lock()
	defer d.deriving.Unlock()
	p, own := d.parts.Provisioner(name), karpenter.PoolOfProvisioner(name)
	if p == nil {
		d.putPool(own, nil)
		d.putClass(own, nil)
		return
	}
	var t *legacy.AWSNodeTemplate
	if p.Spec.ProviderRef != nil {
		t = d.parts.Template(p.Spec.ProviderRef.Name)
	}
	np, nc, errs := karpenter.FromProvisioner(p, t, d.legacy)
	if len(errs) > 0 {
		np, nc = &karpv1.NodePool{}, nil
		np.Name, np.Labels = own, maps.Clone(p.Labels)
		np.Annotations = map[string]string{objects.AnnotationOrigin: p.Name, objects.AnnotationMalformed: karpenter.JoinErrors(errs)}
	}
	if nc != nil {
		identify(nc, p)
		d.putClass(own, nc)
	}
	identify(np, p)
	for _, key := range []string{objects.AnnotationGuard, objects.AnnotationRetry, objects.AnnotationMaxDollarsPerHour, objects.AnnotationZoneBalance} { // as on a pool of its own
		if v, ok := p.Annotations[key]; ok {
			np.Annotations[key] = v
		}
	}
	d.putPool(own, np)
}

// identify gives a derived object the identity of its origin.
func identify(o, from metav1.Object) {
	o.SetUID(from.GetUID())
	o.SetCreationTimestamp(from.GetCreationTimestamp())
	o.SetDeletionTimestamp(from.GetDeletionTimestamp())
}
