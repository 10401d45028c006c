package integration

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// provisioner is a typical existing Provisioner, unchanged.
const provisioner = `
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: default}
spec:
  labels: {node-type: worker}
  requirements:
    - {key: karpenter.sh/capacity-type, operator: In, values: ["spot"]}
    - {key: node.kubernetes.io/instance-type, operator: In, values: ["m5.large", "m5.xlarge", "c5.xlarge"]}
  limits: {resources: {cpu: 1000}}
  provider:
    subnetSelector: {kubernetes.io/cluster/demo: '*'}
    securityGroupSelector: {"aws:eks:cluster-name": demo}
    instanceProfile: KarpenterNodeInstanceProfile-demo
  ttlSecondsAfterEmpty: 30
`

// demo starts the account that the Provisioner is written for. It also has a subnet of another cluster.
func demo(t *testing.T, set func(*setting)) (e *env, others string) {
	e = start(t, func(s *setting) {
		s.idle = true
		s.sim.Cluster, s.sim.InstanceProfile = "demo", "KarpenterNodeInstanceProfile-demo"
		if set != nil {
			set(s)
		}
	})
	others = e.sim.AddSubnet(e.sim.Zones()[0], map[string]string{"Name": "others"})
	e.options.Config.SetProvisionArgs(map[string]any{"clusterName": "demo"})
	return e, others
}

// workers checks that the pods' node is the requested one, and that it is terminated after the pods are deleted.
func (e *env) workers(others, pool string, soon func()) *corev1.Node {
	e.Helper()
	e.pods("web", 3, "500m", "512Mi")
	pods := e.running("web", 3)
	e.settled(1)
	in := e.sim.Live()[0]
	if !slices.Contains([]string{"m5.large", "m5.xlarge", "c5.xlarge"}, in.Type) || in.CapacityType != "spot" || in.Profile != "KarpenterNodeInstanceProfile-demo" {
		e.Errorf("launched a %s %s with profile %s", in.CapacityType, in.Type, in.Profile)
	}
	if in.SubnetID == others || in.SubnetID == "" {
		e.Errorf("launched in subnet %q, which has not the tag", in.SubnetID)
	}
	node := e.nodes()[pods[0].Spec.NodeName]
	for key, value := range map[string]string{
		"node-type": "worker", "karpenter.sh/nodepool": pool, "karpenter.sh/capacity-type": "spot", corev1.LabelInstanceTypeStable: in.Type,
	} {
		if node.Labels[key] != value {
			e.Errorf("label %s of the node is %q, want %q", key, node.Labels[key], value)
		}
	}
	for i := range pods {
		if err := e.api.Delete(e.ctx, pods[i], client.GracePeriodSeconds(0)); err != nil {
			e.Fatal(err)
		}
	}
	soon()
	e.settled(0)
	return node
}

