package draw

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

// AppLabel is the label with the application that a pod belongs to.
const AppLabel = "app"

// bursts draws which objects are created, and when.
func (g *generator) bursts() {
	for i := range g.between(1, 4) {
		burst := Burst{Scale: map[string]int32{}}
		if i > 0 {
			burst.After = g.duration(0, 3*time.Second)
			for _, o := range g.w.Bursts[i-1].Objects {
				if d, ok := o.(*appsv1.Deployment); ok && *d.Spec.Replicas > 1 && g.maybe(0.4) {
					burst.Scale[d.Name] = *d.Spec.Replicas + int32(g.between(1, g.size.Replicas/2))
				}
			}
		}
		g.w.Bursts = append(g.w.Bursts, burst)
	}
	for range g.between(2, g.size.Apps) {
		burst := &g.w.Bursts[g.IntN(len(g.w.Bursts))]
		burst.Objects = append(burst.Objects, g.app()...)
	}
	if g.maybe(0.25) {
		for range g.between(1, 2) {
			burst := &g.w.Bursts[g.IntN(len(g.w.Bursts))]
			burst.Objects = append(burst.Objects, g.gang()...)
		}
	}
	if g.maybe(0.15) {
		g.misfit()
	}
	g.tell("%d bursts", len(g.w.Bursts))
}

// app draws one workload and its related objects.
func (g *generator) app() []client.Object {
	name := fmt.Sprintf("app-%d", len(g.apps))
	replicas := int32(g.between(1, g.size.Replicas))
	pod := g.pod(name)
	var objects []client.Object
	kind := pick(g, "deployment", "deployment", "deployment", "deployment", "job", "stateful", "pinned", "bare")
	switch kind {
	case "job":
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Annotations = map[string]string{kubelet.RunFor: "1h"}
		g.constrain(name, &pod.Spec, &replicas)
		objects = append(objects, &batchv1.Job{ObjectMeta: g.meta(name), Spec: batchv1.JobSpec{Parallelism: &replicas, Completions: &replicas, Template: *pod}})
	case "stateful":
		replicas = min(replicas, 5)
		g.constrain(name, &pod.Spec, &replicas)
		objects = append(objects, g.stateful(name, pod, replicas))
	case "pinned":
		replicas = 1
		objects = append(g.zonalVolume(name, &pod.Spec), g.deployment(name, pod, replicas))
	case "bare":
		replicas = min(replicas, 4)
		for i := range replicas {
			meta := g.meta(fmt.Sprintf("%s-%d", name, i))
			meta.Labels = pod.Labels
			objects = append(objects, &corev1.Pod{ObjectMeta: meta, Spec: *pod.Spec.DeepCopy()})
		}
	default:
		g.constrain(name, &pod.Spec, &replicas)
		objects = append(objects, g.deployment(name, pod, replicas))
	}
	g.apps = append(g.apps, name)
	g.tell("%s %s x%d", name, kind, replicas)
	return objects
}

func (g *generator) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: g.w.Namespace, Name: name, Labels: map[string]string{AppLabel: name}}
}

func (g *generator) deployment(name string, pod *corev1.PodTemplateSpec, replicas int32) client.Object {
	return &appsv1.Deployment{ObjectMeta: g.meta(name), Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{AppLabel: name}}, Template: *pod,
	}}
}

// pod draws a pod template.
func (g *generator) pod(name string) *corev1.PodTemplateSpec {
	milli := pick(g, 50, 100, 200, 250, 333, 500, 750, 900, 1000, 1500, 1900, 2500, 3500)
	mib := max(32, milli*g.between(3, 80)/10) // 0.3 to 8 GiB per CPU
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{AppLabel: name}},
		Spec: corev1.PodSpec{
			SchedulerName: sandbox.SchedulerName, TerminationGracePeriodSeconds: ptr.To[int64](0), AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewMilliQuantity(int64(milli), resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(int64(mib)<<20, resource.BinarySI),
			}}}},
		},
	}
}

// misfit adds an application that no instance type can run.
func (g *generator) misfit() {
	const name = "misfit"
	pod := g.pod(name)
	pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1000")
	burst := &g.w.Bursts[g.IntN(len(g.w.Bursts))]
	burst.Objects = append(burst.Objects, g.deployment(name, pod, 2))
	g.w.Misfits[name] = true
	g.tell("misfit")
}

// count returns how many pods each application has after the first n bursts.
func (w *World) count(n int) map[string]int {
	out := map[string]int{}
	for _, burst := range w.Bursts[:n] {
		for _, o := range burst.Objects {
			app := o.GetLabels()[AppLabel]
			switch o := o.(type) {
			case *appsv1.Deployment:
				out[app] = int(*o.Spec.Replicas)
			case *appsv1.StatefulSet:
				out[app] = int(*o.Spec.Replicas)
			case *batchv1.Job:
				out[app] = int(*o.Spec.Parallelism)
			case *corev1.Pod:
				out[app]++
			}
		}
		for name, replicas := range burst.Scale {
			out[name] = int(replicas)
		}
	}
	return out
}
