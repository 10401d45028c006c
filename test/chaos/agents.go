package chaos

import (
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

const runFor = kubelet.RunFor

// Fault is something that goes wrong until it is mended.
type Fault struct {
	over   atomic.Bool
	struck func()    // called each time it has an effect; may be nil
	since  time.Time // older objects are not affected; zero: all are
	after  func()    // undoes its effects; may be nil
}

// begin starts a fault again that was mended.
func (f *Fault) begin(now time.Time) {
	f.since = now
	f.over.Store(false)
}

func (f *Fault) attacks() {
	if f.struck != nil {
		f.struck()
	}
}

// Mend ends the fault.
func (f *Fault) Mend() {
	f.over.Store(true)
	if f.after != nil {
		f.after()
	}
}

// Lasts reports whether the fault has not been mended.
func (f *Fault) Lasts() bool { return !f.over.Load() }

// DenyNodes adds a webhook that refuses every Node, whoever creates it.
func (s *Stage) DenyNodes() *Fault {
	f := &Fault{}
	s.denyNodes(f)
	return f
}

func (w *world) denyNodes(f *Fault) {
	w.api.Admit(func(c *kubeapi.Call, _ *unstructured.Unstructured) error {
		if f.Lasts() && c.Resource.Resource == "nodes" {
			f.attacks()
			return kubeapi.Denied("nodes.policy.example.com", "nodes need the label example.com/owner")
		}
		return nil
	})
}

// agentTaint is the taint that other controllers' agents put on nodes.
var agentTaint = corev1.Taint{Key: "example.com/agent-not-ready", Effect: corev1.TaintEffectNoExecute}

// TaintNew adds an agent that puts a NoExecute taint on each new node as soon as it sees it, and never removes it. When the fault is
// mended, the taints are removed.
func (s *Stage) TaintNew() *Fault {
	f := &Fault{after: func() { s.untaintAll(agentTaint.Key) }}
	s.taintNew(f)
	return f
}

func (w *world) taintNew(f *Fault) {
	w.watch(w.factory.Core().V1().Nodes().Informer(), func(obj any) {
		if n := obj.(*corev1.Node); f.Lasts() && !n.CreationTimestamp.Time.Before(f.since) && n.Annotations["example.com/seen"] == "" {
			w.taint(n.Name)
			f.attacks()
		}
	})
}

// TaintBusy adds an agent that taints a node this long after it got a pod of an app, or, with running, after the pod runs there. It
// ignores pods for which spare is true.
func (s *Stage) TaintBusy(after time.Duration, running bool, spare func(*corev1.Pod) bool) *Fault {
	f := &Fault{}
	s.watch(s.factory.Core().V1().Pods().Informer(), func(obj any) {
		p := obj.(*corev1.Pod)
		if !f.Lasts() || p.Spec.NodeName == "" || p.DeletionTimestamp != nil || p.Namespace != namespace ||
			running && p.Status.Phase != corev1.PodRunning || spare != nil && spare(p) {
			return
		}
		time.AfterFunc(after, func() {
			if f.Lasts() {
				s.taint(p.Spec.NodeName)
			}
		})
	})
	return f
}

// taint puts the agent's taint on a node, once.
func (w *world) taint(node string) {
	for range 20 {
		n, err := w.kube.CoreV1().Nodes().Get(w.ctx, node, metav1.GetOptions{})
		if err != nil || n.Annotations["example.com/seen"] != "" {
			return
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations["example.com/seen"] = "true"
		n.Spec.Taints = append(n.Spec.Taints, agentTaint)
		if _, err = w.kube.CoreV1().Nodes().Update(w.ctx, n, metav1.UpdateOptions{}); err == nil {
			return
		}
	}
}

// watch calls tell for every new and changed object.
func (w *world) watch(i cache.SharedIndexInformer, tell func(any)) {
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, obj any) { tell(obj) }})
	if err != nil {
		panic(enough{"watching: " + err.Error()})
	}
}
