package integration

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// A LimitRange gives each pod of a DaemonSet two CPUs that its template doesn't request, and these pods have a higher priority. The
// launched node holds them beside the pod it is launched for, which is not evicted.
func TestDaemonSetUnderALimitRange(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	daemonSets(t, e.c.AdminConfig())
	replicaSets(t, e.c.AdminConfig(), 25)
	two := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	e.create(priorityClass("high", 1000), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "usual"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Default: two}}}})
	app := map[string]string{"app": "agent"}
	e.create(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: app},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{
			SchedulerName: ours, PriorityClassName: "high", Containers: []corev1.Container{{Name: "agent", Image: "agent"}}}},
	}})
	e.apply(nodeClass, nodePool)
	e.create(replicas("web", 1, "2", "256Mi"))

	agent := e.running("agent", 1)[0]
	web := e.running("web", 1)[0]
	if cpu := agent.Spec.Containers[0].Resources.Requests.Cpu(); cpu.Cmp(two[corev1.ResourceCPU]) != 0 {
		t.Fatalf("the DaemonSet's pod asks for %s CPU: the LimitRange has made nothing of it", cpu)
	}
	if n := e.launches(); n != 1 || web.Spec.NodeName != agent.Spec.NodeName {
		t.Errorf("%d nodes were launched for one pod and the DaemonSet's; they are on %s and %s", n, web.Spec.NodeName, agent.Spec.NodeName)
	}
}

// daemonSets runs the DaemonSet controller.
func daemonSets(t *testing.T, cfg *rest.Config) {
	t.Helper()
	ctx := ktesting.Init(t)
	client := kubernetes.NewForConfigOrDie(cfg)
	f := informers.NewSharedInformerFactory(client, 0)
	c, err := daemon.NewDaemonSetsController(ctx, f.Apps().V1().DaemonSets(), f.Apps().V1().ControllerRevisions(), f.Core().V1().Pods(), f.Core().V1().Nodes(),
		client, flowcontrol.NewBackOff(time.Second, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	go c.Run(ctx, 2)
}
