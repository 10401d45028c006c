package lifecycle

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// The log names a pod as deleted only if this deletion has ended it.
func TestOnlyDeletedPodsAreLogged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(w *world, seen *corev1.Pod)
		logged bool
		fails  bool
	}{
		{name: "a pod that is there", change: func(*world, *corev1.Pod) {}, logged: true},
		{name: "a pod that is gone", change: func(w *world, p *corev1.Pod) {
			if err := w.objects.Delete(podsResource, p.Namespace, p.Name); err != nil {
				w.t.Fatal(err)
			}
		}},
		{name: "a pod whose name another one has now", change: func(_ *world, p *corev1.Pod) { p.UID = "uid-of-the-first" }},
		{name: "a deletion that fails", change: func(w *world, _ *corev1.Pod) {
			w.kube.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("timeout") })
		}, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pod("web", "ip-10-0-0-1")
			seen := w.podsLeft()[0].DeepCopy()
			tt.change(w, seen)
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(3), ktesting.BufferLogs(true)))
			b := &boundPods{kube: w.kube}
			if err := b.killOne(klog.NewContext(w.ctx, logger), seen, "ip-10-0-0-1"); (err != nil) != tt.fails {
				t.Errorf("error %v, want one: %v", err, tt.fails)
			}
			said := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			if got := strings.Contains(said, "Deleted a pod"); got != tt.logged {
				t.Errorf("logged as deleted: %v, want %v:\n%s", got, tt.logged, said)
			}
		})
	}
}
