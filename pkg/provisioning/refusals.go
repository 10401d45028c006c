package provisioning

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Refusals tells pods why nothing is launched for them.
type Refusals struct {
	reservations *reservations.Ledger
	pending      *pending.Pods
	events       Recorder
}

// Refuse tells the pods, and the ledger, why nothing is launched for them. retryable: the reason may go away without a change of the pods.
func (re *Refusals) Refuse(ctx context.Context, uids []types.UID, why string, retryable bool) {
	re.refuseFor(ctx, uids, why, retryable, false)
}

func (re *Refusals) refuseFor(ctx context.Context, uids []types.UID, why string, retryable, soon bool) {
	why = objects.OneLine(why) // it becomes the pods' condition, too
	var news []capacity.PodRef
	re.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		if news = l.Refuse(uids, why, retryable, now); soon {
			l.Await(uids)
		}
	})
	for _, ref := range news {
		if re.pending.Get(ref.UID) != nil {
			re.events.Pod(ref, corev1.EventTypeWarning, "FailedProvisioning", why)
		}
	}
	klog.FromContext(ctx).V(2).Info("Refused demand", "pods", len(uids), "news", len(news), "reason", why, "retryable", retryable)
}

func (re *Refusals) refusePlanned(ctx context.Context, r capacity.Refusal) {
	uids := make([]types.UID, 0, len(r.Pods))
	for _, p := range r.Pods {
		uids = append(uids, p.UID)
	}
	re.refuseFor(ctx, uids, r.Message, r.Retryable, r.Soon)
}

// TellPods records a warning on the pods that are planned on a claim's node, and returns how many there are.
func (re *Refusals) TellPods(claim, reason, note string) int {
	var refs []capacity.PodRef
	re.reservations.Read(func(l ledger.Reader) { refs = l.Refs(claim) })
	for _, ref := range refs {
		re.events.Pod(ref, corev1.EventTypeWarning, reason, note)
	}
	return len(refs)
}
