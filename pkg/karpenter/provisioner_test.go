package karpenter

import (
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
)

// manifest returns an object as the watch delivers it: spec is YAML, numbers are as the API server sends them.
func manifest(t testing.TB, k CustomKind, name, spec string) client.Object {
	t.Helper()
	u := fromYAML(t, "apiVersion: "+k.GroupVersion().String()+"\nkind: "+k.Kind+"\nmetadata: {}\nspec: "+spec)
	u.SetName(name)
	u.SetUID(types.UID("uid-of-" + k.Kind + "-" + name))
	u.SetGeneration(1)
	u.SetCreationTimestamp(metav1.Time{Time: start})
	return Decode(u, k.New)
}

func provisioner(t testing.TB, spec string) *legacy.Provisioner {
	return manifest(t, Provisioners, "old", spec).(*legacy.Provisioner)
}

func nodeTemplate(t testing.TB, spec string) *legacy.AWSNodeTemplate {
	return manifest(t, NodeTemplates, "t", spec).(*legacy.AWSNodeTemplate)
}

// The defaults that Karpenter wrote into a Provisioner.
var (
	linux    = req(corev1.LabelOSStable, "In", "linux")
	amd64    = req(corev1.LabelArchStable, "In", "amd64")
	onDemand = req(karpv1.CapacityTypeLabelKey, "In", "on-demand")
	general  = req(ec2nc.LabelInstanceCategory, "In", "c", "m", "r")
	recent   = req(ec2nc.LabelInstanceGeneration, "Gt", "2")
)

func req(key string, op corev1.NodeSelectorOperator, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values}
}

var budgets = []karpv1.Budget{
	{Nodes: "100%", Reasons: []karpv1.DisruptionReason{"Empty"}},
	{Nodes: "10%", Reasons: []karpv1.DisruptionReason{"Underutilized"}},
	{Nodes: "0", Reasons: []karpv1.DisruptionReason{"Drifted"}},
}

// smallest returns the pool and class of the smallest Provisioner.
func smallest() (*karpv1.NodePool, *ec2nc.EC2NodeClass) {
	np := &karpv1.NodePool{
		TypeMeta:   metav1.TypeMeta{APIVersion: "karpenter.sh/v1", Kind: "NodePool"},
		ObjectMeta: metav1.ObjectMeta{Name: "provisioner_old", Annotations: map[string]string{"dovetail.sh/origin": "old"}},
		Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "provisioner_old"},
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{linux, amd64, onDemand, general, recent},
				ExpireAfter:  karpv1.MustParseNillableDuration("Never"),
			}},
			Disruption: karpv1.Disruption{
				ConsolidationPolicy: "WhenEmpty", ConsolidateAfter: karpv1.MustParseNillableDuration("Never"), Budgets: budgets,
			},
		},
	}
	nc := &ec2nc.EC2NodeClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: "karpenter.k8s.aws/v1", Kind: "EC2NodeClass"},
		ObjectMeta: metav1.ObjectMeta{Name: "provisioner_old", Annotations: map[string]string{"dovetail.sh/origin": "old"}},
		Spec: ec2nc.EC2NodeClassSpec{
			SubnetSelectorTerms:        []ec2nc.SubnetSelectorTerm{{Tags: map[string]string{"team": "a"}}},
			SecurityGroupSelectorTerms: []ec2nc.SecurityGroupSelectorTerm{{Tags: map[string]string{"team": "a"}}},
			AMIFamily:                  ptr.To("AL2023"),
			AMISelectorTerms:           []ec2nc.AMISelectorTerm{{Alias: "al2023@latest"}},
			InstanceProfile:            ptr.To("p"),
			Tags:                       map[string]string{"Name": "karpenter.sh/provisioner-name/old", "karpenter.sh/provisioner-name": "old"},
			MetadataOptions: &ec2nc.MetadataOptions{
				HTTPEndpoint: ptr.To("enabled"), HTTPProtocolIPv6: ptr.To("disabled"), HTTPPutResponseHopLimit: ptr.To[int64](2), HTTPTokens: ptr.To("required"),
			},
		},
	}
	return np, nc
}

