package firstday

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/awslabs/operatorpkg/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// wrongName is the name of the pool and the class that can't be used.
const wrongName = Name + "-wrong"

// prepare makes the namespace and the pool.
func (r *Rehearsal) prepare(ctx context.Context) error {
	if err := r.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Name}}); err != nil {
		return err
	}
	return r.create(ctx, r.pool(Name, r.NodeClass))
}

// create creates an object that must not exist: what others have made isn't touched.
func (r *Rehearsal) create(ctx context.Context, o client.Object) error {
	err := r.Kube.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%T %s exists already, maybe of an earlier rehearsal: delete it first", o, o.GetName())
	}
	if err != nil {
		return fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// pool returns a pool whose nodes are small, and end half a minute after their last pod. Its taint keeps all other pods off.
func (r *Rehearsal) pool(name, class string) *karpv1.NodePool {
	in := func(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
		return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	return &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: karpv1.NodePoolSpec{
			Limits: karpv1.Limits{corev1.ResourceCPU: resource.MustParse("40")},
			Disruption: karpv1.Disruption{ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty, ConsolidateAfter: karpv1.MustParseNillableDuration("30s"),
				Budgets: []karpv1.Budget{{Nodes: "100%"}}},
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: class},
				ExpireAfter:  karpv1.MustParseNillableDuration("2h"),
				Taints:       []corev1.Taint{{Key: name, Effect: corev1.TaintEffectNoSchedule}},
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
					in(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand), in(corev1.LabelArchStable, "amd64"),
					in("karpenter.k8s.aws/instance-category", "c", "m", "r"), in("karpenter.k8s.aws/instance-size", "large", "xlarge"),
				},
			}},
		},
	}
}

// deployment returns a Deployment whose pods go to nodes of a pool.
func (r *Rehearsal) deployment(name string, n int32, cpu, memory, pool string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: Name, Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{
				SchedulerName: r.Scheduler, NodeSelector: map[string]string{karpv1.NodePoolLabelKey: pool}, TerminationGracePeriodSeconds: ptr.To[int64](0),
				Tolerations: []corev1.Toleration{{Key: pool}}, AutomountServiceAccountToken: ptr.To(false),
				Containers: []corev1.Container{{Name: "pause", Image: r.Image, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}},
			},
		}},
	}
}

func (r *Rehearsal) claims(ctx context.Context) ([]karpv1.NodeClaim, error) {
	var out karpv1.NodeClaimList
	if err := r.Kube.List(ctx, &out, client.MatchingLabels{karpv1.NodePoolLabelKey: Name}); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	return out.Items, nil
}

// inService waits until there are at least n claims, and all of them are initialized.
func (r *Rehearsal) inService(ctx context.Context, n int) (out []karpv1.NodeClaim, err error) {
	return out, r.until(ctx, func() (_ string, err error) {
		if out, err = r.claims(ctx); err != nil {
			return "", err
		}
		for i := range out {
			if c := out[i].StatusConditions().Get(karpv1.ConditionTypeInitialized); !c.IsTrue() {
				return fmt.Sprintf("NodeClaim %s isn't initialized: %s", out[i].Name, message(c)), nil
			}
		}
		if len(out) < n {
			return fmt.Sprintf("%d NodeClaims", len(out)), nil
		}
		return "", nil
	})
}

func (r *Rehearsal) nodes(ctx context.Context) ([]corev1.Node, error) {
	var out corev1.NodeList
	if err := r.Kube.List(ctx, &out, client.MatchingLabels{karpv1.NodePoolLabelKey: Name}); err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	return out.Items, nil
}

// instances returns the IDs of the rehearsal's instances that EC2 hasn't terminated.
func (r *Rehearsal) instances(ctx context.Context) (out []string, err error) {
	pages := ec2.NewDescribeInstancesPaginator(r.EC2, &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
		{Name: aws.String("tag:karpenter.sh/nodepool"), Values: []string{Name, wrongName}},
		{Name: aws.String("instance-state-name"), Values: []string{"pending", "running", "stopping", "stopped"}},
	}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("asking EC2 for instances: %w", err)
		}
		for _, reservation := range page.Reservations {
			for i := range reservation.Instances {
				out = append(out, aws.ToString(reservation.Instances[i].InstanceId))
			}
		}
	}
	return out, nil
}

// running says why not all n pods of an application run.
func (r *Rehearsal) running(ctx context.Context, app string, n int) (string, error) {
	var pods corev1.PodList
	if err := r.Kube.List(ctx, &pods, client.InNamespace(Name), client.MatchingLabels{"app": app}); err != nil {
		return "", fmt.Errorf("listing pods: %w", err)
	}
	run, why := 0, ""
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodRunning {
			run++
			continue
		}
		why = fmt.Sprintf("; pod %s is %s on Node %q", p.Name, p.Status.Phase, p.Spec.NodeName)
		for _, c := range p.Status.Conditions {
			if c.Status != corev1.ConditionTrue && c.Message != "" {
				why += ": " + strings.TrimSpace(c.Message)
			}
		}
	}
	if run < n {
		return fmt.Sprintf("%d of %d pods of Deployment %s run%s", run, n, app, why), nil
	}
	return "", nil
}

func message(c *status.Condition) string {
	if c == nil {
		return "nothing is known yet"
	}
	return c.Message
}
