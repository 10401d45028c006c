package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

var claimsResource = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}

// audience watches the cluster through the API server and records when each pod was first seen, bound and running.
type audience struct {
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
	claims cache.GenericLister

	mu    sync.Mutex
	lives map[types.UID]*life
}

// life holds the times of one pod, by the demo's clock. Zero: not yet.
type life struct {
	app                  string
	seen, bound, running time.Time
}

// newAudience starts to watch; leave stops it and waits until the watches have stopped.
func newAudience(ctx context.Context, config *rest.Config) (a *audience, leave func(), err error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("watching the cluster: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("watching the cluster: %w", err)
	}
	factory := informers.NewSharedInformerFactory(clientset, 0)
	custom := dynamicinformer.NewDynamicSharedInformerFactory(dynamicClient, 0)
	a = &audience{
		pods:   factory.Core().V1().Pods().Lister(),
		nodes:  factory.Core().V1().Nodes().Lister(),
		claims: custom.ForResource(claimsResource).Lister(),
		lives:  map[types.UID]*life{},
	}
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { a.see(o.(*corev1.Pod), time.Now()) },
		UpdateFunc: func(_, o any) { a.see(o.(*corev1.Pod), time.Now()) },
	}); err != nil {
		return nil, nil, fmt.Errorf("watching pods: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	leave = func() {
		cancel()
		factory.Shutdown()
		custom.Shutdown()
	}
	factory.Start(ctx.Done())
	custom.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	custom.WaitForCacheSync(ctx.Done())
	return a, leave, nil
}

func (a *audience) see(pod *corev1.Pod, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lives[pod.UID]
	if l == nil {
		l = &life{app: pod.Labels[appLabel], seen: now}
		a.lives[pod.UID] = l
	}
	if l.bound.IsZero() && cluster.Bound(pod) {
		l.bound = now
	}
	if l.running.IsZero() && cluster.Running(pod) {
		l.running = now
	}
}

// waits returns the times from first seen to bound of all pods first seen after a time and bound so far, shortest first.
func (a *audience) waits(since time.Time) []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	var waits []time.Duration
	for _, l := range a.lives {
		if l.seen.After(since) && !l.bound.IsZero() {
			waits = append(waits, l.bound.Sub(l.seen))
		}
	}
	slices.Sort(waits)
	return waits
}

// snapshot is the state of the cluster at one moment.
type snapshot struct {
	pods                    []*corev1.Pod // of the workloads, without those that are being deleted
	nodes                   []*corev1.Node
	claims                  int
	pending, bound, running int // of pods; misfits are not counted as pending
	leaving                 int // pods that are being deleted
}

func (a *audience) now() snapshot {
	var f snapshot
	all, _ := a.pods.Pods(namespace).List(labels.Everything()) // reads from the cache, so it never fails
	for _, p := range all {
		switch {
		case p.DeletionTimestamp != nil:
			f.leaving++
			continue
		case cluster.Running(p):
			f.running++
			f.bound++
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case cluster.Bound(p):
			f.bound++
		case p.Labels[appLabel] != misfit().name:
			f.pending++
		}
		f.pods = append(f.pods, p)
	}
	f.nodes, _ = a.nodes.List(labels.Everything())
	claims, _ := a.claims.List(labels.Everything())
	f.claims = len(claims)
	return f
}

// reasons returns the newest event of each reason about a pod.
func reasons(ctx context.Context, config *rest.Config, pod *corev1.Pod) ([]string, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reading events: %w", err)
	}
	events, err := clientset.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
	if err != nil {
		return nil, fmt.Errorf("reading events: %w", err)
	}
	newest := map[string]corev1.Event{}
	for _, e := range events.Items {
		if old, ok := newest[e.Reason]; !ok || eventTime(old).Before(eventTime(e)) {
			newest[e.Reason] = e
		}
	}
	var lines []string
	for _, e := range newest {
		lines = append(lines, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, strings.ReplaceAll(e.Message, "\n", " ")))
	}
	slices.Sort(lines)
	return lines, nil
}

// eventTime returns when the event last happened; which field holds that depends on the API that wrote the event.
func eventTime(e corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	default:
		return e.EventTime.Time
	}
}
