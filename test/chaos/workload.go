package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/outside"
)

const (
	namespace = "default"
	scheduler = "dovetail-scheduler"
	appLabel  = "app"
	// impossible is an app that no instance type can host.
	impossible = "impossible"
	daemon     = "agent"
)

// app is a number of identical pods that a user wants to run.
type app struct {
	name     string
	replicas int
	shape    func(*corev1.Pod)
	bare     bool // pods without a controller: the user recreates them
	owner    *appsv1.ReplicaSet
	next     int
	budget   bool // a PodDisruptionBudget that lets one pod be unavailable
	guarded  bool // asks not to be disrupted (karpenter.sh/do-not-disrupt)
}

// makeApps returns the apps of a history: a few, of different kinds.
func makeApps(r *rand.Rand, l *lasting) []*app {
	size := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse([]string{"250m", "500m", "1", "2"}[r.IntN(4)]),
			corev1.ResourceMemory: resource.MustParse([]string{"256Mi", "1Gi", "3Gi"}[r.IntN(3)]),
		}
	}
	var out []*app
	add := func(kind string, a *app, change func(*corev1.Pod)) {
		sized := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
		size(sized)
		requests := sized.Spec.Containers[0].Resources.Requests
		a.name, a.replicas = fmt.Sprintf("%s%d", kind, len(out)), 1+r.IntN(10)
		a.shape = func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = requests
			if change != nil {
				change(p)
			}
		}
		out = append(out, a)
	}
	add("web", &app{}, nil)
	for range 1 + r.IntN(3) {
		switch r.IntN(6) {
		case 0:
			add("spread", &app{}, func(p *corev1.Pod) {
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
					LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}
			})
		case 1:
			add("alone", &app{}, func(p *corev1.Pod) {
				p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}}}
			})
			out[len(out)-1].replicas = 1 + r.IntN(5)
		case 2:
			add("bare", &app{bare: true}, nil)
		case 3:
			add("budget", &app{budget: true}, nil)
		case 4:
			add("guarded", &app{guarded: true}, func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"} })
			out[len(out)-1].replicas = 1 + r.IntN(2)
		case 5:
			add("slow", &app{}, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](45) })
		}
	}
	if r.IntN(4) == 0 {
		add(impossible, &app{}, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5000")}
		})
		out[len(out)-1].replicas = 1
	}
	if l.faults[noDevices] != nil {
		add(gpuApp, &app{}, func(p *corev1.Pod) {
			one := resource.MustParse("1")
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), "nvidia.com/gpu": one}
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": one}
		})
		out[len(out)-1].replicas = 1 + r.IntN(3)
	}
	if l.plain {
		add(plainApp, &app{}, func(p *corev1.Pod) {
			p.Spec.SchedulerName = PlainScheduler
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
		})
		out[len(out)-1].replicas = 2 + r.IntN(3)
	}
	return out
}

// plant creates the objects that a user writes before anything runs.
func (h *history) plant(r *rand.Rand) error {
	discovery := map[string]string{"karpenter.sh/discovery": "dovetail"}
	if err := h.objects.Create(h.ctx, &ec2nc.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec: ec2nc.EC2NodeClassSpec{
			InstanceProfile: ptr.To("DovetailNode"), AMISelectorTerms: []ec2nc.AMISelectorTerm{{Alias: "al2023@latest"}},
			SubnetSelectorTerms: []ec2nc.SubnetSelectorTerm{{Tags: discovery}}, SecurityGroupSelectorTerms: []ec2nc.SecurityGroupSelectorTerm{{Tags: discovery}},
		},
	}); err != nil {
		return fmt.Errorf("creating the node class: %w", err)
	}
	pool := &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"},
				ExpireAfter:  karpv1.MustParseNillableDuration([]string{"Never", "Never", "40m"}[r.IntN(3)]),
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
					{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: [][]string{{"on-demand"}, {"spot", "on-demand"}}[r.IntN(2)]},
					{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}},
					{Key: ec2nc.LabelInstanceCategory, Operator: corev1.NodeSelectorOpIn, Values: []string{"c", "m", "r"}},
					{Key: ec2nc.LabelInstanceCPU, Operator: corev1.NodeSelectorOpIn, Values: []string{"4", "8", "16"}},
				},
			}},
			Disruption: karpv1.Disruption{ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty, ConsolidateAfter: karpv1.MustParseNillableDuration("30s"),
				Budgets: []karpv1.Budget{{Nodes: []string{"1", "2", "50%", "100%"}[r.IntN(4)]}}},
		},
	}
	if r.IntN(3) == 0 {
		pool.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 5 * time.Minute}
	}
	if r.IntN(3) == 0 {
		pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: "example.com/agent", Effect: corev1.TaintEffectNoSchedule}}
	}
	if h.lasting.faults[noDevices] != nil {
		for i := range pool.Spec.Template.Spec.Requirements {
			if q := &pool.Spec.Template.Spec.Requirements[i]; q.Key == ec2nc.LabelInstanceCategory {
				q.Values = append(q.Values, "g")
			}
		}
	}
	h.consolidating.shape(pool, h.faults)
	h.extras.shape(pool)
	h.check.learn(pool)
	if err := h.objects.Create(h.ctx, pool); err != nil {
		return fmt.Errorf("creating the pool: %w", err)
	}
	for _, a := range h.apps {
		if err := h.plantApp(a); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) plantApp(a *app) error {
	if !a.bare {
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: a.name}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(a.replicas))}}
		if err := h.objects.Create(h.ctx, rs); err != nil {
			return fmt.Errorf("creating ReplicaSet %s: %w", a.name, err)
		}
		a.owner = rs
	}
	if !a.budget {
		return nil
	}
	one := intstr.FromInt32(1)
	if err := h.objects.Create(h.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: a.name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: a.name}}},
	}); err != nil {
		return fmt.Errorf("creating the budget of %s: %w", a.name, err)
	}
	return nil
}

