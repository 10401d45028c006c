package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Kubelets runs the kubelets of all instances. It implements ec2.Machines.
type Kubelets struct {
	cfg    Config
	client kubernetes.Interface
	clock  clock.WithTicker
	pods   cache.SharedIndexInformer
	shown  cache.SharedIndexInformer // Nodes as the API server has them
	queue  workqueue.TypedRateLimitingInterface[task]
	nextIP atomic.Uint32
	healed atomic.Bool

	mu        sync.Mutex
	machines  map[string]ec2.Machine // those that run, by instance ID
	nodes     map[string]*node       // by instance ID
	unhealthy map[string]*health     // likewise
	byName    map[string]*node       // registered ones, by Node name

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

var _ ec2.Machines = &Kubelets{}

// Heal makes every node that boots from now on register, even if its draw was never to do so, and starts the device plugins that were
// withheld.
func (k *Kubelets) Heal() { k.healed.Store(true) }

// task is a node to sync, by instance ID, a pod, by namespace/name, or a Node to be initialized as a cloud controller manager does, by name.
type task struct {
	pod, cloud bool
	key        string
}

const byNode = "node"

// New starts the informers and workers; Boot adds kubelets. New does not wait for the API server.
func New(cfg Config) (*Kubelets, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	k := &Kubelets{
		cfg: cfg, client: cfg.Client, clock: cfg.Clock, machines: map[string]ec2.Machine{}, nodes: map[string]*node{}, byName: map[string]*node{}, unhealthy: map[string]*health{}, ctx: ctx, stop: stop,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[task](50*time.Millisecond, 5*time.Second),
			workqueue.TypedRateLimitingQueueConfig[task]{Clock: cfg.Clock}),
	}
	if err := errors.Join(k.watchPods(), k.watchNodes()); err != nil {
		stop()
		k.queue.ShutDown()
		return nil, err
	}
	k.wg.Go(func() { k.pods.RunWithContext(ctx) })
	k.wg.Go(func() { k.shown.RunWithContext(ctx) })
	for range cfg.Workers {
		k.wg.Go(k.work)
	}
	return k, nil
}

// Close stops all kubelets and waits for their goroutines.
func (k *Kubelets) Close() {
	k.stop()
	k.queue.ShutDown()
	k.wg.Wait()
}

// watchPods creates the informer of all pods that are bound to a node.
func (k *Kubelets) watchPods() error {
	k.pods = informers.NewSharedInformerFactoryWithOptions(k.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	})).Core().V1().Pods().Informer()
	if err := k.pods.SetTransform(dropManagedFields); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if err := k.pods.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
	}}); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	_, err := k.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { k.podChanged(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { k.podChanged(obj.(*corev1.Pod)) },
		DeleteFunc: k.podGone,
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	return nil
}

// watchNodes creates the informer of Nodes, from which kubelets learn that their Node differs from what they reported.
func (k *Kubelets) watchNodes() error {
	k.shown = informers.NewSharedInformerFactory(k.client, 0).Core().V1().Nodes().Informer()
	if err := k.shown.SetTransform(dropManagedFields); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	look := func(obj any) {
		k.mu.Lock()
		n := k.byName[obj.(*corev1.Node).Name]
		k.mu.Unlock()
		if awaitsCloud(obj.(*corev1.Node)) {
			k.queue.Add(task{cloud: true, key: obj.(*corev1.Node).Name})
		}
		if n != nil && k.differs(n, obj.(*corev1.Node)) {
			k.queue.AddAfter(task{key: n.machine.ID}, statusFrequency)
		}
	}
	_, err := k.shown.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	return nil
}

// shownNode returns the Node as the API server has it; nil if it isn't known.
func (k *Kubelets) shownNode(n *node) *corev1.Node {
	obj, exists, err := k.shown.GetIndexer().GetByKey(n.name)
	if err != nil || !exists {
		return nil
	}
	return obj.(*corev1.Node)
}

// dropManagedFields saves memory; managed fields are not read here.
func dropManagedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

func (k *Kubelets) podChanged(p *corev1.Pod) {
	if k.nodeOf(p) != nil {
		k.queue.Add(task{pod: true, key: p.Namespace + "/" + p.Name})
	}
}

func (k *Kubelets) podGone(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if p, ok := obj.(*corev1.Pod); ok {
		if n := k.nodeOf(p); n != nil {
			n.forget(p.UID)
		}
	}
}

// nodeOf returns the registered node that a pod is bound to, or nil.
func (k *Kubelets) nodeOf(p *corev1.Pod) *node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byName[p.Spec.NodeName]
}

// Boot implements ec2.Machines.
func (k *Kubelets) Boot(m ec2.Machine) {
	k.mu.Lock()
	k.machines[m.ID] = m
	k.mu.Unlock()
	d := k.cfg.Boot.draw(k.cfg.Seed, m.ID)
	log := klog.FromContext(k.ctx)
	var fate Fate
	if k.cfg.Fate != nil {
		fate = k.cfg.Fate(m)
	}
	if d.never && !k.healed.Load() || fate.Never {
		log.V(2).Info("This machine's kubelet never comes up", "instance", m.ID)
		return
	}
	n := &node{machine: m, name: m.PrivateDNSName, pods: map[podUID]*podState{}}
	var err error
	if n.settings, err = readUserData(m.UserData); err == nil {
		n.shape, err = shapeOf(&m, n.settings, k.cfg.Overhead)
	}
	if err != nil {
		log.Error(err, "This machine can't come up: its user data is wrong", "instance", m.ID)
		return
	}
	n.withheld = fate.NoDevices
	now := k.clock.Now()
	n.registerAt = now.Add(k.cfg.scaled(d.register))
	n.readyAt = n.registerAt.Add(k.cfg.scaled(d.ready))
	n.pluginsAt = n.readyAt.Add(k.cfg.scaled(d.plugins))
	k.mu.Lock()
	k.nodes[m.ID] = n
	k.mu.Unlock()
	k.queue.AddAfter(task{key: m.ID}, n.registerAt.Sub(now))
}

// Halt implements ec2.Machines.
func (k *Kubelets) Halt(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[id]
	delete(k.machines, id)
	delete(k.nodes, id)
	delete(k.unhealthy, id)
	if n != nil && k.byName[n.name] == n {
		delete(k.byName, n.name)
	}
}

func (k *Kubelets) work() {
	for {
		t, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		again, err := k.look(t)
		switch {
		case err != nil && k.ctx.Err() == nil:
			klog.FromContext(k.ctx).V(3).Info("A kubelet will try again", "task", t.key, "err", err)
			k.queue.AddRateLimited(t)
		case err == nil:
			k.queue.Forget(t)
			if again > 0 {
				k.queue.AddAfter(t, again)
			}
		}
		k.queue.Done(t)
	}
}

// look does what is due for the task and returns when to look again; 0: when something changes.
func (k *Kubelets) look(t task) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(k.ctx, 30*time.Second)
	defer cancel()
	if t.pod {
		return k.syncPod(ctx, t.key)
	}
	if t.cloud {
		return 0, k.initialize(ctx, t.key)
	}
	k.mu.Lock()
	n := k.nodes[t.key]
	k.mu.Unlock()
	if n == nil || k.healthOf(t.key).silent {
		return 0, nil
	}
	return k.syncNode(ctx, n)
}

// leaseInterval grows with the number of nodes, so that renewals stay below 100 per second.
func (k *Kubelets) leaseInterval() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return min(max(k.cfg.LeaseInterval, time.Duration(len(k.byName))*10*time.Millisecond), max(k.cfg.LeaseInterval, 25*time.Second))
}