type change = func(np *karpv1.NodePool, nc *ec2nc.EC2NodeClass)

func TestFromProvisioner(t *testing.T) {
	template := func(np *karpv1.NodePool) *karpv1.NodeClaimTemplateSpec { return &np.Spec.Template.Spec }
	instead := func(rs ...karpv1.NodeSelectorRequirementWithMinValues) change {
		return func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) { template(np).Requirements = rs }
	}
	fields := newDrivenFields(t, Provisioners)
	for _, tc := range []struct {
		name string
		spec string
		want change // relative to the result of smallest
	}{
		{"the smallest", inline + `}`, func(*karpv1.NodePool, *ec2nc.EC2NodeClass) {}},
		{"labels", inline + `, labels: {node-type: worker}}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			np.Spec.Template.Labels = map[string]string{"node-type": "worker"}
		}},
		{"annotations", inline + `, annotations: {example.com/Note: "any text"}}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			np.Spec.Template.Annotations = map[string]string{"example.com/Note": "any text"}
		}},
		{"taints", inline + `, taints: [{key: gpu, value: "yes", effect: NoSchedule}]}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			template(np).Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}}
		}},
		{"startupTaints", inline + `, startupTaints: [{key: cni, effect: NoExecute}]}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			template(np).StartupTaints = []corev1.Taint{{Key: "cni", Effect: "NoExecute"}}
		}},
		{"taints with all that they have", inline + `, taints: [{key: a, effect: NoExecute, timeAdded: "2023-03-01T12:00:00Z"}], startupTaints: [{key: cni, value: b, effect: NoSchedule, timeAdded: "2023-03-01T12:00:00Z"}]}`,
			func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
				at := metav1.NewTime(time.Date(2023, 3, 1, 12, 0, 0, 0, time.UTC).Local())
				template(np).Taints = []corev1.Taint{{Key: "a", Effect: "NoExecute", TimeAdded: &at}}
				template(np).StartupTaints = []corev1.Taint{{Key: "cni", Value: "b", Effect: "NoSchedule", TimeAdded: &at}}
			}},
		{"requirements: instance types leave families alone", inline + `, requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}]}`,
			instead(req(corev1.LabelInstanceTypeStable, "In", "m5.large"), linux, amd64, onDemand)},
		{"requirements: so does an older spelling", inline + `, requirements: [{key: beta.kubernetes.io/instance-type, operator: In, values: [m5.large]}]}`,
			instead(req(corev1.LabelInstanceType, "In", "m5.large"), linux, amd64, onDemand)},
		{"requirements: so does a family", inline + `, requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [m5]}]}`,
			instead(req(ec2nc.LabelInstanceFamily, "In", "m5"), linux, amd64, onDemand)},
		{"requirements: so does a category", inline + `, requirements: [{key: karpenter.k8s.aws/instance-category, operator: NotIn, values: [t]}]}`,
			instead(req(ec2nc.LabelInstanceCategory, "NotIn", "t"), linux, amd64, onDemand)},
		{"requirements: so does a generation", inline + `, requirements: [{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["5"]}]}`,
			instead(req(ec2nc.LabelInstanceGeneration, "Gt", "5"), linux, amd64, onDemand)},
		{"requirements: those that are there are no defaults", inline + `, requirements: [{key: kubernetes.io/os, operator: Exists}, {key: kubernetes.io/arch, operator: In, values: [arm64, amd64]}, {key: karpenter.sh/capacity-type, operator: In, values: [spot]}]}`,
			instead(req(corev1.LabelOSStable, "Exists"), req(corev1.LabelArchStable, "In", "arm64", "amd64"), req(karpv1.CapacityTypeLabelKey, "In", "spot"), general, recent)},
		{"requirements: a label says as much", inline + `, labels: {kubernetes.io/arch: arm64}}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			np.Spec.Template.Labels = map[string]string{corev1.LabelArchStable: "arm64"}
			template(np).Requirements = []karpv1.NodeSelectorRequirementWithMinValues{linux, onDemand, general, recent}
		}},
		{"requirements: every operator", inline + `, requirements: [{key: a, operator: In, values: [x]}, {key: b, operator: NotIn, values: [x]}, {key: c, operator: Exists}, {key: d, operator: DoesNotExist}, {key: e, operator: Gt, values: ["1"]}, {key: f, operator: Lt, values: ["9"]}]}`,
			instead(req("a", "In", "x"), req("b", "NotIn", "x"), req("c", "Exists"), req("d", "DoesNotExist"), req("e", "Gt", "1"), req("f", "Lt", "9"), linux, amd64, onDemand, general, recent)},
		{"ttlSecondsAfterEmpty", inline + `, ttlSecondsAfterEmpty: 30}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			np.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("30s")
		}},
		{"ttlSecondsAfterEmpty: at once", inline + `, ttlSecondsAfterEmpty: 0}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			np.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
		}},
		{"ttlSecondsUntilExpired", inline + `, ttlSecondsUntilExpired: 2592000}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			template(np).ExpireAfter = karpv1.MustParseNillableDuration("720h")
		}},
		{"ttlSecondsUntilExpired: the longest", inline + `, ttlSecondsUntilExpired: 9000000000}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			template(np).ExpireAfter = karpv1.MustParseNillableDuration((9000000000 * time.Second).String())
		}},
		{"consolidation", inline + `, consolidation: {enabled: true}}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			np.Spec.Disruption.ConsolidationPolicy = "WhenEmptyOrUnderutilized"
			np.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("15s")
		}},
		{"consolidation that is off goes with a ttl", inline + `, consolidation: {enabled: false}, ttlSecondsAfterEmpty: 60}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			np.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("60s")
		}},
		{"limits", inline + `, limits: {resources: {cpu: 1000, memory: 10Gi}}}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) {
			np.Spec.Limits = karpv1.Limits{"cpu": resource.MustParse("1000"), "memory": resource.MustParse("10Gi")}
		}},
		{"weight", inline + `, weight: 50}`, func(np *karpv1.NodePool, _ *ec2nc.EC2NodeClass) { np.Spec.Weight = ptr.To[int32](50) }},
		{"kubeletConfiguration", inline + `, kubeletConfiguration: {clusterDNS: [10.0.1.100], containerRuntime: containerd, maxPods: 20, podsPerCore: 2,
			systemReserved: {cpu: 100m, memory: 100Mi, ephemeral-storage: 1Gi, pid: 1000}, kubeReserved: {cpu: 200m}, evictionHard: {memory.available: 5%}, evictionSoft: {nodefs.available: 1Gi},
			evictionSoftGracePeriod: {nodefs.available: 1m}, evictionMaxPodGracePeriod: 60, imageGCHighThresholdPercent: 85, imageGCLowThresholdPercent: 80, cpuCFSQuota: false}}`,
			func(_ *karpv1.NodePool, nc *ec2nc.EC2NodeClass) {
				nc.Spec.Kubelet = &ec2nc.KubeletConfiguration{
					ClusterDNS: []string{"10.0.1.100"}, MaxPods: ptr.To[int32](20), PodsPerCore: ptr.To[int32](2),
					SystemReserved: map[string]string{"cpu": "100m", "memory": "100Mi", "ephemeral-storage": "1Gi", "pid": "1k"},
					KubeReserved:   map[string]string{"cpu": "200m"}, EvictionHard: map[string]string{"memory.available": "5%"},
					EvictionSoft: map[string]string{"nodefs.available": "1Gi"}, EvictionSoftGracePeriod: map[string]metav1.Duration{"nodefs.available": {Duration: time.Minute}},
					EvictionMaxPodGracePeriod: ptr.To[int32](60), ImageGCHighThresholdPercent: ptr.To[int32](85), ImageGCLowThresholdPercent: ptr.To[int32](80),
					CPUCFSQuota: ptr.To(false),
				}
			}},
		{"providerRef", byRef + `}`, func(*karpv1.NodePool, *ec2nc.EC2NodeClass) {}},
		{"providerRef with its kind", `{providerRef: {apiVersion: karpenter.k8s.aws/v1alpha1, kind: AWSNodeTemplate, name: t}}`, func(*karpv1.NodePool, *ec2nc.EC2NodeClass) {}},
		{"provider with its kind", `{provider: {apiVersion: extensions.karpenter.sh/v1alpha1, kind: AWS, subnetSelector: {team: a}, securityGroupSelector: {team: a}, instanceProfile: p}}`,
			func(*karpv1.NodePool, *ec2nc.EC2NodeClass) {}},
	} {
		fields.by(tc.spec)
		t.Run(tc.name, func(t *testing.T) {
			np, nc := smallest()
			tc.want(np, nc)
			gotPool, gotClass, errs := fromProvisioner(provisioner(t, tc.spec), nodeTemplate(t, settled+`}`), nodeclass.Legacy{})
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			same(t, "pool", np, gotPool)
			same(t, "class", nc, gotClass)
			if errs := ValidatePool(gotPool, classKind); len(errs) > 0 {
				t.Errorf("the pool is refused: %v", errs.ToAggregate())
			}
			refusedByDefinition(t, Provisioners, tc.spec, "")
		})
	}
	fields.all("", "provider.") // TestClassOfAWSSettings covers the rest
}

