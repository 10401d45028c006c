package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// deviceClass is what an administrator applies: a device class, and what a pod's claim asks for.
const deviceClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu, namespace: default}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].model == "A10G"'}}]}}]}}}
`

// devicesDeclared is the annotation of the node class.
const devicesDeclared = `
  annotations:
    dovetail.sh/devices: |
      - {instanceTypes: [m5.xlarge], driver: gpu.example.com, count: 2, attributes: {model: {string: A10G}}}
`

// gpuDriver publishes the devices of nodes once they are Ready, by instance type, and makes claims from templates as kube-controller-manager does.
func gpuDriver(e *env, devices map[string]int) {
	e.Helper()
	ctx := ktesting.Init(e.T)
	kube := kubernetes.NewForConfigOrDie(e.c.AdminConfig())
	f := informers.NewSharedInformerFactory(kube, 0)
	claims, err := resourceclaim.NewController(ctx.Logger(), resourceclaim.Features{PrioritizedList: true}, kube, f.Core().V1().Pods(), nil,
		f.Resource().V1().ResourceClaims(), f.Resource().V1().ResourceClaimTemplates())
	if err != nil {
		e.Fatal(err)
	}
	publish := func(o any) {
		n := o.(*corev1.Node)
		count := devices[n.Labels[corev1.LabelInstanceTypeStable]]
		if count == 0 || !cluster.Ready(n) {
			return
		}
		s := &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name + "-gpus", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}},
			Spec:       resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &n.Name, Pool: resourcev1.ResourcePool{Name: n.Name, ResourceSliceCount: 1}},
		}
		for i := range count {
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"model": {StringValue: ptr.To("A10G")}, "uuid": {StringValue: ptr.To(fmt.Sprintf("%s-%d", n.UID, i))}}})
		}
		if _, err := kube.ResourceV1().ResourceSlices().Create(ctx, s, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
			e.Errorf("publishing the devices of %s: %v", n.Name, err)
		}
	}
	if _, err := f.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: publish, UpdateFunc: func(_, o any) { publish(o) }}); err != nil {
		e.Fatal(err)
	}
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	go claims.Run(ctx, 2)
}

func withGPU(p *corev1.Pod) {
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpu")}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
}

func inPool(name string) podOpt {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"karpenter.sh/nodepool": name} }
}

// ofType returns the pool's manifest with one instance type, and another name for it and its class.
func ofType(manifest, name, instanceType string) string {
	manifest = strings.ReplaceAll(manifest, "name: default", "name: "+name)
	return strings.Replace(manifest, "      requirements:\n", "      requirements:\n        - {key: node.kubernetes.io/instance-type, operator: In, values: ["+instanceType+"]}\n", 1)
}

// Pods with ResourceClaims get nodes where it is known which devices a new node has: because its class declares them, or because a node of its
// class and type has published them. For a pod of which that isn't known nothing is bought, and an event says how to declare it.
func TestDynamicResources(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		s.config = func(cfg cluster.Config) { cfg.SetProvisionArgs(map[string]any{"dynamicResources": true}) }
	})
	gpuDriver(e, map[string]int{"m5.xlarge": 2, "c5.xlarge": 1})
	e.apply(deviceClass, strings.Replace(nodeClass, "metadata: {name: default}", "metadata:\n  name: default"+devicesDeclared, 1), ofType(nodePool, "default", "m5.xlarge"),
		strings.ReplaceAll(nodeClass, "name: default", "name: silent"), ofType(nodePool, "silent", "c5.xlarge"))

	// By declaration: three pods, of which two fit on a node.
	e.pods("train", 3, "100m", "128Mi", withGPU, inPool("default"))
	perNode := map[string]int{}
	for _, p := range e.bound("train", 3) {
		perNode[p.Spec.NodeName]++
	}
	if got := slices.Sorted(maps.Values(perNode)); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("pods by node: %v", perNode)
	}
	if n := e.launches(); n != 2 {
		t.Errorf("%d instances for three pods, of which two fit on each", n)
	}
	e.allocated("train", 3)
	e.pods("fourth", 1, "100m", "128Mi", withGPU, inPool("default"))
	e.bound("fourth", 1)
	if n := e.launches(); n != 2 {
		t.Errorf("%d instances, though a device was free", n)
	}

	// Nothing is known about the other class: nothing is bought.
	e.pods("infer", 2, "100m", "128Mi", withGPU, inPool("silent"))
	e.eventSays("infer-0", "FailedScheduling", "annotation dovetail.sh/devices of the node class")
	if n := e.launches(); n != 2 {
		t.Errorf("%d instances, though nobody knows the devices of the other class", n)
	}

	// Until a node of it shows what it has.
	e.pods("web", 1, "100m", "128Mi", inPool("silent"))
	e.bound("web", 1)
	if on := nodesOf(e.bound("infer", 2)); len(on) != 2 {
		t.Errorf("two pods are on %v, which have a device each", on)
	}
	if n := e.launches(); n != 4 {
		t.Errorf("%d instances, want two more for the other class", n)
	}
	e.allocated("infer", 2)

	// A node class whose annotation can't be read declares nothing, and says so.
	e.patch(&ec2nc.EC2NodeClass{}, "silent", `{"metadata":{"annotations":{"dovetail.sh/devices":"- {driver: gpu.example.com}"}}}`)
	e.eventSays("silent", "InvalidDevices", "annotation dovetail.sh/devices of node class silent entry 0: instanceTypes")
}

// allocated checks that each pod of the application has devices of its own node.
func (e *env) allocated(app string, n int) {
	e.Helper()
	pods, err := cluster.UntilPods(e.wait(), e.api, n, cluster.Bound, client.InNamespace("default"), client.MatchingLabels{"app": app})
	if err != nil {
		e.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range pods {
		for _, st := range p.Status.ResourceClaimStatuses {
			rc := &resourcev1.ResourceClaim{}
			if err := e.api.Get(e.ctx, client.ObjectKey{Namespace: "default", Name: *st.ResourceClaimName}, rc); err != nil {
				e.Fatal(err)
			}
			if rc.Status.Allocation == nil || len(rc.Status.Allocation.Devices.Results) != 1 {
				e.Errorf("claim %s of pod %s on %s: %+v", rc.Name, p.Name, p.Spec.NodeName, rc.Status)
				continue
			}
			r := rc.Status.Allocation.Devices.Results[0]
			if device := r.Pool + "/" + r.Device; r.Pool != p.Spec.NodeName || seen[device] {
				e.Errorf("pod %s on %s has %s, which isn't its own", p.Name, p.Spec.NodeName, device)
			} else {
				seen[device] = true
			}
		}
	}
	if len(seen) != n {
		e.Errorf("%d devices are allocated, want %d", len(seen), n)
	}
}
