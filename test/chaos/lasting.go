package chaos

import (
	"math/rand/v2"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

// Faults that last until the end of the storm, and cause launches that fail. Most histories have none of them, or one; in a history
// without one, nothing may be paused.
const (
	nodesDenied   = "lasting: Nodes denied by a webhook"
	noDevices     = "lasting: device plugin never comes"
	refusedByOurs = "lasting: filters refuse nodes as launched"
	freshTainted  = "lasting: fresh nodes tainted NoExecute by an agent"
	// secondProfile causes no launches: its pods are no demand.
	secondProfile = "a second profile without the plugins"
)

var lastingKinds = []string{nodesDenied, noDevices, refusedByOurs, freshTainted}

// gpuApp requests a device.
const gpuApp = "gpu"

// lasting are the lasting faults of a history.
type lasting struct {
	faults map[string]*Fault
	// plain: there are pods of a second profile.
	plain bool
	after time.Duration // into the storm, when they begin
	began time.Time
	// some instances never register, which may happen to one and then to its probe.
	never bool
}

// drawLasting draws no fault for half of all histories; of the others one in four gets two.
func drawLasting(r *rand.Rand) *lasting {
	l := &lasting{faults: map[string]*Fault{}, plain: r.IntN(3) == 0, after: time.Duration(r.Int64N(int64(8 * time.Minute)))}
	if r.IntN(2) == 0 {
		return l
	}
	for range 1 + r.IntN(4)/3 {
		f := &Fault{}
		f.Mend() // not yet
		l.faults[lastingKinds[r.IntN(len(lastingKinds))]] = f
	}
	return l
}

// lasts reports whether a fault of the kind is active.
func (l *lasting) lasts(kind string) bool { return l.faults[kind] != nil && l.faults[kind].Lasts() }

// shape adapts the setting to the faults.
func (l *lasting) shape(s setting, f *faults) setting {
	if len(l.faults) > 0 {
		s.boot.Never = 0 // two causes at once can't be distinguished
	}
	l.never = s.boot.Never > 0
	s.kubelets = func(c *kubelet.Config) {
		c.Fate = func(m ec2.Machine) kubelet.Fate {
			if !l.lasts(noDevices) || len(m.Type.GPUs) == 0 {
				return kubelet.Fate{}
			}
			f.injected(noDevices)
			return kubelet.Fate{NoDevices: true}
		}
	}
	return s
}

// prepare makes the faults begin when it is time.
func (h *history) prepare() {
	for kind, f := range h.lasting.faults {
		f.struck = func() { h.faults.injected(kind) }
		switch kind {
		case nodesDenied:
			h.denyNodes(f)
		case freshTainted:
			h.taintNew(f)
		}
	}
	if h.lasting.plain {
		h.faults.injected(secondProfile)
	}
	h.later(h.lasting.after, func() {
		h.lasting.began = time.Now()
		for _, kind := range lastingKinds {
			if f := h.lasting.faults[kind]; f != nil {
				f.begin(h.lasting.began)
				h.note("%s", kind)
			}
		}
	})
}

// mend ends the faults, and does what a user does then: it sets the retry annotation on pools and classes. The agent removes its
// taints (keepNodes).
func (h *history) mend() {
	if len(h.lasting.faults) == 0 {
		return
	}
	for _, f := range h.lasting.faults {
		f.Mend()
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"dovetail.sh/retry":"calm"}}}`))
	for _, o := range []client.Object{&karpv1.NodePool{}, &ec2nc.EC2NodeClass{}} {
		o.SetName("default")
		if err := h.objects.Patch(h.ctx, o, patch); err != nil {
			h.note("asking for another try: %v", err)
		}
	}
}

// agentCame reports whether the agent that taints new nodes has become ready by now.
func (h *history) agentCame() bool {
	f := h.lasting.faults[freshTainted]
	return f != nil && !f.Lasts()
}

// Refusal is a third-party plugin that refuses nodes, once they have an instance, to pods of an app while it lasts.
type Refusal struct {
	*Fault
	App string
}

// Refuses reports whether the pod is refused on a node.
func (r *Refusal) Refuses(pod *corev1.Pod, node *corev1.Node) bool {
	if !r.Lasts() || pod.Labels[appLabel] != r.App || node.Spec.ProviderID == "" {
		return false
	}
	r.attacks()
	return true
}
