package chaos

import (
	"math"
	"strings"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Class returns a node class with the newest image of AL2023.
func Class(name string) *ec2nc.EC2NodeClass {
	discovery := map[string]string{"karpenter.sh/discovery": "dovetail"}
	return &ec2nc.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: ec2nc.EC2NodeClassSpec{
			InstanceProfile: ptr.To("DovetailNode"), AMISelectorTerms: []ec2nc.AMISelectorTerm{{Alias: "al2023@latest"}},
			SubnetSelectorTerms: []ec2nc.SubnetSelectorTerm{{Tags: discovery}}, SecurityGroupSelectorTerms: []ec2nc.SecurityGroupSelectorTerm{{Tags: discovery}},
		},
	}
}

// Pool returns a pool of a class for on-demand instances with four CPUs; empty nodes are terminated after 30 seconds.
func Pool(name, class string, requirements ...string) *karpv1.NodePool {
	if len(requirements) == 0 {
		requirements = []string{ec2nc.LabelInstanceCategory + "=c,m,r", ec2nc.LabelInstanceCPU + "=4"}
	}
	pool := &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: class},
				ExpireAfter:  karpv1.MustParseNillableDuration("Never"),
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}},
			}},
			Disruption: karpv1.Disruption{ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty, ConsolidateAfter: karpv1.MustParseNillableDuration("30s"),
				Budgets: []karpv1.Budget{{Nodes: "100%"}}},
		},
	}
	for _, r := range append(requirements, karpv1.CapacityTypeLabelKey+"=on-demand") {
		key, values, _ := strings.Cut(r, "=")
		told := false
		for _, have := range pool.Spec.Template.Spec.Requirements {
			told = told || have.Key == key
		}
		if !told {
			pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements,
				karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: strings.Split(values, ",")})
		}
	}
	return pool
}

// Template returns the template of an app's pods with these requests.
func Template(app, cpu, memory string, changes ...func(*corev1.PodTemplateSpec)) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appLabel: app}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler, TerminationGracePeriodSeconds: ptr.To[int64](5),
			Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/" + app, Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}},
		},
	}
	for _, c := range changes {
		c(&t)
	}
	return t
}

// Annotated annotates pods.
func Annotated(key, value string) func(*corev1.PodTemplateSpec) {
	return func(t *corev1.PodTemplateSpec) { t.Annotations[key] = value }
}

// OnePerNode keeps pods of the app apart.
func OnePerNode(t *corev1.PodTemplateSpec) {
	t.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: selects(t.Labels[appLabel])}}}}
}

// Asking adds a request and limit for a resource.
func Asking(name corev1.ResourceName, n string) func(*corev1.PodTemplateSpec) {
	return func(t *corev1.PodTemplateSpec) {
		r := &t.Spec.Containers[0].Resources
		r.Requests[name] = resource.MustParse(n)
		r.Limits = corev1.ResourceList{name: resource.MustParse(n)}
	}
}

// Deployment returns a Deployment of an app, named after it.
func Deployment(replicas int, t corev1.PodTemplateSpec) *appsv1.Deployment {
	app := t.Labels[appLabel]
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(replicas)), Selector: selects(app), Template: t,
			// No deadline: Kubernetes' controller syncs a Deployment that has passed it ten times a second, for as long as it is
			// unavailable.
			ProgressDeadlineSeconds: ptr.To[int32](math.MaxInt32),
		},
	}
}

// StatefulSet returns a StatefulSet of an app.
func StatefulSet(replicas int, t corev1.PodTemplateSpec) *appsv1.StatefulSet {
	app := t.Labels[appLabel]
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To(int32(replicas)), Selector: selects(app), Template: t, ServiceName: app},
	}
}

// DaemonSet returns a DaemonSet of an app.
func DaemonSet(t corev1.PodTemplateSpec) *appsv1.DaemonSet {
	app := t.Labels[appLabel]
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: app}, Spec: appsv1.DaemonSetSpec{Selector: selects(app), Template: t},
	}
}

// Job returns a Job of an app whose pod runs for this long.
func Job(name string, runs time.Duration, t corev1.PodTemplateSpec) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: jobSpec(runs, t)}
}

// CronJob returns a CronJob of an app that starts a Job each minute.
func CronJob(runs time.Duration, policy batchv1.ConcurrencyPolicy, t corev1.PodTemplateSpec) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: t.Labels[appLabel]},
		Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", ConcurrencyPolicy: policy, JobTemplate: batchv1.JobTemplateSpec{Spec: jobSpec(runs, t)}},
	}
}

func jobSpec(runs time.Duration, t corev1.PodTemplateSpec) batchv1.JobSpec {
	t = *t.DeepCopy()
	t.Annotations[runFor] = runs.String()
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{Template: t, TTLSecondsAfterFinished: ptr.To[int32](0)}
}

func selects(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: app}}
}

// Retry sets the annotation that asks the product to try again.
func Retry(o metav1.Object, value string) {
	a := o.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	a["dovetail.sh/retry"] = value
	o.SetAnnotations(a)
}
