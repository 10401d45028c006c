package disruption

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
)

// The nodes of a Provisioner are terminated as it says, in the pool that it is converted to.
func TestNodesOfAProvisioner(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec func(*legacy.ProvisionerSpec)
		ends time.Duration // of three empty nodes; 0: never
	}{
		{"ttlSecondsAfterEmpty 30", func(s *legacy.ProvisionerSpec) { s.TTLSecondsAfterEmpty = ptr.To[int64](30) }, 30 * time.Second},
		{"without it and without consolidation nothing ends", func(*legacy.ProvisionerSpec) {}, 0},
		{"consolidation", func(s *legacy.ProvisionerSpec) { s.Consolidation = &legacy.Consolidation{Enabled: ptr.To(true)} }, 15 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &legacy.Provisioner{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			p.Spec.Provider = &legacy.Provider{AWS: legacy.AWS{
				SubnetSelector: map[string]string{"a": "b"}, SecurityGroupSelector: map[string]string{"a": "b"}, InstanceProfile: ptr.To("p"),
			}}
			tc.spec(&p.Spec)
			np, _, errs := karpenter.FromProvisioner(p, nil, nodeclass.Legacy{})
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			w := newWorld(t, np)
			for _, name := range []string{"a", "b", "c"} {
				w.machine(name, func(c *karpv1.NodeClaim, n *corev1.Node) {
					c.Labels[karpv1.NodePoolLabelKey], n.Labels[karpv1.NodePoolLabelKey] = np.Name, np.Name
				})
			}
			due := tc.ends
			if due == 0 {
				due = 24 * time.Hour
			}
			w.clock.Step(due - time.Second)
			w.mustPass()
			if len(w.deleted) > 0 {
				t.Fatalf("%v ended too early", w.deleted)
			}
			w.clock.Step(time.Second)
			w.mustPass()
			if want := map[bool]int{true: 3, false: 0}[tc.ends > 0]; len(w.deleted) != want {
				t.Errorf("%v ended, want %d of three", w.deleted, want)
			}
		})
	}
}
