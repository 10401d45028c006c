package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/load"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

const (
	// writers is how many writes are made at a time, chunk how many nodes are copied at a time.
	writers = 32
	chunk   = 300
	// apps is how many controllers own the pods on copied nodes.
	apps = 100
)

// What the pods of a copied node request together: thousandths of a CPU, and MiB. It has 3,920m and 14,162 MiB for pods. That leaves room for some of the
// load's small pods, but not for one of a burst, nor for one more of their own kind: no node can be emptied to save money.
const placedCPU, placedMemory = 3700, 12800

// model is a node that the scheduler has launched, and that is copied.
type model struct {
	instance ec2.Instance
	claim    karpv1.NodeClaim
	node     corev1.Node
}

// launchModels lets a scheduler launch a node in each zone, and reads them when they are in service. It notes the heap then.
func (s *system) launchModels(ctx context.Context, w *weights) error {
	scheduler, err := s.schedule(ctx, process{})
	if err != nil {
		return err
	}
	if err := s.launch(ctx, scheduler, w); err != nil {
		return errors.Join(err, scheduler.Failed())
	}
	if err := s.end(ctx, scheduler); err != nil {
		return err
	}
	for _, in := range s.EC2.Live() {
		m := model{instance: in}
		if err := s.objects.Get(ctx, client.ObjectKey{Name: in.PrivateDNSName}, &m.node); err != nil {
			return fmt.Errorf("reading a node: %w", err)
		}
		if err := s.objects.Get(ctx, client.ObjectKey{Name: claimOf(&m.node)}, &m.claim); err != nil {
			return fmt.Errorf("reading the claim of node %q: %w", m.node.Name, err)
		}
		s.models = append(s.models, m)
		s.own[in.ID] = true
	}
	s.nodes = len(s.models)
	return load.Sweep(ctx, s.Sandbox, s.kube, atOnce, s.nodes)
}

// launch waits until the nodes are in service for the pods that it creates.
func (s *system) launch(ctx context.Context, scheduler *cluster.SchedulerProcess, w *weights) error {
	ctx, cancel := s.whileRunning(ctx, scheduler)
	defer cancel()
	for i, zone := range zones {
		pods := sandbox.Pods(fmt.Sprintf("model-%d", i), 1, "3", "1Gi", func(_ int, p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone, karpv1.NodePoolLabelKey: filled}
		})
		if err := s.Create(ctx, pods...); err != nil {
			return err
		}
	}
	initialized := func(n *corev1.Node) bool {
		return n.Labels[karpv1.NodeInitializedLabelKey] == "true" && cluster.Ready(n)
	}
	if _, err := cluster.UntilNodes(ctx, s.Client(), len(zones), initialized); err != nil {
		return err
	}
	if err := s.settled(ctx); err != nil {
		return err
	}
	var err error
	w.few, err = heap(ctx, scheduler)
	return err
}

// settled waits until the NodeClaims of all nodes are initialized.
func (s *system) settled(ctx context.Context) error {
	_, err := cluster.Until(ctx, s.Client(), &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		for _, c := range claims {
			if !c.StatusConditions().IsTrue(karpv1.ConditionTypeInitialized) || c.Status.NodeName == "" {
				return false, "claim " + c.Name + " isn't initialized", nil
			}
		}
		return true, "", nil
	})
	return err
}

// claimOf returns the name of a node's NodeClaim.
func claimOf(n *corev1.Node) string {
	for _, o := range n.OwnerReferences {
		if o.Kind == "NodeClaim" {
			return o.Name
		}
	}
	return ""
}

// addNodes copies nodes until there are n. No scheduler runs.
func (s *system) addNodes(ctx context.Context, n int) error {
	said := time.Now()
	for s.nodes < n {
		var all []ec2.Saved
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(writers)
		most := min(chunk, n-s.nodes)
		for i := range s.models {
			copies, err := s.EC2.Copies(s.models[i].instance.ID, (most+len(s.models)-1-i)/len(s.models))
			if err != nil {
				return err
			}
			for j := range copies {
				s.nodes++
				s.own[copies[j].ID] = true
				name := fmt.Sprintf("%s-%05d", filled, s.nodes)
				s.models[i].tag(&copies[j], name)
				in := copies[j].Instance
				group.Go(func() error { return s.models[i].write(ctx, s.objects, name, &in) })
			}
			all = append(all, copies...)
		}
		if err := group.Wait(); err != nil {
			return err
		}
		if err := s.EC2.Restore(ec2.State{Instances: all}); err != nil {
			return err
		}
		if time.Since(said) > 10*time.Second || s.nodes == n {
			said = time.Now()
			standalone.Say("%d nodes are there", s.nodes)
		}
	}
	return s.Failed()
}

