package integration

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// workloads makes the requests that Kubernetes' own controllers depend on.
func (d *talk) workloads() {
	all := []string{metav1.DryRunAll}
	nodes := d.kube.CoreV1().Nodes()
	_, err := nodes.Create(d.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}, metav1.CreateOptions{DryRun: all})
	d.say("create a node, as a trial", nil, err)
	_, err = nodes.Get(d.ctx, "dry", metav1.GetOptions{})
	d.say("it isn't there", nil, err)
	_, err = nodes.Create(d.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}, metav1.CreateOptions{})
	d.say("create it", nil, err)
	_, err = nodes.Create(d.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}, metav1.CreateOptions{DryRun: all})
	d.say("create it again, as a trial", nil, err)
	d.say("delete it, as a trial", nil, nodes.Delete(d.ctx, "dry", metav1.DeleteOptions{DryRun: all}))
	_, err = nodes.Get(d.ctx, "dry", metav1.GetOptions{})
	d.say("it is there", nil, err)

	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	job, err := d.kube.BatchV1().Jobs("default").Create(d.ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Spec: batchv1.JobSpec{Template: template}}, metav1.CreateOptions{})
	d.say("create a Job", job, err)
	named := func(labels map[string]string) (out []string) {
		for _, k := range slices.Sorted(maps.Keys(labels)) {
			v := labels[k]
			if v == string(job.UID) {
				v = "its uid"
			}
			out = append(out, k+"="+v)
		}
		return out
	}
	d.lines = append(d.lines, fmt.Sprintf("its pods have labels %v, it selects %v", named(job.Spec.Template.Labels), named(job.Spec.Selector.MatchLabels)))

	always := *template.DeepCopy()
	always.Spec.RestartPolicy = corev1.RestartPolicyAlways
	deployments := d.kube.AppsV1().Deployments("default")
	dep, err := deployments.Create(d.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Labels: map[string]string{"a": "b"}},
		Spec:   appsv1.DeploymentSpec{Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}, Template: always},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 7}}, metav1.CreateOptions{})
	d.say("create a Deployment", dep, err)
	d.lines = append(d.lines, fmt.Sprint("a new Deployment has observed generation ", dep.Status.ObservedGeneration))
	dep.Annotations, dep.Labels = map[string]string{"revision": "1"}, map[string]string{"not": "this way"}
	dep.Spec.Replicas, dep.Status.ObservedGeneration = ptr.To[int32](5), 1
	dep, err = deployments.UpdateStatus(d.ctx, dep, metav1.UpdateOptions{})
	d.say("write its status, as its controller does", dep, err)
	d.lines = append(d.lines, fmt.Sprint(dep.Annotations["revision"], dep.Labels, *dep.Spec.Replicas, dep.Status.ObservedGeneration))
}
