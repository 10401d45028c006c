package launch

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	listersv1 "k8s.io/client-go/listers/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// reconcileAtOnce is how many of the remembered pods are compared with the informer's each second: few enough for a fraction of a
// millisecond under a lock, enough for 100,000 pods in some minutes.
const reconcileAtOnce = 500

// CompareWith gives the pods as the informer has them. To be called before the motor runs.
func (p *Pending) CompareWith(lister listersv1.PodLister) { p.lister = lister }

// reconcile compares some of the pods that Pending, Classes and the ledger remember, others each time, with those that exist. A pod that
// was forgotten by nobody is demand for ever, and its room is kept for ever; a cycle that ends after its pod has gone asks for its class
// once more, which nobody would forget. The informer has a pod before its handlers hear of it, and
// loses it before they do: nothing is forgotten too early, and what they say afterwards changes nothing any more.
func (p *Pending) reconcile() {
	if p.lister == nil {
		return
	}
	refs := append(p.some(reconcileAtOnce), p.classes.some(reconcileAtOnce)...)
	if !p.reservations.Idle() {
		p.reservations.read(func(l *ledger.Ledger) { refs = append(refs, l.Some(reconcileAtOnce)...) })
	}
	for _, ref := range refs {
		pod, err := p.lister.Pods(ref.Namespace).Get(ref.Name)
		switch {
		case apierrors.IsNotFound(err), err == nil && pod.UID != ref.UID:
			p.forget(ref.UID, true, func(l *ledger.Ledger) { l.Gone(ref.UID) })
		case err != nil:
		case pod.Spec.NodeName != "":
			p.drop(pod, true, func(l *ledger.Ledger) { l.Bound(ref.UID) })
		case pod.DeletionTimestamp != nil || objects.Ended(pod):
			p.drop(pod, true, func(l *ledger.Ledger) { l.Gone(ref.UID) })
		}
	}
}

// some are up to n of the unscheduled pods, others each time.
func (p *Pending) some(n int) []capacity.PodRef {
	p.mu.Lock()
	defer p.mu.Unlock()
	return some(p.pods, n, func(a arrival) capacity.PodRef { return refOf(a.pod) })
}
