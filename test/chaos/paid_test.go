package chaos

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Two nodes of $1/h with one pod each: an eviction costs ten minutes of a dollar, so that six are paid for after half an hour, and a seventh isn't.
func TestPaid(t *testing.T) {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}}
	labels := map[string]string{karpv1.NodePoolLabelKey: "pool"}
	m := &moment{at: time.Unix(0, 0), view: &view{claims: map[string]*karpv1.NodeClaim{}, nodes: map[string]*corev1.Node{}, live: map[string]bool{}}}
	m.pods = map[types.UID]*corev1.Pod{}
	for _, name := range []string{"a", "b"} {
		in := ec2.Instance{ID: name, Zone: "z", Price: 1}
		m.instances = append(m.instances, in)
		m.live[providerID(in)] = true
		m.claims[name] = &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: karpv1.NodeClaimStatus{ProviderID: providerID(in), NodeName: name}}
		m.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		m.pods[types.UID(name)] = &corev1.Pod{Spec: corev1.PodSpec{NodeName: name}}
	}
	e := newEmptyings(nil, nil, nil)
	e.paid.bills(m, 0)
	m.at = m.at.Add(30 * time.Minute)
	e.paid.bills(m, 0)
	if got := e.paid.billed["pool"]; got < 0.999 || got > 1.001 {
		t.Errorf("two nodes of $1/h have cost $%v in half an hour", got)
	}
	voluntary := func(string) bool { return true }
	for i := range 7 {
		on := []*corev1.Pod{m.pods["a"]}
		r := &emptied{claim: string(rune('a' + i)), pool: "pool", at: m.at, cost: m.restarts(pool, on), billed: e.paid.billed["pool"] * (1 + 1e-9)}
		e.nodes[r.claim] = r
		if text, want := e.unpaid(r, voluntary), i == 6; (text != "") != want {
			t.Errorf("after %d evictions: %q", i+1, text)
		}
	}
	if got := m.restarts(&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Annotations: map[string]string{restartCost: "0s"}}}, []*corev1.Pod{m.pods["a"]}); got != 0 {
		t.Errorf("where moves cost nothing, one costs $%v", got)
	}
}
