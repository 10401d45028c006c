package main

import (
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

const (
	className = "default"
	// poolLabel is a label of a pool's nodes, by which pods choose the pool.
	poolLabel = "example.com/pool"
	appLabel  = "app"
)

// nodeClass has fields that change what is launched, and the class's hash.
func nodeClass() *ec2nc.EC2NodeClass {
	return sandbox.NodeClass(className, func(c *ec2nc.EC2NodeClass) {
		c.Spec.Tags = map[string]string{"team": "platform"}
		c.Spec.DetailedMonitoring = ptr.To(true)
		c.Spec.Kubelet = &ec2nc.KubeletConfiguration{MaxPods: ptr.To[int32](58)}
		c.Spec.BlockDeviceMappings = []*ec2nc.BlockDeviceMapping{{
			DeviceName: ptr.To("/dev/xvda"), RootVolume: true,
			EBS: &ec2nc.BlockDevice{VolumeSize: ptr.To(resource.MustParse("50Gi")), VolumeType: ptr.To("gp3"), Encrypted: ptr.To(true)},
		}}
		c.Spec.MetadataOptions = &ec2nc.MetadataOptions{
			HTTPEndpoint: ptr.To("enabled"), HTTPProtocolIPv6: ptr.To("disabled"), HTTPPutResponseHopLimit: ptr.To[int64](1), HTTPTokens: ptr.To("required"),
		}
	})
}

// Used nodes may be consolidated: then Karpenter's and our idea of what is cheapest must be the same, or nodes would be replaced.
func pool(name, arch, capacityType string, taints ...corev1.Taint) *karpv1.NodePool {
	return sandbox.NodePool(name, func(p *karpv1.NodePool) {
		t := &p.Spec.Template
		t.Labels = map[string]string{poolLabel: name}
		t.Annotations = map[string]string{"example.com/owner": "platform"}
		t.Spec.Taints = taints
		t.Spec.ExpireAfter = karpv1.MustParseNillableDuration("720h")
		t.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
			sandbox.Require(corev1.LabelArchStable, arch),
			sandbox.Require(karpv1.CapacityTypeLabelKey, capacityType),
			sandbox.Require("karpenter.k8s.aws/instance-category", "c", "m", "r"),
			{Key: "karpenter.k8s.aws/instance-generation", Operator: corev1.NodeSelectorOpGt, Values: []string{"4"}},
		}
		p.Spec.Disruption = karpv1.Disruption{
			ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
			ConsolidateAfter:    karpv1.MustParseNillableDuration("30s"),
			Budgets:             []karpv1.Budget{{Nodes: "10%"}},
		}
		p.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: resource.MustParse("1000")}
	})
}

// armTaint keeps other pods off the arm64 nodes.
var armTaint = corev1.Taint{Key: corev1.LabelArchStable, Value: "arm64", Effect: corev1.TaintEffectNoSchedule}

// objects are what both find in the cluster.
func objects() []client.Object {
	return []client.Object{nodeClass(), pool("web", "amd64", "on-demand"), pool("batch", "amd64", "spot"), pool("arm", "arm64", "on-demand", armTaint)}
}

// app is a Deployment whose pods share no node with each other.
type app struct {
	name, pool  string
	scheduler   string
	pods        int32
	cpu, memory string
}

// apps need 50 nodes. The pods of one of them are scheduled by Dovetail's own profile: they are bound before their nodes' kubelets have
// registered. All others are kube-scheduler's.
var apps = []app{
	{"web", "web", corev1.DefaultSchedulerName, 20, "1500m", "3Gi"},
	{"batch", "batch", sandbox.SchedulerName, 15, "3", "6Gi"},
	{"arm", "arm", corev1.DefaultSchedulerName, 15, "1500m", "2Gi"},
}

func (a *app) deployment() *appsv1.Deployment {
	labels := map[string]string{appLabel: a.name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: a.name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(a.pods), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				SchedulerName:                 a.scheduler,
				NodeSelector:                  map[string]string{poolLabel: a.pool},
				Tolerations:                   []corev1.Toleration{{Key: armTaint.Key, Operator: corev1.TolerationOpExists}},
				TerminationGracePeriodSeconds: ptr.To[int64](1),
				AutomountServiceAccountToken:  ptr.To(false),
				Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}}}},
				Containers: containers(a.cpu, a.memory),
			}},
		},
	}
}

// agent is a DaemonSet of all nodes.
func agent() *appsv1.DaemonSet {
	labels := map[string]string{appLabel: "agent"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				AutomountServiceAccountToken: ptr.To(false),
				Containers:                   containers("100m", "128Mi"),
			}},
		},
	}
}

func containers(cpu, memory string) []corev1.Container {
	return []corev1.Container{{Name: "main", Image: "registry.invalid/main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}}
}
