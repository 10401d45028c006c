package check

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/record"
)

// journal makes up evidence, with one write per second.
type journal struct {
	kubeletsMake string // memory for pods of Nodes that kubelets make; empty: Dovetail makes the Nodes
	Evidence
	now time.Time
}

func newJournal() *journal {
	return &journal{Evidence: Evidence{Region: "us-west-2", Zones: []string{"us-west-2a"}}, now: time.Unix(1000, 0)}
}

func (j *journal) write(kind watch.EventType, o client.Object) {
	j.now = j.now.Add(time.Second)
	j.Events = append(j.Events, record.Event{Revision: uint64(len(j.Events) + 1), Type: kind, Object: o.DeepCopyObject().(client.Object), At: j.now})
}

// atOnce gives the last two writes the same time.
func (j *journal) atOnce() { j.Events[len(j.Events)-1].At = j.Events[len(j.Events)-2].At }

type podOpt func(*corev1.Pod)

// pod records the creation of a pod that requests so much CPU.
func (j *journal) pod(name, cpu string, opts ...podOpt) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "w", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "a"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "a", UID: "owner-a", Controller: ptr.To(true)}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "i", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, opt := range opts {
		opt(p)
	}
	j.write(watch.Added, p)
	return p
}

func (j *journal) bind(p *corev1.Pod, node string) {
	p.Spec.NodeName = node
	j.write(watch.Modified, p)
}

func (j *journal) end(p *corev1.Pod) { j.write(watch.Deleted, p) }

func ofDaemonSet(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }

func inGang(name string) podOpt {
	return func(p *corev1.Pod) { p.Labels[gangLabel] = name }
}

func urgent(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](1000) }

// alone keeps the pods of the application on separate nodes.
func alone(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}}}
}

// claim records the creation of a NodeClaim for the pods, all of one class. nil stands for a pod that is not created yet.
func (j *journal) claim(name, class string, pods ...*corev1.Pod) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	plan(c, class, pods)
	j.write(watch.Added, c)
	return c
}

// joins records a change of the pods that have a slot of the NodeClaim.
func (j *journal) joins(c *karpv1.NodeClaim, class string, pods ...*corev1.Pod) {
	plan(c, class, pods)
	j.write(watch.Modified, c)
}

func plan(c *karpv1.NodeClaim, class string, pods []*corev1.Pod) {
	var slots []map[string]any
	for i, p := range pods {
		if p == nil {
			slots = append(slots, map[string]any{"class": class, "order": i, "owner": "owner-a"})
			continue
		}
		slots = append(slots, map[string]any{"class": class, "order": i, "pod": map[string]string{"uid": string(p.UID), "namespace": p.Namespace, "name": p.Name}})
	}
	data, err := json.Marshal(slots)
	if err != nil {
		panic(err)
	}
	c.Annotations = map[string]string{plannedAnnotation: string(data)}
}

// launch records the launch of an instance for the NodeClaim, and its Node with so much CPU.
func (j *journal) launch(c *karpv1.NodeClaim, node, cpu string) *corev1.Node {
	j.instance("i-"+node, c.Name)
	c.Status.ProviderID = "aws:///us-west-2a/i-" + node
	c.Status.Allocatable = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("9Gi")}
	j.write(watch.Modified, c)
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("uid-" + node), Labels: map[string]string{corev1.LabelHostname: node, karpv1.NodePoolLabelKey: "p"}},
		Spec: corev1.NodeSpec{ProviderID: c.Status.ProviderID, Taints: []corev1.Taint{
			{Key: karpv1.UnregisteredTaintKey, Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("9Gi"), corev1.ResourcePods: resource.MustParse("10")}},
	}
	if j.kubeletsMake != "" {
		n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse(j.kubeletsMake)
	}
	j.write(watch.Added, n)
	return n
}

// launchForTwo records a launch for two pods of 4 GiB with 9 GiB for them, its registration with so much, and that one of them goes to another node.
func (j *journal) launchForTwo(memory string) {
	big := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("4Gi")
	}
	a, b := j.pod("a", "1", big), j.pod("b", "1", big)
	n1 := j.launch(j.claim("c1", "k", a, b), "n1", "2")
	j.bind(a, "n1")
	n1.Labels[karpv1.NodeRegisteredLabelKey] = "true"
	n1.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse(memory)
	j.write(watch.Modified, n1)
	other := j.pod("other", "1")
	j.launch(j.claim("c2", "l", other), "n2", "2")
	j.end(other)
	j.bind(b, "n2")
}

// instance records a launched instance with the tag of a NodeClaim.
func (j *journal) instance(id, claim string) {
	j.Instances = append(j.Instances, ec2.Instance{ID: id, Zone: "us-west-2a", Type: "m5.large", Tags: map[string]string{"karpenter.sh/nodeclaim": claim}})
}

// pool records a NodePool that allows every amd64 instance type.
func (j *journal) pool() {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid-pool"}}
	p.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}}
	j.write(watch.Added, p)
}

// judge returns the report.
func (j *journal) judge(t *testing.T) *Report {
	t.Helper()
	r, err := Judge(t.Context(), &j.Evidence)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// unreachable makes the node look as the node lifecycle controller leaves it when it doesn't hear from the kubelet; kubelet is the version
// that the kubelet has posted, or "" if it never has.
func unreachable(n *corev1.Node, kubelet string) {
	n.Status.NodeInfo.KubeletVersion = kubelet
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})
}
