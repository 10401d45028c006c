package pending

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// reconcileAtOnce is how many remembered pods are compared with the informer's each second: few enough to hold a lock for a fraction of a
// millisecond, enough for 100,000 pods in some minutes.
const reconcileAtOnce = 500

// Reconcile compares some of the pods that Pods, Classes and the ledger remember, different ones on each call, with those that exist. A
// pod whose deletion was missed would be demand for ever and keep its reservation for ever. A scheduling cycle that ends after its pod was
// deleted computes the pod's class once more, and no event would remove it. The informer adds a pod to its store before it calls the
// handlers, and removes it before, too: nothing is forgotten too early, and late handler calls change nothing.
func (p *Pods) Reconcile() {
	if p.cfg.Lister == nil {
		return
	}
	refs := append(p.some(reconcileAtOnce), p.Classes.some(reconcileAtOnce)...)
	if !p.reservations.Idle() {
		p.reservations.Read(func(l ledger.Reader) { refs = append(refs, l.Some(reconcileAtOnce)...) })
	}
	for _, ref := range refs {
		pod, err := p.cfg.Lister.Pods(ref.Namespace).Get(ref.Name)
		switch {
		case apierrors.IsNotFound(err), err == nil && pod.UID != ref.UID:
			p.forget(ref.UID, true, func(l *ledger.Ledger, _ time.Time) { l.Gone(ref.UID) })
		case err != nil:
		case pod.Spec.NodeName != "":
			p.drop(pod, true, func(l *ledger.Ledger, now time.Time) { l.Bound(ref.UID, pod.Spec.NodeName, now) })
		case pod.DeletionTimestamp != nil || objects.Ended(pod):
			p.drop(pod, true, func(l *ledger.Ledger, _ time.Time) { l.Gone(ref.UID) })
		}
	}
}

// some returns up to n of the unscheduled pods, different ones on each call.
func (p *Pods) some(n int) []capacity.PodRef {
	p.mu.Lock()
	defer p.mu.Unlock()
	return some(p.pods, n, func(a arrival) capacity.PodRef { return capacity.RefOf(a.pod) })
}