func TestProvisionerAsItStands(t *testing.T) {
	t.Parallel()
	e, others := demo(t, nil)
	e.apply(provisioner)
	e.run()
	node := e.workers(others, "provisioner_default", func() {
		// The test of the original 30 seconds runs in virtual time (pkg/disruption).
		e.patch(&legacy.Provisioner{}, "default", `{"spec":{"ttlSecondsAfterEmpty":1}}`)
	})
	if got := node.Labels["karpenter.sh/provisioner-name"]; got != "default" {
		t.Errorf("label karpenter.sh/provisioner-name is %q", got)
	}
	if _, err := cluster.Until(e.wait(), e.api, &legacy.ProvisionerList{}, func(all []*legacy.Provisioner) (bool, string, error) {
		p := all[0]
		ok := p.StatusConditions().Root().IsTrue() && p.Status.Nodes != nil && *p.Status.Nodes == 0
		return ok, "the Provisioner to be ready, with no node left", nil
	}); err != nil {
		t.Error(err)
	}

	// When the Provisioner is deleted, its nodes are terminated.
	e.pods("again", 1, "500m", "512Mi")
	e.running("again", 1)
	claim := e.claimsOf("provisioner_default")[0]
	if err := e.api.Delete(e.ctx, &legacy.Provisioner{ObjectMeta: metav1.ObjectMeta{Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	e.gone(claim)
	e.settled(0)
}

// demoClass and demoPool are the equivalent objects in the current API.
const demoClass = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  instanceProfile: KarpenterNodeInstanceProfile-demo
  subnetSelectorTerms: [{tags: {kubernetes.io/cluster/demo: '*'}}]
  securityGroupSelectorTerms: [{tags: {"aws:eks:cluster-name": demo}}]
`

const demoPool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    metadata: {labels: {node-type: worker}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: ["spot"]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: ["m5.large", "m5.xlarge", "c5.xlarge"]}
      expireAfter: Never
  limits: {cpu: 1000}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 30s}
`

func TestSameIntentAsNodePool(t *testing.T) {
	t.Parallel()
	e, others := demo(t, nil)
	e.apply(demoClass, demoPool)
	e.run()
	node := e.workers(others, "default", func() {
		e.patch(&karpv1.NodePool{}, "default", `{"spec":{"disruption":{"consolidateAfter":"1s"}}}`)
	})
	if got, there := node.Labels["karpenter.sh/provisioner-name"]; there {
		t.Errorf("label karpenter.sh/provisioner-name is %q, and there is no Provisioner", got)
	}
}

// The equivalent configuration without any object: of the CustomResourceDefinitions, only that of NodeClaims is installed.
func TestSameIntentAsArguments(t *testing.T) {
	t.Parallel()
	e, others := demo(t, nil)
	e.noDefinitions("nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws", "nodeoverlays.karpenter.sh", "provisioners.karpenter.sh",
		"awsnodetemplates.karpenter.k8s.aws")
	spec := func(manifest string, change func(spec map[string]any)) map[string]any {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
			t.Fatal(err)
		}
		spec := object["spec"].(map[string]any)
		change(spec)
		return map[string]any{"name": "default", "spec": spec}
	}
	e.options.Config.SetProvisionArgs(map[string]any{
		"nodePools": []any{spec(demoPool, func(spec map[string]any) {
			spec["disruption"].(map[string]any)["consolidateAfter"] = "1s" // it can't be changed later, unlike that of an object
		})},
		"ec2NodeClasses": []any{spec(demoClass, func(map[string]any) {})},
	})
	e.run()
	e.workers(others, "args_default", func() {})
	shown, err := e.sched.Get(e.ctx, "/configz")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"dovetail":{`, `"kind":"Effective","apiVersion":"config.dovetail.sh/v1alpha1"`, `"maxClaimsInFlight":1000`, `"name":"args_default"`, `"instanceProfile":"KarpenterNodeInstanceProfile-demo"`} {
		if !strings.Contains(string(shown), want) {
			t.Errorf("/configz does not show %s: %s", want, shown)
		}
	}
	log, err := e.sched.Log()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log, "Dovetail's arguments, with defaults") {
		t.Error("the log does not say what is in effect")
	}
	for _, want := range []string{`"Starting Dovetail" version="0.2.0" kubernetesVersion="` + cluster.LinkVersion + `"`, `version="` + cluster.LinkVersion + `+dovetail-0.2.0"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %s", want)
		}
	}
	if e.metric("dovetail_build_info", `,version="0.2.0"`, `kubernetes_version="`+cluster.LinkVersion+`"`) != 1 {
		t.Error("there is no dovetail_build_info of this build")
	}
	if strings.Contains(log, "Failed to watch") {
		t.Error("definitions that nobody needs are complained about")
	}
}

// noDefinitions deletes CustomResourceDefinitions and waits until they are gone. It removes their finalizer itself: no objects exist
// that would have to be cleaned up, and the controller that removes it may miss a definition established a moment ago until its next
// resync, five minutes later.
func (e *env) noDefinitions(names ...string) {
	e.Helper()
	for _, name := range names {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		crd.Name = name
		if err := e.api.Delete(e.ctx, crd); err != nil {
			e.Fatal(err)
		}
		if err := e.api.Patch(e.ctx, crd, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
			e.Fatal(err)
		}
	}
	if _, err := cluster.Until(e.wait(), e.api, &apiextensionsv1.CustomResourceDefinitionList{}, func(all []*apiextensionsv1.CustomResourceDefinition) (bool, string, error) {
		for _, crd := range all {
			if slices.Contains(names, crd.Name) {
				return false, "definition " + crd.Name + " to be gone", nil
			}
		}
		return true, "", nil
	}); err != nil {
		e.Fatal(err)
	}
}