// Pods can select a Provisioner's pool by the labels of both API generations.
func TestProvisionerPoolLabels(t *testing.T) {
	np, _, errs := fromProvisioner(provisioner(t, inline+`, labels: {node-type: worker}}`), nil, nodeclass.Legacy{})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	p := PoolOf(np, classKind)
	if p.Unready != "" {
		t.Fatal(p.Unready)
	}
	want := map[string]string{
		"node-type": "worker", "karpenter.sh/nodepool": "provisioner_old", "karpenter.sh/provisioner-name": "old",
		"karpenter.k8s.aws/ec2nodeclass": "provisioner_old",
	}
	for key, value := range want {
		if p.Labels[key] != value {
			t.Errorf("label %s is %q, want %q", key, p.Labels[key], value)
		}
		if only, ok := p.Requirements[key].Single(); !ok || only != value {
			t.Errorf("requirement on %s: %v, want only %q", key, p.Requirements[key], value)
		}
	}
	// An API server accepts the claim, and the claim belongs to the Provisioner.
	np.UID = "uid"
	nc, err := NodeClaimOf(testClaim("provisioner-old-x", func(c *capacity.Claim) { c.Pool = np.Name; c.Labels = nil }), np, &Batches{})
	if err != nil {
		t.Fatal(err)
	}
	nc.SetGroupVersionKind(NodeClaims.GroupVersionKind)
	if err := acceptable(nc, ""); err != nil {
		t.Error(err)
	}
	if nc.Labels[legacy.ProvisionerNameLabel] != "old" || nc.Labels[karpv1.NodePoolLabelKey] != "provisioner_old" {
		t.Errorf("labels of the claim: %v", nc.Labels)
	}
	if diff := cmp.Diff([]metav1.OwnerReference{{APIVersion: "karpenter.sh/v1alpha5", Kind: "Provisioner", Name: "old", UID: "uid", BlockOwnerDeletion: ptr.To(true)}}, nc.OwnerReferences); diff != "" {
		t.Errorf("owner (-want +got):\n%s", diff)
	}
}

func TestDerivedNames(t *testing.T) {
	long := "a123456789-b123456789-c123456789-d123456789-e123456789-f123456"
	for in, want := range map[string]string{
		"default":  "provisioner_default",
		"a.b-c":    "provisioner_a.b-c",
		long[:51]:  "provisioner_" + long[:51],
		long[:52]:  PoolOfProvisioner(long[:52]),
		long:       PoolOfProvisioner(long),
		long + "x": PoolOfProvisioner(long + "x"),
	} {
		got := PoolOfProvisioner(in)
		if got != want || len(got) > 63 || !Derived(got) {
			t.Errorf("%q is called %q, want %q", in, got, want)
		}
	}
	if a, b := PoolOfProvisioner(long), PoolOfProvisioner(long+"x"); a == b {
		t.Errorf("two long names share %q", a)
	}
	if PoolOfProvisioner("x") == PoolOfArgs("x") || Derived("an-object.of-the-api") {
		t.Error("names of different sources can't be told apart")
	}
}
