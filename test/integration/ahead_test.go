package integration

import (
	"flag"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/test/utils/ktesting"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

var streamPods = flag.Int("stream.pods", 300, "pods of the stream that is compared with a burst")

// A ReplicaSet's pods come one after the other, as fast as its controller may write; what is bought is what one burst of them
// would have bought. Alone: what else the machine has to do would make the stream slower than it is. More pods: go test
// ./test/integration -run SlowStream -stream.pods=1000 -patience=10m
func TestSlowStreamBuysWhatABurstWould(t *testing.T) {
	pods := *streamPods
	bill := map[string]float64{}
	for _, way := range []string{"burst", "stream"} {
		t.Run(way, func(t *testing.T) {
			e := start(t, nil)
			e.apply(nodeClass, nodePool)
			if way == "burst" {
				e.pods("web", pods, "500m", "1Gi")
			} else {
				replicaSets(t, e.c.AdminConfig(), 25)
				e.create(replicas("web", int32(pods), "500m", "1Gi"))
			}
			e.bound("web", pods)
			e.settled(len(e.claims()))
			bill[way] = e.sim.Bill().PerHour
			t.Logf("%s: %d nodes, $%.3f/h", way, len(e.claims()), bill[way])
		})
	}
	if bill["stream"] > 1.05*bill["burst"] {
		t.Errorf("$%.3f/h for a stream of pods, $%.3f/h for the same pods at once", bill["stream"], bill["burst"])
	}
}

// A namespace with a quota is not bought for ahead: half of the pods never come.
func TestQuotaBuysNothingAhead(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, nodePool)
	few := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: few}}
	e.create(quota)
	// No quota controller runs here; the API server checks new pods against the quota's status.
	quota.Status = corev1.ResourceQuotaStatus{Hard: few, Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}
	if err := e.api.Status().Update(e.ctx, quota); err != nil {
		t.Fatal(err)
	}
	e.create(replicas("web", 300, "500m", "1Gi"))
	replicaSets(t, e.c.AdminConfig(), 25)
	e.bound("web", 10)
	e.settled(len(e.claims()))
	total := int64(0)
	for _, n := range e.nodes() {
		total += n.Status.Allocatable.Cpu().MilliValue()
	}
	if total > 4*10*500 {
		t.Errorf("%dm CPU were bought for 10 pods of 500m", total)
	}
}

// replicaSets runs the ReplicaSet controller with a limit of qps requests per second.
func replicaSets(t *testing.T, cfg *rest.Config, qps float32) {
	t.Helper()
	ctx := ktesting.Init(t)
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = qps, int(qps)
	f := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(cfg), 0)
	c := replicaset.NewReplicaSetController(ctx, f.Apps().V1().ReplicaSets(), f.Core().V1().Pods(), kubernetes.NewForConfigOrDie(cfg), replicaset.BurstReplicas)
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	go c.Run(ctx, 2)
}

func replicas(app string, n int32, cpu, memory string) client.Object {
	labels := map[string]string{"app": app}
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			SchedulerName: ours,
			Containers: []corev1.Container{{Name: "app", Image: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}},
		}},
	}}
}
