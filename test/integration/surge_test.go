package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/test/utils/ktesting"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/cluster/inprocess"
	"github.com/dovetail-scheduler/dovetail/test/record"
)

// The role dovetail-surge gives the scheduler's account the right to restart Deployments, and its policy takes away all else of the right to
// patch them.
func TestPolicyOfSurges(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	c := inprocess.Start(t)
	admin, us := kubernetes.NewForConfigOrDie(c.AdminConfig()), kubernetes.NewForConfigOrDie(c.SchedulerConfig())
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"team": "a"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}}}
	bare := d.DeepCopy()
	bare.Name, bare.Spec.Template.Annotations = "bare", nil
	for _, one := range []*appsv1.Deployment{d, bare} {
		if _, err := admin.AppsV1().Deployments("default").Create(ctx, one, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	may := func() bool {
		got, err := us.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Group: "apps", Resource: "deployments"}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status.Allowed
	}
	if may() {
		t.Error("Dovetail may patch Deployments without the role")
	}
	files, err := manifests.Folder("surge")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := c.Apply(ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(name, body string) error {
		_, err := us.AppsV1().Deployments("default").Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	// Role and policy take effect some time after they are written; what is tried meanwhile changes nothing.
	if err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		_, err := us.AppsV1().Deployments("default").Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return may() && err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"), nil
	}); err != nil {
		t.Fatalf("the policy has no effect: %v", err)
	}
	const restart = `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"`
	for _, tc := range []struct {
		name, deployment, patch string
		allowed                 bool
	}{
		{"restart", "web", restart + `2026-03-01T12:00:00Z"}}}}}`, true},
		{"restart again", "web", restart + `2026-03-01T12:15:00Z"}}}}}`, true},
		{"restart one whose pods have no annotations", "bare", restart + `2026-03-01T12:00:00Z"}}}}}`, true},
		{"nothing", "web", `{}`, true},
		{"forget the restart", "web", `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":null}}}}}`, false},
		{"image", "web", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`, false},
		{"restart and image", "web", `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"x"}},"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`, false},
		{"service account", "web", `{"spec":{"template":{"spec":{"serviceAccountName":"admin"}}}}`, false},
		{"replicas", "web", `{"spec":{"replicas":3}}`, false},
		{"strategy", "web", `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`, false},
		{"pause", "web", `{"spec":{"paused":true}}`, false},
		{"minReadySeconds", "web", `{"spec":{"minReadySeconds":5}}`, false},
		{"history", "web", `{"spec":{"revisionHistoryLimit":0}}`, false},
		{"deadline", "web", `{"spec":{"progressDeadlineSeconds":5}}`, false},
		{"another annotation of pods", "web", `{"spec":{"template":{"metadata":{"annotations":{"team":"b"}}}}}`, false},
		{"a new annotation of pods", "bare", `{"spec":{"template":{"metadata":{"annotations":{"karpenter.sh/do-not-disrupt":"true"}}}}}`, false},
		{"an annotation less", "web", `{"spec":{"template":{"metadata":{"annotations":{"team":null}}}}}`, false},
		{"labels of pods", "web", `{"spec":{"template":{"metadata":{"labels":{"more":"x"}}}}}`, false},
		{"name of pods", "web", `{"spec":{"template":{"metadata":{"name":"x"}}}}`, false},
		{"annotations", "web", `{"metadata":{"annotations":{"a":"b"}}}`, false},
		{"labels", "web", `{"metadata":{"labels":{"a":"b"}}}`, false},
		{"finalizers", "web", `{"metadata":{"finalizers":["example.com/a"]}}`, false},
		{"owners", "web", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}]}}`, false},
	} {
		err := patch(tc.deployment, tc.patch)
		if (err == nil) != tc.allowed || err != nil && !strings.Contains(err.Error(), "'dovetail-surge' with binding 'dovetail-surge' denied") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if err := us.AppsV1().Deployments("default").Delete(ctx, "web", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("it may delete a Deployment: %v", err)
	}
	if _, err := us.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	// Others are not confined.
	if _, err := admin.AppsV1().Deployments("default").Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// deployments runs the controller of Deployments.
func deployments(t *testing.T, cfg *rest.Config) {
	t.Helper()
	ctx := ktesting.Init(t)
	kube := kubernetes.NewForConfigOrDie(cfg)
	f := informers.NewSharedInformerFactory(kube, 0)
	c, err := deployment.NewDeploymentController(ctx, f.Apps().V1().Deployments(), f.Apps().V1().ReplicaSets(), f.Core().V1().Pods(), kube)
	if err != nil {
		t.Fatal(err)
	}
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	go c.Run(ctx, 2)
}

// The node of a single replica, which its PodDisruptionBudget lets no drain evict, has drifted: the Deployment is restarted once, the pod of its new ReplicaSet
// gets the place that was reserved on the new node, and at no time there is no Ready pod.
func TestSingleReplicaIsMovedByARollout(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.idle = true })
	replicaSets(t, e.c.AdminConfig(), 200)
	deployments(t, e.c.AdminConfig())
	files, err := manifests.Folder("surge")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		e.apply(string(f))
	}
	pool := strings.Replace(nodePool, "consolidateAfter: Never}", "consolidateAfter: Never, budgets: [{nodes: 100%}]}", 1)
	e.apply(nodeClass, pool)
	rs := replicas("web", 1, "500m", "256Mi").(*appsv1.ReplicaSet)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{objects.AnnotationMove: objects.MoveRollout}},
		Spec: appsv1.DeploymentSpec{Replicas: rs.Spec.Replicas, Selector: rs.Spec.Selector, Template: rs.Spec.Template}}
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: rs.Spec.Selector}}
	e.create(d, pdb, replicas("side", 2, "500m", "256Mi"))
	pdb.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: pdb.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	if err := e.api.Status().Update(e.ctx, pdb); err != nil {
		t.Fatal(err)
	}
	recorder, err := record.Start(e.ctx, e.api, &corev1.PodList{}, &appsv1.DeploymentList{}, &karpv1.NodeClaimList{})
	if err != nil {
		t.Fatal(err)
	}
	e.run()
	before := e.running("web", 1)[0]
	e.running("side", 2)
	e.patch(&karpv1.NodePool{}, "default", `{"spec":{"template":{"metadata":{"labels":{"revision":"two"}}}}}`)
	after, err := cluster.Until(e.wait(), e.api, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) {
		moved := len(pods) == 3
		for _, p := range pods {
			moved = moved && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && p.Spec.NodeName != before.Spec.NodeName
		}
		return moved, fmt.Sprintf("three pods on other nodes: %d pods", len(pods)), nil
	})
	if err != nil {
		for _, c := range e.claims() {
			t.Logf("claim %s: %v", c.Name, c.Annotations)
		}
		t.Fatal(err)
	}
	for _, p := range after {
		if e.nodes()[p.Spec.NodeName].Labels["revision"] != "two" {
			t.Errorf("pod %s is on %s, which isn't new", p.Name, p.Spec.NodeName)
		}
	}
	events, err := recorder.Events(e.wait())
	if err != nil {
		t.Fatal(err)
	}
	ready, restarts, claims, was := map[types.UID]bool{}, map[string]bool{}, map[types.UID]bool{}, false
	for _, event := range events {
		switch o := event.Object.(type) {
		case *corev1.Pod:
			if o.Labels["app"] != "web" {
				continue
			}
			_, c := podutil.GetPodCondition(&o.Status, corev1.PodReady)
			ready[o.UID] = event.Type != watch.Deleted && o.DeletionTimestamp == nil && c != nil && c.Status == corev1.ConditionTrue
			n := 0
			for _, yes := range ready {
				if yes {
					n++
				}
			}
			was = was || n > 0
			if was && n == 0 {
				t.Errorf("at revision %d no pod is Ready, after %s", event.Revision, o.Name)
			}
		case *karpv1.NodeClaim:
			claims[o.UID] = true
		case *appsv1.Deployment:
			restarts[o.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"]] = true
		}
	}
	if len(restarts) != 2 || !restarts[""] {
		t.Errorf("restarts: %v, want one", restarts)
	}
	if len(claims) != 2 {
		t.Errorf("%d nodes were launched, want one and its replacement", len(claims))
	}
}