// tag makes the copied instance one of the claim.
func (m *model) tag(in *ec2.Saved, claim string) {
	for key, value := range in.Tags {
		if value == m.claim.Name {
			in.Tags[key] = claim
		}
	}
}

// write writes the NodeClaim and the Node of a copied instance. Its kubelet will find the Node.
func (m *model) write(ctx context.Context, c client.Client, name string, in *ec2.Instance) error {
	claim := m.claim.DeepCopy()
	claim.ObjectMeta = fresh(&m.claim, name)
	// These are about the launch of the model.
	for _, name := range []string{objects.AnnotationLaunchBatch, objects.AnnotationPlannedPods, objects.AnnotationPurchase} {
		delete(claim.Annotations, name)
	}
	status := claim.Status
	status.NodeName, status.ProviderID = in.PrivateDNSName, "aws:///"+in.Zone+"/"+in.ID
	if err := c.Create(ctx, claim); err != nil {
		return fmt.Errorf("creating claim %s: %w", name, err)
	}
	claim.Status = status
	if err := c.Status().Update(ctx, claim); err != nil {
		return fmt.Errorf("writing the status of claim %s: %w", name, err)
	}
	node := m.node.DeepCopy()
	node.ObjectMeta = fresh(&m.node, in.PrivateDNSName)
	node.Labels[corev1.LabelHostname] = node.Name
	for i := range node.OwnerReferences {
		node.OwnerReferences[i].Name, node.OwnerReferences[i].UID = claim.Name, claim.UID
	}
	node.Spec.ProviderID = status.ProviderID
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: in.PrivateIP}, {Type: corev1.NodeHostName, Address: node.Name}}
	if err := c.Create(ctx, node); err != nil {
		return fmt.Errorf("creating node %s: %w", node.Name, err)
	}
	return nil
}

// fresh returns what of an object's metadata a copy has, too.
func fresh(o client.Object, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: maps.Clone(o.GetLabels()), Annotations: maps.Clone(o.GetAnnotations()),
		Finalizers: o.GetFinalizers(), OwnerReferences: append([]metav1.OwnerReference(nil), o.GetOwnerReferences()...)}
}

// addPods creates bound pods on the nodes that have none, and waits until they run. No scheduler runs.
func (s *system) addPods(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.set.patience)
	defer cancel()
	group, writing := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	said := time.Now()
	empty := s.EC2.Live()[s.pods/s.set.podsPerNode:]
	for i := range empty {
		for range s.set.podsPerNode {
			pod := s.placed(s.pods, empty[i].PrivateDNSName)
			s.pods++
			group.Go(func() error { return s.createPod(writing, pod) })
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			standalone.Say("%d pods are there", s.pods)
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for {
		n, err := s.waiting(ctx)
		if err != nil || n == 0 {
			standalone.Say("%d pods run on %d nodes", s.pods, s.nodes)
			return err
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			standalone.Say("%d of the pods or more don't run yet", n)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d pods don't run: %w", n, ctx.Err())
		case <-time.After(2 * time.Second):
		}
	}
}

// createPod creates a pod. It tries again if the API server is too busy to answer in time.
func (s *system) createPod(ctx context.Context, pod *corev1.Pod) error {
	err := retry.OnError(retry.DefaultBackoff, busy, func() error {
		_, err := s.kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return client.IgnoreAlreadyExists(err)
	})
	if err != nil {
		return fmt.Errorf("creating pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func busy(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}

// placed returns a pod on a copied node.
func (s *system) placed(i int, node string) *corev1.Pod {
	cpu, memory := fmt.Sprintf("%dm", placedCPU/s.set.podsPerNode), fmt.Sprintf("%dMi", placedMemory/s.set.podsPerNode)
	pod := sandbox.Pods(fmt.Sprintf("app-%d", i%apps), 1, cpu, memory, func(_ int, p *corev1.Pod) {
		p.Name = fmt.Sprintf("app-%d-%d", i%apps, i/apps)
		p.Namespace = namespace
		p.Spec.NodeName = node
		p.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: filled}
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	})
	return pod[0].(*corev1.Pod)
}
