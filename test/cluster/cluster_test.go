package cluster

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// TestStart uses one cluster for all its checks, because starting it is most of the cost.
func TestStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	begin := time.Now()
	c, err := Start(ctx, Options{ControllerManager: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	t.Logf("started in %v", time.Since(begin))

	scheduler := kubernetes.NewForConfigOrDie(c.SchedulerConfig())
	for _, tc := range []struct {
		name, verb, group, resource, namespace, object string
		want                                           bool
	}{
		{"creates nodes ahead of their kubelets", "create", "", "nodes", "", "", true},
		{"evicts", "create", "", "pods/eviction", "default", "web", true},
		{"writes claims", "create", "karpenter.sh", "nodeclaims", "", "", true},
		{"renews its own lease", "update", "coordination.k8s.io", "leases", "kube-system", "dovetail-scheduler", true},
		{"leaves the leases of others alone", "update", "coordination.k8s.io", "leases", "kube-system", "some-controller", false},
		{"renews leases of booting nodes", "update", "coordination.k8s.io", "leases", "kube-node-lease", "ip-10-0-0-1", true},
		{"makes no pods", "create", "", "pods", "default", "", false},
		{"reads no secrets", "get", "", "secrets", "kube-system", "", false},
		{"changes no pools", "update", "karpenter.sh", "nodepools", "", "default", false},
	} {
		resource, sub, _ := strings.Cut(tc.resource, "/")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: tc.verb, Group: tc.group, Resource: resource, Subresource: sub, Namespace: tc.namespace, Name: tc.object},
		}}
		got, err := scheduler.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.Allowed != tc.want {
			t.Errorf("the scheduler %s: allowed %v, want %v", tc.name, got.Status.Allowed, tc.want)
		}
	}
	custom, err := client.New(c.SchedulerConfig(), client.Options{Scheme: Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := custom.List(ctx, &karpv1.NodePoolList{}); err != nil {
		t.Errorf("listing node pools as the scheduler: %v", err)
	}

	testUntil(ctx, t, c)

	pids := []int{}
	for _, p := range c.processes {
		pids = append(pids, p.pid)
	}
	begin = time.Now()
	c.Stop()
	t.Logf("stopped in %v", time.Since(begin))
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there after Stop", pid)
		}
	}
	if _, err := os.Stat(c.Dir); !os.IsNotExist(err) {
		t.Errorf("the temporary directory is still there after Stop: %v", err)
	}
}

// testUntil waits for the pods that kube-controller-manager creates for a ReplicaSet, which appear some time after the first list.
func testUntil(ctx context.Context, t *testing.T, c *Cluster) {
	labels := map[string]string{"app": "web"}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](20),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}
	if err := c.Create(ctx, set); err != nil {
		t.Fatal(err)
	}
	pending := func(pod *corev1.Pod) bool { return !Bound(pod) }
	if _, err := UntilPods(ctx, c.Client(), 20, pending, client.InNamespace("default"), client.MatchingLabels(labels)); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := UntilPods(short, c.Client(), 20, Bound, client.InNamespace("default"))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "of 20 that exist 0 are as wanted") {
		t.Errorf("waiting for what nobody does: got %v, want a deadline and what is missing", err)
	}
}