// keep acts as every workload controller at once: it creates missing pods, deletes surplus ones, puts DaemonSet pods on nodes, and
// removes startup taints as the agents do that those taints wait for.
func (h *history) keep(ctx context.Context) error {
	v, err := h.check.reader.look(h.api, h.ec2)
	if err != nil {
		return err
	}
	live := map[string][]*corev1.Pod{}
	for _, p := range v.podsInOrder() {
		switch {
		case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
			if p.DeletionTimestamp == nil {
				h.check.deletes(p.UID)
				_ = h.kube.CoreV1().Pods(namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
			}
		case p.DeletionTimestamp == nil:
			live[p.Labels[appLabel]] = append(live[p.Labels[appLabel]], p)
		}
	}
	for _, a := range h.apps {
		have := live[a.name]
		for range a.replicas - len(have) {
			if err := h.makePod(ctx, a); err != nil {
				return err
			}
		}
		for len(have) > a.replicas {
			last := have[len(have)-1]
			have = have[:len(have)-1]
			h.check.deletes(last.UID)
			if err := h.kube.CoreV1().Pods(namespace).Delete(ctx, last.Name, metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("scaling %s down: %w", a.name, err)
			}
		}
	}
	return h.keepNodes(ctx, v.nodes, live[daemon])
}

func (h *history) makePod(ctx context.Context, a *app) error {
	a.next++
	return h.makePodNamed(ctx, a, fmt.Sprintf("%s-%d", a.name, a.next))
}

func (h *history) makePodNamed(ctx context.Context, a *app, name string) error {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{appLabel: a.name}},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler, RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: ptr.To[int64](5),
			Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/main"}}, Tolerations: patience(),
		},
	}
	a.shape(p)
	if a.owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: a.owner.Name, UID: a.owner.UID, Controller: ptr.To(true)}}
	}
	if _, err := h.kube.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating pod %s: %w", p.Name, err)
	}
	return nil
}

// patience returns the tolerations of not-ready and unreachable nodes that admission adds to every pod.
func patience() []corev1.Toleration {
	var out []corev1.Toleration
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		out = append(out, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)})
	}
	return out
}

// keepNodes gives every node its DaemonSet pod and removes the startup taints of Ready nodes.
func (h *history) keepNodes(ctx context.Context, nodes map[string]*corev1.Node, daemons []*corev1.Pod) error {
	has := map[string]bool{}
	for _, p := range daemons {
		has[p.Annotations["node"]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[name]
		if outside.Ready(n) {
			h.removeTaint(ctx, n, "example.com/agent")
		}
		if h.agentCame() {
			h.removeTaint(ctx, n, agentTaint.Key)
		}
		if has[n.Name] || n.DeletionTimestamp != nil {
			continue
		}
		p := daemonPod(n.Name)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: daemon, UID: h.daemons.UID, Controller: ptr.To(true)}}
		if _, err := h.kube.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating the daemon of node %s: %w", n.Name, err)
		}
	}
	for _, p := range daemons { // as the DaemonSet controller does with pods of deleted nodes
		if nodes[p.Annotations["node"]] == nil {
			_ = h.kube.CoreV1().Pods(namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
		}
	}
	return nil
}

func (h *history) removeTaint(ctx context.Context, n *corev1.Node, taint string) {
	for i := range n.Spec.Taints {
		if n.Spec.Taints[i].Key == taint {
			n = n.DeepCopy()
			n.Spec.Taints = append(n.Spec.Taints[:i:i], n.Spec.Taints[i+1:]...)
			_, _ = h.kube.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{}) // on a conflict, the next call tries again
			return
		}
	}
}

func daemonTemplate() corev1.PodSpec {
	return corev1.PodSpec{
		SchedulerName: scheduler, TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/agent", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")}}}},
		Tolerations: []corev1.Toleration{{Key: "example.com/agent", Operator: corev1.TolerationOpExists}},
	}
}

func daemonPod(node string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: daemon + "-", Labels: map[string]string{appLabel: daemon}, Annotations: map[string]string{"node": node}},
		Spec:       daemonTemplate(),
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}}
	return p
}
