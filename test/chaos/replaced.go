package chaos

import (
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// replacedUnseen is a pod that is gone and there again under its name while no watch is open: when the product lists pods again,
// it is one change of one pod, whose UID is another.
const replacedUnseen = "API server: pod replaced under its name, seen as one change"

// relistWithin is how long it takes at most to list pods again. When another leader binds the new pod meanwhile, kube-scheduler sees a pod
// on another node than before, and exits (Cache.UpdatePod): that isn't for us to judge.
const relistWithin = 2 * time.Minute

// replace does it to some pods, as somebody does who deletes StatefulSets' pods by force. Their controller is faster than the watch.
func (h *history) replace(r *rand.Rand) string {
	byName := map[string]*app{}
	for _, a := range h.apps {
		byName[a.name] = a
	}
	var some []*corev1.Pod
	for _, p := range h.check.last.podsInOrder() {
		if byName[p.Labels[appLabel]] != nil && p.DeletionTimestamp == nil && p.Annotations[karpv1.DoNotDisruptAnnotationKey] == "" {
			some = append(some, p)
		}
	}
	if len(some) == 0 || len(h.running) != 1 || time.Since(h.together) < relistWithin {
		return ""
	}
	h.replaced = time.Now()
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
		p.kube.Cut() // what was on its way is lost
	}
	return what
}

// blinds keeps all that happens now from open watches.
func (f *faults) blinds(b bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blind = b
}
