package lifecycle

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func (w *world) pool(consolidateAfter string, change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	w.t.Helper()
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration(consolidateAfter)
	for _, f := range change {
		f(p)
	}
	if err := w.claims.Create(w.ctx, p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) consolidatable() bool {
	return conditionTrue(w.claim("a"), karpv1.ConditionTypeConsolidatable)
}

// The condition becomes true when the node has been quiet for long enough, and is cleared with the next pod event.
func TestConsolidatable(t *testing.T) {
	w := newWorld(t)
	w.pool("30s")
	w.up("a")
	if wait := w.step(); w.consolidatable() || wait > 30*time.Second {
		t.Fatalf("consolidatable at once, or not to be looked at again in time (%s)", wait)
	}
	w.clock.Step(30 * time.Second)
	w.step()
	if !w.consolidatable() {
		t.Fatal("not consolidatable though it was quiet for 30 s")
	}
	bound := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: w.claim("a").Status.NodeName}}
	w.c.watcher.podChanged(nil, bound)
	w.step()
	if w.consolidatable() {
		t.Error("still consolidatable though a pod has come")
	}
	w.pass(29*time.Second, time.Second)
	if w.consolidatable() {
		t.Error("consolidatable too soon")
	}
	w.pass(time.Second, time.Second)
	if !w.consolidatable() {
		t.Error("not consolidatable again")
	}
}

// A series of events never lets it flicker.
func TestConsolidatableOfABusyNode(t *testing.T) {
	w := newWorld(t)
	w.pool("5s") // shorter than the pause between writes of pod events
	w.up("a")
	bound := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: w.claim("a").Status.NodeName}}
	for i := range 60 {
		w.c.watcher.podChanged(nil, bound)
		w.step()
		w.clock.Step(time.Second)
		if w.step(); w.consolidatable() {
			t.Fatalf("consolidatable in second %d although a pod comes every second", i)
		}
	}
	w.pass(5*time.Second, time.Second)
	if w.pass(podEventEvery, time.Second); !w.consolidatable() {
		t.Error("not consolidatable though it has become quiet")
	}
}

func TestNotConsolidatable(t *testing.T) {
	for name, setup := range map[string]func(w *world){
		"consolidateAfter Never": func(w *world) { w.pool("Never") },
		"a static pool":          func(w *world) { w.pool("0s", func(p *karpv1.NodePool) { p.Spec.Replicas = new(int64(1)) }) },
		"no pool":                func(*world) {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			setup(w)
			w.up("a")
			w.clock.Step(time.Hour)
			if w.step(); w.consolidatable() {
				t.Error("consolidatable")
			}
		})
	}
	t.Run("any more, when the pool says Never", func(t *testing.T) {
		w := newWorld(t)
		p := w.pool("0s")
		w.up("a")
		if w.step(); !w.consolidatable() {
			t.Fatal("not consolidatable at once with 0s")
		}
		p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
		if err := w.claims.Update(w.ctx, p); err != nil {
			t.Fatal(err)
		}
		if w.step(); w.consolidatable() {
			t.Error("still consolidatable")
		}
	})
}

// With many claims each is written less often, so that all together stay below podEventRate.
func TestPodEventsOfManyNodes(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	for i := range 50 * podEventRate {
		w.c.index.observe(&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("other-", i)}})
	}
	bound := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: w.claim("a").Status.NodeName}}
	writes, last := 0, time.Time{}
	for range 200 {
		w.clock.Step(time.Second)
		w.c.watcher.podChanged(nil, bound)
		w.step()
		if at := w.claim("a").Status.LastPodEventTime.Time; !at.Equal(last) {
			writes, last = writes+1, at
		}
	}
	if writes < 3 || writes > 4 {
		t.Errorf("%d writes in 200 s with %d claims", writes, w.c.index.size())
	}
	if w.c.LastPodEvent(w.claim("a").Status.NodeName) != w.clock.Now().Truncate(time.Second) {
		t.Error("whoever ends nodes doesn't know of the last event")
	}
}

// A registration that could not be recorded is repeated, and counted once.
func TestRegistrationIsCountedOnce(t *testing.T) {
	w := newWorld(t)
	counted := grown(t, "karpenter_nodes_created_total")
	claim, inst := w.launched("a")
	w.createNode(nodeFor(claim, *inst))
	w.kubelet(inst.NodeName)
	w.sync()
	for range 3 {
		l := &life{claim: w.claim("a"), match: w.c.nodes.match(w.claim("a")), now: w.clock.Now(), clock: w.clock}
		if _, err := w.c.alive[0].reconcile(w.ctx, l); err != nil {
			t.Fatal(err)
		}
	}
	w.step()
	w.changeNode(inst.NodeName, func(n *corev1.Node) { delete(n.Labels, karpv1.NodeRegisteredLabelKey) }) // its kubelet created it anew
	w.step()
	if got := counted()["karpenter_nodes_created_total"]; got != 1 {
		t.Errorf("counted %v times", got)
	}
}
