package chaos

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// replacedUnseen: a pod is deleted and created again under its name while no watch is open. When the product lists pods again, it sees
// this as one change of a pod that now has another UID.
const replacedUnseen = "API server: pod replaced under its name, seen as one change"

// replace replaces some waiting pods, like a user who force-deletes pods of StatefulSets. Their controller is faster than the watch.
// It leaves out pods that have a node: kube-scheduler 1.36 believes that such a pod has moved, and exits (Cache.UpdatePod).
func (h *history) replace(r *rand.Rand) string {
	byName := map[string]*app{}
	for _, a := range h.apps {
		byName[a.name] = a
	}
	var some []*corev1.Pod
	for _, p := range h.check.last.podsInOrder() {
		if now, err := h.kube.CoreV1().Pods(namespace).Get(h.ctx, p.Name, metav1.GetOptions{}); err != nil || now.UID != p.UID || now.Spec.NodeName != "" {
			continue
		}
		if byName[p.Labels[appLabel]] != nil && p.DeletionTimestamp == nil && p.Annotations[karpv1.DoNotDisruptAnnotationKey] == "" {
			some = append(some, p)
		}
	}
	if len(some) == 0 || len(h.running) == 0 {
		return ""
	}
	h.faults.blinds(true)
	what := ""
	for range 1 + r.IntN(3) {
		p := some[r.IntN(len(some))]
		h.check.deletes(p.UID)
		if h.kube.CoreV1().Pods(namespace).Delete(h.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}) != nil {
			continue
		}
		if h.makePodNamed(h.ctx, byName[p.Labels[appLabel]], p.Name) == nil {
			h.faults.injected(replacedUnseen)
			what += " " + p.Name
		}
	}
	h.api.Expire()
	h.faults.blinds(false)
	for _, p := range h.running {
		p.kube.Cut() // events in flight are lost
	}
	return what
}

// blinds hides everything that happens from now on from open watches.
func (f *faults) blinds(b bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blind = b
}
