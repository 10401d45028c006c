package clustermetrics

import (
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

// Kinds of binding, by how far a pod's node was then.
const (
	bindExisting    = "existing"    // the node is older than the pod
	bindEarly       = "early"       // the node was booting
	bindRegistered  = "registered"  // its kubelet had registered
	bindInitialized = "initialized" // it was initialized
)

var podWait = metrics.NewHistogramVec(&metrics.HistogramOpts{
	Namespace: "dovetail", Name: "pod_wait_seconds",
	Help: "Time from a pod's creation until it is bound, by how far its node was then: existing (older than the pod), early (booting), registered, initialized; " +
		"other nodes (of no pool) count as existing.",
	StabilityLevel: metrics.ALPHA, Buckets: metrics.ExponentialBuckets(0.05, 2, 15),
}, []string{"bind"})

func init() {
	legacyregistry.MustRegister(podWait)
	for _, bind := range []string{bindExisting, bindEarly, bindRegistered, bindInitialized} {
		podWait.WithLabelValues(bind)
	}
}

// justCreated: a pod that is at most this old when it is first seen counts as created now. Creation timestamps are whole seconds, so for a pod that was
// created a moment ago the time at which it was seen is closer to the truth.
const justCreated = 2 * time.Second

// Pods measures how long pods take to be bound and to be Ready. Only pods that it has seen waiting while this process leads are measured:
//
//	Pending, unbound -> bound: bound -> Ready, ended or gone: forgotten
type Pods struct {
	nodes   corelisters.NodeLister
	clock   clock.PassiveClock
	leading atomic.Bool
	// pending are the pods that aren't Ready yet. Only the informer's goroutine uses it.
	pending map[types.UID]*pendingPod
}

type pendingPod struct {
	created time.Time
	bound   bool
}

// NewPods returns a value that measures nothing before Lead is called.
func NewPods(nodes corelisters.NodeLister, c clock.PassiveClock) *Pods {
	return &Pods{nodes: nodes, clock: c, pending: map[types.UID]*pendingPod{}}
}

// Lead begins to measure: this process leads.
func (m *Pods) Lead() { m.leading.Store(true) }

// Handler returns the handler for the informer of pods. It asks caches only.
func (m *Pods) Handler() cache.ResourceEventHandler { return observe.Changes(m.changed) }

func (m *Pods) changed(before, now *corev1.Pod) {
	if !m.leading.Load() {
		return
	}
	if now == nil {
		delete(m.pending, before.UID)
		return
	}
	p := m.pending[now.UID]
	if p == nil {
		if now.Status.Phase != corev1.PodPending || now.Spec.NodeName != "" {
			return
		}
		m.pending[now.UID] = &pendingPod{created: m.created(now)}
		return
	}
	if now.Spec.NodeName != "" && !p.bound {
		p.bound = true
		took := m.clock.Since(p.created)
		karpentermetrics.PodBound(took)
		podWait.WithLabelValues(m.bind(now, p)).Observe(took.Seconds())
	}
	switch {
	case now.Status.Phase == corev1.PodSucceeded, now.Status.Phase == corev1.PodFailed:
		delete(m.pending, now.UID)
	case ready(now):
		delete(m.pending, now.UID)
		karpentermetrics.PodStarted(m.clock.Since(p.created))
	}
}

// created returns when a pod was created.
func (m *Pods) created(p *corev1.Pod) time.Time {
	now := m.clock.Now()
	if since := now.Sub(p.CreationTimestamp.Time); since > justCreated {
		return p.CreationTimestamp.Time
	}
	return now
}

// bind returns how far the pod's node is.
func (m *Pods) bind(pod *corev1.Pod, p *pendingPod) string {
	node, err := m.nodes.Get(pod.Spec.NodeName)
	if err != nil || node.Labels[karpv1.NodePoolLabelKey] == "" || node.CreationTimestamp.Time.Before(p.created.Truncate(time.Second)) && initialized(node) {
		return bindExisting
	}
	switch {
	case initialized(node):
		return bindInitialized
	case node.Labels[karpv1.NodeRegisteredLabelKey] == "true":
		return bindRegistered
	}
	return bindEarly
}

func initialized(n *corev1.Node) bool { return n.Labels[karpv1.NodeInitializedLabelKey] == "true" }
