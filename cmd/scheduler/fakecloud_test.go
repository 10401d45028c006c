package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/fakecloud"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// TestFakeCloud runs the whole program on a cloud that isn't AWS, with a node class of another kind: a pod gets a node, the node drifts for a
// reason of that cloud, and when the pod is gone, so are the node and its instance.
func TestFakeCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, api, fake := onFakeCloud(t)
		kube := kubernetes.NewForConfigOrDie(api.Client().Config())
		create(t, api, karpenter.NodePools.GroupVersion().WithResource(karpenter.NodePools.Resource), karpenter.NodePools.Kind, poolOfFakeCloud())
		pods := kube.CoreV1().Pods(metav1.NamespaceDefault)
		if _, err := pods.Create(ctx, podForFakeCloud(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		var pod *corev1.Pod
		within(t, 10*time.Minute, func() (err error) {
			if pod, err = pods.Get(ctx, "web", metav1.GetOptions{}); err == nil && pod.Spec.NodeName == "" {
				err = fmt.Errorf("the pod is not bound: %v", pod.Status.Conditions)
			}
			return err
		})
		instances, err := fake.List(ctx)
		if err != nil || len(instances) != 1 || pod.Spec.NodeName != instances[0].NodeName {
			t.Fatalf("the pod is on %q, the cloud has %v (%v)", pod.Spec.NodeName, instances, err)
		}
		node, err := kube.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if label := fakecloud.Kind.Label().Key; !strings.HasPrefix(node.Spec.ProviderID, "fake://") || node.Labels[karpv1.NodePoolLabelKey] != "main" || node.Labels[label] != "main" {
			t.Errorf("provider ID %s, labels %v", node.Spec.ProviderID, node.Labels)
		}

		fake.Drift("main", "MachineDrift")
		within(t, 10*time.Minute, func() error {
			claims, err := dynamic.NewForConfigOrDie(api.Client().Config()).Resource(karpenter.NodeClaims.GroupVersion().WithResource(karpenter.NodeClaims.Resource)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if raw, err := claims.MarshalJSON(); err != nil || !strings.Contains(string(raw), `"reason":"MachineDrift"`) {
				return fmt.Errorf("no claim has drifted: %s, %v", raw, err)
			}
			return nil
		})

		if err := pods.Delete(ctx, "web", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
			t.Fatal(err)
		}
		within(t, 10*time.Minute, func() error {
			nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if instances, err := fake.List(ctx); err != nil || len(instances)+len(nodes.Items) > 0 {
				return fmt.Errorf("the cloud still has %v (%v), the cluster %v", instances, err, nodes.Items)
			}
			return nil
		})
	})
}

// onFakeCloud starts the whole program, which ends with the test, on a fake cloud and a cluster with its namespaces and a node class.
func onFakeCloud(t *testing.T) (context.Context, *kubeapi.Server, *fakecloud.Cloud) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, stop := context.WithCancel(ctx)
	api := kubeapi.New(karpenter.Scheme(fakecloud.Kind), clock.RealClock{})
	kube := kubernetes.NewForConfigOrDie(api.Client().Config())
	fake := fakecloud.New(kube)
	ended := make(chan error, 1)
	go func() {
		ended <- hostOn(ctx, onCloud(fake.Value()), chaos.Process{Kube: api.Client(), Clock: clock.RealClock{}}, hostedConfig, nil)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-time.After(2 * time.Second) // the scheduler's recorders of metrics end within a second
	})
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, corev1.NamespaceNodeLease} {
		if _, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(t, api, fakecloud.Kind.GroupVersion().WithResource(fakecloud.Kind.Resource), fakecloud.Kind.Kind,
		&v1alpha1.TestNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "main"}})
	return ctx, api, fake
}

// within calls f every second until it returns nil.
func within(t *testing.T, limit time.Duration, f func() error) {
	t.Helper()
	var err error
	for range limit / time.Second {
		<-time.After(time.Second)
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("not within %v: %v", limit, err)
}

func create(t *testing.T, api *kubeapi.Server, resource schema.GroupVersionResource, kind string, o any) {
	t.Helper()
	content, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(content, &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	if _, err := dynamic.NewForConfigOrDie(api.Client().Config()).Resource(resource).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func poolOfFakeCloud() *karpv1.NodePool {
	return &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "main"},
		Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: fakecloud.Kind.Group, Kind: fakecloud.Kind.Kind, Name: "main"},
				ExpireAfter:  karpv1.MustParseNillableDuration("Never"),
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}},
			}},
			Disruption: karpv1.Disruption{ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty, ConsolidateAfter: karpv1.MustParseNillableDuration("30s"),
				Budgets: []karpv1.Budget{{Nodes: "100%"}}},
		},
	}
}

func podForFakeCloud() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.PodSpec{
			SchedulerName: "dovetail-scheduler", RestartPolicy: corev1.RestartPolicyAlways, Priority: ptr.To[int32](0), TerminationGracePeriodSeconds: ptr.To[int64](5),
			Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/web", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}}}},
		},
	}
}
