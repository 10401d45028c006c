package derived

import (
	"errors"
	"maps"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// PutStatus stores the status and annotations of changed, a derived object, in memory, because there is no API object for it. base is the object as
// the caller read it. If the object's spec has changed since then, nothing is stored: that change has already queued the object again. If its
// status has changed since then, the error is a conflict, as it would be from the API server. If base is nil, only the annotations are stored.
func (d *Objects) PutStatus(base, changed client.Object) error {
	d.deriving.Lock()
	defer d.deriving.Unlock()
	name := changed.GetName()
	switch o := changed.(type) {
	case *karpv1.NodePool:
		before := d.Pool(name)
		if before == nil || before.UID != o.UID || before.Generation != o.Generation {
			return nil
		}
		after := before.DeepCopy()
		if base != nil {
			if !equality.Semantic.DeepEqual(before.Status, base.(*karpv1.NodePool).Status) {
				return outdated(karpenter.NodePools, name)
			}
			after.Status = *o.Status.DeepCopy()
		}
		maps.Copy(after.Annotations, o.Annotations)
		d.keepPool(name, after)
		d.parts.PoolChanged(before, after)
	case status.Object:
		before := d.Class(name)
		if before == nil || before.GetUID() != o.GetUID() || before.GetGeneration() != o.GetGeneration() {
			return nil
		}
		after := copyOf(before)
		if base != nil {
			if !equality.Semantic.DeepEqual(part(before, "Status").Interface(), part(base.(status.Object), "Status").Interface()) {
				return outdated(karpenter.NodeClasses(d.parts.Class), name)
			}
			part(after, "Status").Set(part(copyOf(o), "Status"))
		}
		maps.Copy(after.GetAnnotations(), o.GetAnnotations())
		d.keepClass(name, after)
		d.parts.ClassChanged(before, after)
	}
	d.parts.StatusChanged(name)
	return nil
}

// Stamp keeps the annotations of a derived object. Its status may be older than the one kept, and is ignored.
func (d *Objects) Stamp(stamped client.Object) { _ = d.PutStatus(nil, stamped) }

func outdated(kind karpenter.CustomKind, name string) error {
	return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Resource}, name, errors.New("its status has changed"))
}
