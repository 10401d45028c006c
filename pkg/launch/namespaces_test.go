package launch

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
)

func namespace(name string, set labels.Set) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
}

// someGangs knows every group, with two members.
type someGangs struct{}

func (someGangs) Min(pending.Group) (int, bool) { return 2, true }

// Pods of other namespaces cause no launch, however they became demand.
func TestOnlySelectedNamespacesAreDemand(t *testing.T) {
	w := newWorld(t)
	w.selector = labels.SelectorFromSet(labels.Set{"nodes": "yes"})
	w.others = []string{"theirs"}
	w.gangs = someGangs{}
	w.build()
	for _, ns := range []*corev1.Namespace{namespace("yes", labels.Set{"nodes": "yes"}), namespace("no", labels.Set{"nodes": "no"}), namespace("bare", nil)} {
		if err := w.namespaces.Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	why := map[string]string{
		"no":      `no node may be launched for pods of namespace "no": namespaceSelector of ProvisionArgs (nodes=yes) doesn't select it`,
		"bare":    `no node may be launched for pods of namespace "bare": namespaceSelector of ProvisionArgs (nodes=yes) doesn't select it`,
		"unknown": `no node may be launched for pods of namespace "unknown", of which nothing is known yet: namespaceSelector of ProvisionArgs is nodes=yes`,
	}
	want := map[string]bool{} // pods that are planned for
	for _, ns := range []string{"yes", "no", "bare", "unknown"} {
		for _, kind := range []string{"plain", "sibling", "member", "other"} { // a sibling has had no scheduling cycle of its own
			pod := w.pod(0)
			pod.Namespace, pod.Name, pod.UID = ns, kind, types.UID(ns+"/"+kind)
			switch kind {
			case "member":
				pod.Labels = map[string]string{pending.LabelGroup: "g"}
			case "other":
				pod.Spec.SchedulerName = "theirs"
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			}
			w.pending.Handler().OnAdd(pod, false)
			if class, err := w.pending.Classes.Class(pod); err != nil {
				t.Fatal(err)
			} else if kind == "plain" || kind == "member" {
				w.reservations.Submit(capacity.RefOf(pod), class)
			}
			want[ns+"/"+kind] = ns == "yes"
		}
	}
	waiting, gangs := w.parts.demand.Gatherer.Gather(t.Context())
	got := map[string]bool{}
	for uid := range want {
		got[uid] = false
	}
	for _, p := range waiting {
		got[string(p.Ref.UID)] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("demand (-want +got):\n%s", diff)
	}
	if len(gangs) != 1 || gangs[pending.Group{Namespace: "yes", Name: "g"}] == nil {
		t.Errorf("gangs %v", gangs)
	}
	for uid, planned := range want {
		ns, _, _ := strings.Cut(uid, "/")
		if refused := w.reservations.Refused(types.UID(uid)); refused == planned {
			t.Errorf("%s: refused %v", uid, refused)
		}
		if _, told := w.reservations.Submit(capacity.PodRef{UID: types.UID(uid)}, classFor(t, w, types.UID(uid))); !planned && told != why[ns] {
			t.Errorf("%s is told %q, want %q", uid, told, why[ns])
		}
	}
	for _, note := range w.notes {
		name, said, _ := strings.Cut(note, " FailedProvisioning ")
		if !strings.Contains(said, "namespaceSelector of ProvisionArgs") {
			t.Errorf("%s is told %q", name, note)
		}
	}
	if len(w.notes) != 12 {
		t.Errorf("%d pods are told: %q", len(w.notes), w.notes)
	}
}

func classFor(t *testing.T, w *world, uid types.UID) *capacity.Class {
	t.Helper()
	class, err := w.pending.Classes.Class(w.pending.Get(uid))
	if err != nil {
		t.Fatal(err)
	}
	return class
}

// No capacity is bought for pods of other namespaces whose node has to be replaced.
func TestOnlySelectedNamespacesAreReplaced(t *testing.T) {
	w := newWorld(t)
	w.selector = labels.SelectorFromSet(labels.Set{"nodes": "yes"})
	w.build()
	pod := w.pod(0)
	pod.Spec.NodeName = "n"
	if ready, why := w.parts.Replacements.Replace("n", []*corev1.Pod{pod}, nil); ready || why == nil || !strings.Contains(why.Error(), "pod d/p0: no node may be launched for pods of namespace") {
		t.Errorf("ready %v, %v", ready, why)
	}
	select {
	case <-w.parts.Triggers.Demand():
		t.Error("capacity is to be planned for it")
	default:
	}
}

// Refused pods are planned for at once when their namespace becomes selected, and not when anything else about it changes.
func TestANamespaceThatIsSelectedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.selector = labels.SelectorFromSet(labels.Set{"nodes": "yes"})
		w.run()
		changed := func(before, now *corev1.Namespace) {
			if err := w.namespaces.Update(now); err != nil {
				t.Fatal(err)
			}
			if before == nil {
				w.parts.Namespaces.Namespaces().OnAdd(now, false)
			} else {
				w.parts.Namespaces.Namespaces().OnUpdate(before, now)
			}
		}
		w.submit(8)
		refused := func() bool {
			all := true
			w.reservations.Read(func(l ledger.Reader) {
				for i := range 8 {
					all = all && l.Refused(w.pod(i).UID)
				}
			})
			return all
		}
		w.until("the pods are refused", func() bool { return refused() })
		bare := namespace("d", nil)
		changed(nil, bare)
		no := namespace("d", labels.Set{"nodes": "no"})
		changed(bare, no)
		<-time.After(10 * time.Minute)
		w.mu.Lock()
		if len(w.claims)+len(w.instances) > 0 || !refused() {
			t.Errorf("%d claims, %d instances", len(w.claims), len(w.instances))
		}
		w.mu.Unlock()
		begun := time.Now()
		changed(no, namespace("d", labels.Set{"nodes": "yes"}))
		w.until("the pods are bound", func() bool { return len(w.bound) == 8 })
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("bound after %s", took)
		}
		w.stop()
	})
}
