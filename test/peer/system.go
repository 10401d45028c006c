package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kwok "sigs.k8s.io/karpenter/kwok/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	model "github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/karpenter"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

const nodeClass = `
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
spec: {nodeRegistrationDelay: 0s}
`

// options are the variants of the day.
type options struct{ balanced, mostAllocated bool }

// system is the running system.
type system struct {
	*cluster.Cluster
	options   options
	world     *model.World
	kube      kubernetes.Interface
	karpenter *karpenter.Process
	kubelets  *kubelets
	seen      *observer
}

// start starts everything. If it returns an error, nothing is left running.
func start(ctx context.Context, dir, binary string, w *model.World, o options) (*system, error) {
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(dir, "cluster"), ControllerManager: true,
		// Nothing would take the taint off that this plugin puts on new nodes.
		APIServerArgs:         []string{"--disable-admission-plugins=TaintNodesByCondition"},
		ControllerManagerArgs: []string{"--controllers=replicaset-controller,pod-garbage-collector-controller,serviceaccount-controller"},
	})
	if err != nil {
		return nil, err
	}
	s := &system{Cluster: c, options: o, world: w}
	if err := s.start(ctx, binary); err != nil {
		c.Stop()
		return nil, err
	}
	return s, nil
}

func (s *system) start(ctx context.Context, binary string) (err error) {
	if s.kube, err = newClient(s.Cluster); err != nil {
		return err
	}
	if err := s.Apply(ctx, kwok.KWOKNodeClassCRD); err != nil {
		return err
	}
	// The API server serves a new kind a moment after it is defined.
	var applied error
	if wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		applied = s.Apply(ctx, []byte(nodeClass))
		return applied == nil, nil
	}) != nil {
		return applied
	}
	if err := s.Create(ctx, nodePool(s.options.balanced)); err != nil {
		return err
	}
	if err := s.schedule(ctx); err != nil {
		return err
	}
	if err := s.observe(); err != nil {
		return err
	}
	file, err := instanceTypes(s.world)
	if err != nil {
		return fmt.Errorf("writing instance types: %w", err)
	}
	path := filepath.Join(s.Dir, "instance-types.json")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		return fmt.Errorf("writing instance types: %w", err)
	}
	s.karpenter, err = karpenter.Start(s.Cluster, binary, []string{"--instance-types-file-path=" + path, "--disable-leader-election=true"}, nil)
	return err
}

// schedule starts kube-scheduler, which is our binary without our plugins.
func (s *system) schedule(ctx context.Context) error {
	config, err := s.ShippedConfig()
	if err != nil {
		return err
	}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	delete(config, "profiles")
	config.AddProfile(corev1.DefaultSchedulerName)
	if s.options.mostAllocated {
		config.Profiles()[0]["pluginConfig"] = []any{map[string]any{"name": "NodeResourcesFit", "args": map[string]any{"scoringStrategy": map[string]any{
			"type": "MostAllocated", "resources": []any{map[string]any{"name": "cpu", "weight": 1}, map[string]any{"name": "memory", "weight": 1}}}}}}
	}
	_, err = s.StartScheduler(ctx, cluster.SchedulerOptions{Config: config})
	return err
}

