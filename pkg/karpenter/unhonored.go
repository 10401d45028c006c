package karpenter

import (
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// UnhonoredBy returns which fields of np have no effect. lost names a field by whose missing effect the user loses something, with what happens
// instead; idle names a field whose missing effect does no harm, with the reason. Each is empty if there is no such field.
func UnhonoredBy(np *karpv1.NodePool) (lost, idle string) {
	if d := np.Spec.Template.Spec.ExpireAfter.Duration; d != nil && *d == 0 {
		lost = "no effect: spec.template.spec.expireAfter (zero would terminate nodes as soon as they exist: they do not expire)"
	}
	if setting := np.Annotations[objects.AnnotationUnhonored]; setting != "" && Derived(np.Name) {
		idle = "without effect, which is harmless: " + setting
	}
	return lost, idle
}
