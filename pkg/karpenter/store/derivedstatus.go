package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// setDerivedClassStatus keeps in memory the status that a derived node class was resolved to, because there is no API object to write it to.
func (s *Store) setDerivedClassStatus(of status.Object) error {
	return onConflictAgain(func() error {
		base := s.derived.Class(of.GetName())
		if base == nil || base.GetGeneration() != of.GetGeneration() {
			return nil
		}
		nc := copyOf(base)
		s.resolve(nc, of)
		if equality.Semantic.DeepEqual(base, nc) {
			return nil
		}
		return s.derived.PutStatus(base, nc)
	})
}

// originChanged queues the origin of a derived pool or class for a status update.
func (p *poolStatus) originChanged(name string) {
	o := p.provisionerOf(name)
	if o == nil {
		return
	}
	p.changed(karpenter.Provisioners, o.Name)
	if ref := o.Spec.ProviderRef; ref != nil {
		p.changed(karpenter.NodeTemplates, ref.Name)
	}
}

// provisionerOf returns the Provisioner of a derived pool or class, or nil when there is none.
func (s *Store) provisionerOf(name string) *legacy.Provisioner {
	if np := s.derived.Pool(name); np != nil && strings.HasPrefix(name, karpenter.ProvisionerPrefix) {
		return s.provisioner(np.Annotations[objects.AnnotationOrigin])
	}
	return nil
}

// provisionerStatus copies the status of a Provisioner's pool to the Provisioner.
func (p *poolStatus) provisionerStatus(ctx context.Context, base *legacy.Provisioner) error {
	np := p.derived.Pool(karpenter.PoolOfProvisioner(base.Name))
	if np == nil || len(np.Status.Conditions) == 0 {
		return nil // the pool has no status yet
	}
	if p.contested(np) {
		return nil
	}
	o := base.DeepCopy()
	o.Status.Resources, o.Status.Nodes = np.Status.Resources.DeepCopy(), np.Status.Nodes
	o.Status.Conditions = plainConditions(np.Status.Conditions, base.Generation)
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Reason == karpenter.ReasonMalformed && karpenter.Malformed(base) == "" {
			c.Reason = reasonLegacyInvalid // it can be decoded, but its values make no sense
		}
	}
	return save(ctx, p, base, o, func() (any, any) { return base.Status, o.Status })
}

// plainConditions returns conditions as the API stores them: times in seconds, and with the generation of the object that they are
// copied to.
func plainConditions(of []status.Condition, generation int64) []status.Condition {
	out := slices.Clone(of)
	for i := range out {
		out[i].ObservedGeneration = generation
		out[i].LastTransitionTime = out[i].LastTransitionTime.Rfc3339Copy()
	}
	return out
}

// templateStatus writes to an AWSNodeTemplate whether it can be used and what its selectors select. The cloud is queried for the
// Provisioners that refer to it; all of them get the same answer.
func (p *poolStatus) templateStatus(ctx context.Context, base *legacy.AWSNodeTemplate) error {
	if p.nodeClass.ManagedBy != "" && p.classOfTemplate(base.Name) == nil {
		return nil // another Dovetail selects the Provisioners that refer to the template, and writes its status
	}
	t := base.DeepCopy()
	set := t.StatusConditions(status.WithClock(p.clock))
	if reason := karpenter.Malformed(t); reason != "" {
		set.SetFalse(legacy.ConditionValidationSucceeded, karpenter.ReasonMalformed, shorten(reason))
	} else if errs := p.derived.Legacy().ValidateTemplate(t); len(errs) > 0 {
		set.SetFalse(legacy.ConditionValidationSucceeded, reasonTemplateInvalid, shorten(karpenter.JoinErrors(errs)))
	} else {
		set.SetTrue(legacy.ConditionValidationSucceeded)
	}
	if nc := p.classOfTemplate(t.Name); nc != nil {
		p.derived.Legacy().ShowSelected(t, nc)
		for _, kind := range legacy.TemplateConditions {
			if c := nc.StatusConditions(status.WithObservedOnly()).Get(kind); c != nil {
				set.Set(*c)
			}
		}
	}
	t.Status.Conditions = plainConditions(t.Status.Conditions, base.Generation)
	return save(ctx, p, base, t, func() (any, any) { return base.Status, t.Status })
}

// classOfTemplate returns the class of the first Provisioner that refers to the template, or nil.
func (p *poolStatus) classOfTemplate(name string) status.Object {
	for _, o := range p.derived.All(p.classes.CustomKind) {
		if owner := p.provisionerOf(o.GetName()); owner != nil && refersToTemplate(owner, name) {
			return o.(status.Object)
		}
	}
	return nil
}

// originRecorder records events about derived pools and classes on the objects that they were derived from, because an event can't
// refer to a derived object. Events about pools from arguments are logged.
type originRecorder struct {
	events.EventRecorder
	s *Store
}

// Recorder returns the store's recorder, for other packages that report on pools and classes.
func (s *Store) Recorder() events.EventRecorder { return s.recorder }

// Eventf implements events.EventRecorder.
func (r originRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	about, ok := r.s.origin(regarding)
	if other, known := r.s.origin(related); known {
		related = other
	} else {
		related = nil
	}
	if ok {
		r.EventRecorder.Eventf(about, related, kind, reason, action, note, args...)
		return
	}
	level := 3
	if kind == corev1.EventTypeWarning {
		level = 0
	}
	klog.Background().V(level).Info("Event about a part of the configuration", "name", regarding.(client.Object).GetName(),
		"reason", reason, "note", fmt.Sprintf(note, args...))
}

// origin returns the object that represents o in the API: o itself, the Provisioner it was derived from, or none.
func (s *Store) origin(o runtime.Object) (runtime.Object, bool) {
	named, ok := o.(client.Object)
	if !ok || !karpenter.Derived(named.GetName()) {
		return o, o != nil
	}
	if p := s.provisionerOf(named.GetName()); p != nil {
		return p, true
	}
	return nil, false
}