// observe starts the kubelets and the observer, which stop with the cluster.
func (s *system) observe() error {
	factory := informers.NewSharedInformerFactory(s.kube, 0)
	nodes, pods := factory.Core().V1().Nodes(), factory.Core().V1().Pods()
	s.kubelets = &kubelets{client: s.kube, nodes: nodes.Lister(), pods: pods.Lister()}
	s.seen = &observer{changed: time.Now()}
	if err := s.seen.watch(nodes.Informer(), pods.Informer()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	factory.StartWithContext(ctx)
	go func() {
		defer close(ended)
		s.kubelets.run(ctx)
	}()
	s.OnStop(func() {
		cancel()
		<-ended
		factory.Shutdown()
	})
	return nil
}

// create creates the ReplicaSets.
func (s *system) create(ctx context.Context) error {
	objects := make([]client.Object, len(s.world.Classes))
	for i := range objects {
		objects[i] = replicaSet(&s.world.Classes[i])
	}
	return s.Create(ctx, objects...)
}

// scale sets the ReplicaSets' numbers of pods.
func (s *system) scale(ctx context.Context, counts []int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i, n := range counts {
		name := s.world.Classes[i].Name
		group.Go(func() error {
			patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
			if _, err := s.kube.AppsV1().ReplicaSets(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("scaling %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// allow sets how many nodes may be disrupted at a time.
func (s *system) allow(ctx context.Context, nodes string) error {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: poolName}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"disruption":{"budgets":[{"nodes":%q}]}}}`, nodes))
	if err := s.Client().Patch(ctx, pool, patch); err != nil {
		return fmt.Errorf("setting the disruption budget: %w", err)
	}
	return nil
}

// objects returns nodes and pods as the informers have them.
func (s *system) objects() ([]*corev1.Node, []*corev1.Pod, error) {
	nodes, err := s.kubelets.nodes.List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("listing nodes: %w", err)
	}
	pods, err := s.kubelets.pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("listing pods: %w", err)
	}
	return nodes, pods, nil
}

func (s *system) snapshot() (*model.Cluster, error) {
	nodes, pods, err := s.objects()
	if err != nil {
		return nil, err
	}
	return reduce(s.world, nodes, pods)
}

// each calls f every second, with the nodes and pods of the moment, until it returns true. Every 15 seconds it is time to say something.
func (s *system) each(ctx context.Context, f func(nodes []*corev1.Node, pods []*corev1.Pod, now bool) (bool, error)) error {
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for said := time.Now(); ; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until nothing changes: %w", context.Cause(ctx))
		case <-clock.C:
		}
		if err := s.failed(); err != nil {
			return err
		}
		nodes, pods, err := s.objects()
		if err != nil {
			return err
		}
		now := time.Since(said) >= 15*time.Second
		if now {
			said = time.Now()
		}
		if done, err := f(nodes, pods, now); done || err != nil {
			return err
		}
	}
}

// settle waits until so many pods run, and pods and nodes have been at rest for a moment.
func (s *system) settle(ctx context.Context, want int) error {
	return s.each(ctx, func(nodes []*corev1.Node, pods []*corev1.Pod, now bool) (bool, error) {
		if now {
			standalone.Say("%d pods and %d nodes", len(pods), len(nodes))
		}
		return atRest(nodes, pods, want) && s.seen.still() >= rest, nil
	})
}

// consolidate lets Karpenter consolidate until nothing changes any more, at most for a time. It returns what has happened, the state with the
// lowest cost on the way, and whether Karpenter has found nothing more to do.
func (s *system) consolidate(ctx context.Context, want int) (all, cheapest usage, done bool, err error) {
	before, err := s.usage(ctx)
	if err != nil {
		return all, cheapest, false, err
	}
	cheapest = before.minus(before)
	if err := s.allow(ctx, "10%"); err != nil {
		return all, cheapest, false, err
	}
	began := time.Now()
	if err := s.each(ctx, func(nodes []*corev1.Node, pods []*corev1.Pod, now bool) (bool, error) {
		u, err := s.usage(ctx)
		if err != nil {
			return false, err
		}
		u = u.minus(before)
		calm := atRest(nodes, pods, want)
		if calm && u.cost < cheapest.cost {
			cheapest = u
		}
		if now {
			standalone.Say("%d nodes for %.2f $/h, %d evictions, %d commands, nothing has changed for %s", u.nodes, u.cost, u.evicted, u.commands, s.seen.still().Round(time.Second))
		}
		done = calm && s.seen.still() >= quiet
		return done || time.Since(began) >= atMost, nil
	}); err != nil {
		return all, cheapest, false, err
	}
	if err := s.allow(ctx, "0"); err != nil {
		return all, cheapest, false, err
	}
	if err := s.settle(ctx, want); err != nil {
		return all, cheapest, false, err
	}
	all, err = s.usage(ctx)
	return all.minus(before), cheapest, done, err
}

// failed returns an error if a process has exited by itself.
func (s *system) failed() error {
	if err := s.karpenter.Failed(); err != nil {
		return err
	}
	return s.Failed()
}

// atRest reports whether so many pods run, and no others exist, and no node is new or being disrupted.
func atRest(nodes []*corev1.Node, pods []*corev1.Pod, want int) bool {
	return len(pods) == want && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !cluster.Running(p) || p.DeletionTimestamp != nil }) &&
		!slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
			return n.Labels[karpv1.NodeInitializedLabelKey] != "true" || n.DeletionTimestamp != nil || disrupted(n)
		})
}

func disrupted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey })
}
