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

// Fault is something that goes wrong for as long as it lasts.
type Fault struct {
	over   atomic.Bool
	struck func()    // is told each time it has an effect; nil: nobody is
	since  time.Time // what is older is spared; zero: nothing
	after  func()    // what it has done and takes back; nil: nothing
}

// begin has one begin that was over before.
func (f *Fault) begin(now time.Time) {
	f.since = now
	f.over.Store(false)
}

func (f *Fault) strikes() {
	if f.struck != nil {
		f.struck()
	}
}

// Mend ends it.
func (f *Fault) Mend() {
	f.over.Store(true)
	if f.after != nil {
		f.after()
	}
}

// Lasts until it is mended.
func (f *Fault) Lasts() bool { return !f.over.Load() }

// DenyNodes has a webhook that refuses every Node, whoever makes it.
func (s *Stage) DenyNodes() *Fault {
	f := &Fault{}
	s.denyNodes(f)
	return f
}

func (w *world) denyNodes(f *Fault) {
	w.api.Admit(func(c *kubeapi.Call, _ *unstructured.Unstructured) error {
		if f.Lasts() && c.Resource.Resource == "nodes" {
			f.strikes()
			return kubeapi.Denied("nodes.policy.example.com", "nodes need the label example.com/owner")
		}
		return nil
	})
}

// agentTaint is what foreign agents put on nodes.
var agentTaint = corev1.Taint{Key: "example.com/agent-not-ready", Effect: corev1.TaintEffectNoExecute}

// TaintNew has an agent that taints each new node NoExecute as soon as it sees it, and is never done with it. When it is mended it takes
// its taint off again.
func (s *Stage) TaintNew() *Fault {
	f := &Fault{after: func() { s.untaintAll(agentTaint.Key) }}
	s.taintNew(f)
	return f
}

func (w *world) taintNew(f *Fault) {
	w.watch(w.factory.Core().V1().Nodes().Informer(), func(obj any) {
		if n := obj.(*corev1.Node); f.Lasts() && !n.CreationTimestamp.Time.Before(f.since) && n.Annotations["example.com/seen"] == "" {
			w.taint(n.Name)
			f.strikes()
		}
	})
}

// TaintBusy has an agent that taints a node so long after a pod of an app got it, or, with running, after it runs there. Nodes of
// which spare is true are left alone.
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

// watch tells of every new and changed object.
func (w *world) watch(i cache.SharedIndexInformer, tell func(any)) {
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, obj any) { tell(obj) }})
	if err != nil {
		panic(enough{"watching: " + err.Error()})
	}
}
