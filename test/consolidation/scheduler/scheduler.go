package scheduler

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/plugins/binder"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/quality/workload"
)

// Scheduler places the pods of one cluster. Close ends its goroutines.
type Scheduler struct {
	ctx     context.Context
	close   func()
	sched   *kubescheduler.Scheduler
	profile framework.Framework
	world   *cluster.World
	nodes   map[string]*node
	serial  int
	// Placed is how many pods it has placed.
	Placed int
}

// node is a node as the scheduler's cache has it.
type node struct {
	of     *cluster.Node
	object *corev1.Node
	pods   map[int][]*corev1.Pod // by class
	seen   int                   // the number of the last Sync that saw it
}

// New returns a scheduler with the shipped profile, except for its scores. rank is that of a node for KeptName.
func New(w *cluster.World, s Scoring, rank func(node string) int64) (*Scheduler, error) {
	p, err := Shipped()
	if err != nil {
		return nil, err
	}
	s.apply(p)
	out := &Scheduler{world: w, nodes: map[string]*node{}}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	var sets []runtime.Object // for the default spread
	for i := range w.Classes {
		app := w.Classes[i].Name
		sets = append(sets, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app, UID: types.UID(app)},
			Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}})
	}
	client := fake.NewClientset(sets...)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	factory := kubescheduler.NewInformerFactory(client, 0)
	out.ctx, out.close = ctx, func() {
		cancel()
		broadcaster.Shutdown()
		factory.Shutdown()
	}
	ledger := reservations.New(clock.RealClock{})
	var all *pending.Classes
	classes := func(h fwk.Handle) *pending.Classes {
		if all == nil {
			all = pending.NewClasses(h.SharedInformerFactory())
		}
		return all
	}
	out.sched, err = kubescheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster), kubescheduler.WithProfiles(*p),
		kubescheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{
			provision.Name: provision.New(ledger, func(h fwk.Handle) provision.Classifier { return classes(h) }),
			binder.Name:    binder.New(ledger, func(h fwk.Handle) binder.Classifier { return classes(h) }),
			KeptName:       (&kept{rank}).factory,
		}))
	if err != nil {
		out.close()
		return nil, fmt.Errorf("building the scheduler: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	out.profile = out.sched.Profiles[p.SchedulerName]
	return out, nil
}

// Close ends the scheduler's goroutines.
func (s *Scheduler) Close() { s.close() }

// NodeName returns the name of a node.
func NodeName(n *cluster.Node) string { return fmt.Sprintf("node-%d", n.ID) }

// Sync makes the scheduler's cache what the cluster is.
func (s *Scheduler) Sync(c *cluster.Cluster, cordoned func(*cluster.Node) bool) error {
	logger := klog.FromContext(s.ctx)
	s.serial++
	round := s.serial
	for _, n := range c.Nodes {
		if n.Gone {
			continue
		}
		name := NodeName(n)
		x := s.nodes[name]
		if x == nil {
			x = &node{of: n, object: s.object(n), pods: map[int][]*corev1.Pod{}}
			s.nodes[name] = x
			s.sched.Cache.AddNode(logger, x.object)
		}
		x.seen = round
		if now := cordoned(n); now != x.object.Spec.Unschedulable {
			changed := x.object.DeepCopy()
			changed.Spec.Unschedulable = now
			s.sched.Cache.UpdateNode(logger, x.object, changed)
			x.object = changed
		}
		if err := s.syncPods(x); err != nil {
			return err
		}
	}
	for name, x := range s.nodes {
		if x.seen == round {
			continue
		}
		for class := range x.pods {
			if err := s.resize(x, class, 0); err != nil {
				return err
			}
		}
		if err := s.sched.Cache.RemoveNode(logger, x.object); err != nil {
			return fmt.Errorf("removing %s: %w", name, err)
		}
		delete(s.nodes, name)
	}
	return nil
}

func (s *Scheduler) syncPods(x *node) error {
	for class := range x.pods {
		if x.of.Of(class) == 0 {
			if err := s.resize(x, class, 0); err != nil {
				return err
			}
		}
	}
	for _, share := range x.of.Pods {
		if err := s.resize(x, share.Class, share.Count); err != nil {
			return err
		}
	}
	return nil
}

// resize makes it so many pods of a class on a node.
func (s *Scheduler) resize(x *node, class, count int) error {
	logger, pods := klog.FromContext(s.ctx), x.pods[class]
	for len(pods) > count {
		last := pods[len(pods)-1]
		pods = pods[:len(pods)-1]
		if err := s.sched.Cache.RemovePod(logger, last); err != nil {
			return fmt.Errorf("removing pod %s: %w", last.Name, err)
		}
	}
	for len(pods) < count {
		p := s.pod(class)
		p.Spec.NodeName = x.object.Name
		if err := s.sched.Cache.AddPod(logger, p); err != nil {
			return fmt.Errorf("adding pod %s: %w", p.Name, err)
		}
		pods = append(pods, p)
	}
	if x.pods[class] = pods; len(pods) == 0 {
		delete(x.pods, class)
	}
	return nil
}

// Place chooses a node for a pod of a class, as one scheduling cycle does, and puts the pod there in the scheduler's cache; nil: it fits on
// no node.
func (s *Scheduler) Place(class int) (*cluster.Node, error) {
	logger := klog.FromContext(s.ctx)
	if err := s.sched.Cache.UpdateSnapshot(logger, s.profile.SnapshotSharedLister().(*internalcache.Snapshot)); err != nil {
		return nil, fmt.Errorf("updating the snapshot: %w", err)
	}
	p := s.pod(class)
	info, err := framework.NewPodInfo(p)
	if err != nil {
		return nil, err
	}
	chosen, err := s.sched.SchedulePod(s.ctx, s.profile, framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info})
	var unfit *framework.FitError
	switch {
	case errors.As(err, &unfit) || errors.Is(err, kubescheduler.ErrNoNodesAvailable):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("scheduling a pod of %s: %w", s.world.Classes[class].Name, err)
	}
	x := s.nodes[chosen.SuggestedHost]
	p.Spec.NodeName = chosen.SuggestedHost
	if err := s.sched.Cache.AddPod(logger, p); err != nil {
		return nil, fmt.Errorf("adding pod %s: %w", p.Name, err)
	}
	x.pods[class] = append(x.pods[class], p)
	s.Placed++
	return x.of, nil
}

func (s *Scheduler) object(n *cluster.Node) *corev1.Node {
	room, name := s.world.Types[n.Type].Room, NodeName(n)
	amounts := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(room[0], resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(room[1]<<20, resource.BinarySI), corev1.ResourcePods: *resource.NewQuantity(room[2], resource.DecimalSI)}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: workload.Zones[n.ID%len(workload.Zones)]}},
		Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts},
	}
}

func (s *Scheduler) pod(class int) *corev1.Pod {
	s.serial++
	of := &s.world.Classes[class]
	name := fmt.Sprintf("%s-%d", of.Name, s.serial)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": of.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: of.Name, UID: types.UID(of.Name), Controller: ptr.To(true)}}},
		Spec: corev1.PodSpec{SchedulerName: s.profile.ProfileName(), Containers: []corev1.Container{{Name: "main", Image: "main", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(of.Need[0], resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(of.Need[1]<<20, resource.BinarySI)}}}}},
	}
}
