package realkubelet

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

// scene is one test's part of the cluster: a pool and a Deployment that fits only there, both called name.
type scene struct {
	*testing.T
	*env
	name string
	ctx  context.Context
}

func (e *env) scene(t *testing.T, name string, p Plan) *scene {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	e.setPlan(name, p)
	return &scene{T: t, env: e, name: name, ctx: ctx}
}

func (e *env) setPlan(pool string, p Plan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plans[pool] = p
}

func (s *scene) begin(replicas int32, changePool func(*karpv1.NodePool), changePod func(*corev1.PodSpec)) {
	s.Helper()
	pool := sandbox.NodePool(s.name, func(p *karpv1.NodePool) {
		p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
		if changePool != nil {
			changePool(p)
		}
	})
	labels := map[string]string{"app": s.name}
	pods := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				SchedulerName: sandbox.SchedulerName, NodeSelector: map[string]string{karpv1.NodePoolLabelKey: s.name},
				TerminationGracePeriodSeconds: ptr.To[int64](5), AutomountServiceAccountToken: ptr.To(false),
				Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("256Mi")}}}},
			}},
		},
	}
	if changePod != nil {
		changePod(&pods.Spec.Template.Spec)
	}
	if err := s.Create(s.ctx, pool, pods); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) wait() context.Context {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	s.Cleanup(cancel)
	return ctx
}

// pods waits until n pods of the scene exist and want is true for all of them.
func (s *scene) pods(n int, want func(*corev1.Pod) bool) []*corev1.Pod {
	s.Helper()
	pods, err := cluster.UntilPods(s.wait(), s.Client(), n, want, client.InNamespace("default"), client.MatchingLabels{"app": s.name})
	if err != nil {
		s.fatal(err)
	}
	return pods
}

// node waits until the scene's pool has exactly one Node and want is true for it.
func (s *scene) node(want func(*corev1.Node) bool) *corev1.Node {
	s.Helper()
	nodes, err := cluster.UntilNodes(s.wait(), s.Client(), 1, want, client.MatchingLabels{karpv1.NodePoolLabelKey: s.name})
	if err != nil {
		s.fatal(err)
	}
	return nodes[0]
}

// claims waits until want is true for the scene's NodeClaims.
func (s *scene) claims(what string, want func([]*karpv1.NodeClaim) bool) []*karpv1.NodeClaim {
	s.Helper()
	claims, err := cluster.Until(s.wait(), s.Client(), &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		return want(claims), fmt.Sprintf("%s (%d claims)", what, len(claims)), nil
	}, client.MatchingLabels{karpv1.NodePoolLabelKey: s.name})
	if err != nil {
		s.fatal(err)
	}
	return claims
}

// instances returns all instances that were ever launched for the scene.
func (s *scene) instances() []ec2.Instance {
	var mine []ec2.Instance
	for _, in := range s.EC2.Instances() {
		if in.Tags[karpv1.NodePoolLabelKey] == s.name {
			mine = append(mine, in)
		}
	}
	return mine
}

// fatal fails the scene and logs the cluster's objects.
func (s *scene) fatal(err error) {
	s.Helper()
	if broken := s.machines.Err(); broken != nil {
		s.Error(broken)
	}
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &karpv1.NodeClaimList{}, &corev1.PodList{}, &corev1.EventList{}} {
		if s.Client().List(s.ctx, list) == nil {
			text, _ := yaml.Marshal(list) // it was read from JSON, so it can be written
			s.Logf("%T:\n%s", list, text)
		}
	}
	s.Fatal(err)
}

// initialized reports whether the kubelet has registered and the node has all the resources it was launched for.
func initialized(n *corev1.Node) bool { return n.Labels[karpv1.NodeInitializedLabelKey] == "true" }

func anyNode(*corev1.Node) bool { return true }

func hasTaint(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// lease waits until the node has a Lease and want is true for it.
func (s *scene) lease(node string, want func(*coordinationv1.Lease) bool) *coordinationv1.Lease {
	s.Helper()
	leases, err := cluster.Until(s.wait(), s.Client(), &coordinationv1.LeaseList{}, func(leases []*coordinationv1.Lease) (bool, string, error) {
		return len(leases) == 1 && want(leases[0]), "the lease of " + node, nil
	}, client.InNamespace(corev1.NamespaceNodeLease), client.MatchingFields{"metadata.name": node})
	if err != nil {
		s.fatal(err)
	}
	return leases[0]
}

// same checks that the scene's pods are the wanted ones.
func (s *scene) same(want []*corev1.Pod) {
	s.Helper()
	have := map[types.UID]bool{}
	for _, p := range s.pods(len(want), cluster.Running) {
		have[p.UID] = true
	}
	for _, p := range want {
		if !have[p.UID] {
			s.Errorf("pod %s has been replaced", p.Name)
		}
	}
}

// launched checks how many instances were launched for the scene.
func (s *scene) launched(n int) {
	s.Helper()
	if all := s.instances(); len(all) != n {
		s.Errorf("%d instances were launched, want %d: %v", len(all), n, all)
	}
}

func (s *scene) scale(n int) {
	s.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.name}}
	if err := s.Client().Patch(s.ctx, d, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))); err != nil {
		s.Fatal(err)
	}
}

// untaint removes a taint from a Node, as the controller does that the taint waits for.
func (s *scene) untaint(name, key string) {
	s.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node := &corev1.Node{}
		if err := s.Client().Get(s.ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		if !hasTaint(node, key) {
			s.Errorf("node %s does not have the taint %s: %v", name, key, node.Spec.Taints)
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
		return s.Client().Update(s.ctx, node)
	})
	if err != nil {
		s.Fatal(err)
	}
}
