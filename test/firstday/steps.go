package firstday

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func (r *Rehearsal) steps() []step {
	return []step{
		{title: "Dovetail leads", vital: true, do: r.leads, expected: "a replica of Dovetail holds its Lease and renews it"},
		{title: "The node class is ready", vital: true, do: r.classReady,
			expected: "EC2NodeClass " + r.NodeClass + " has the condition Ready: images, subnets, security groups and the nodes' role have been found"},
		{title: "A pod gets a node", vital: true, do: r.firstPod,
			expected: "one NodeClaim and one instance; the Node is created before its kubelet registers; the pod runs"},
		{title: "A node has what it was bought for", do: r.promises,
			expected: "no Node has less for pods than its NodeClaim promised, and labels of zone, type and name are those of the instance"},
		{title: "A burst", do: r.burst, expected: "twelve pods of three sizes run, none was rejected by a kubelet, and each instance has one NodeClaim"},
		{title: "The leader is killed during a launch", do: r.killed, expected: "another replica takes over, the pods run, and no instance was launched twice"},
		{title: "A pool that can't be used", do: r.wrongClass, expected: "an event on the pod names the class and what is wrong with it; nothing is launched"},
		{title: "Nobody needs the nodes any more", do: r.scaledIn, expected: "all Nodes of the rehearsal end, and EC2 has terminated their instances"},
	}
}

func (r *Rehearsal) leads(ctx context.Context) (string, error) {
	var holder string
	err := r.until(ctx, func() (string, error) {
		lease := &coordinationv1.Lease{}
		if err := r.Kube.Get(ctx, r.Lease, lease); err != nil {
			return "", fmt.Errorf("reading Lease %s: %w", r.Lease, err)
		}
		holder = ptr.Deref(lease.Spec.HolderIdentity, "")
		age := time.Since(ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time)
		if limit := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 15)) * time.Second; holder == "" || age > limit {
			return fmt.Sprintf("Lease %s is held by %q and was renewed %s ago", r.Lease, holder, age.Round(time.Second)), nil
		}
		return "", nil
	})
	return "Lease " + r.Lease.String() + " is held by " + holder, err
}

func (r *Rehearsal) classReady(ctx context.Context) (string, error) {
	class := &ec2nc.EC2NodeClass{}
	err := r.until(ctx, func() (string, error) {
		if err := r.Kube.Get(ctx, client.ObjectKey{Name: r.NodeClass}, class); err != nil {
			return "", fmt.Errorf("reading EC2NodeClass %s: %w", r.NodeClass, err)
		}
		var missing []string
		for _, c := range class.GetConditions() {
			if c.Status != metav1.ConditionTrue {
				missing = append(missing, fmt.Sprintf("%s: %s %s", c.Type, c.Reason, c.Message))
			}
		}
		if !class.StatusConditions().Root().IsTrue() {
			return "it isn't Ready: " + strings.Join(missing, "; "), nil
		}
		return "", nil
	})
	return fmt.Sprintf("%d images, %d subnets, %d security groups", len(class.Status.AMIs), len(class.Status.Subnets), len(class.Status.SecurityGroups)), err
}

func (r *Rehearsal) firstPod(ctx context.Context) (string, error) {
	if err := r.prepare(ctx); err != nil {
		return "", err
	}
	if err := r.create(ctx, r.deployment("one", 1, "500m", "512Mi", Name)); err != nil {
		return "", err
	}
	// It is watched closely, because what happens while a node boots can't be seen any more afterwards.
	ahead := false
	err := r.until(ctx, func() (string, error) {
		nodes, err := r.nodes(ctx)
		if err != nil {
			return "", err
		}
		for i := range nodes {
			ahead = ahead || nodes[i].Labels[karpv1.NodeRegisteredLabelKey] != "true"
		}
		return r.running(ctx, "one", 1)
	})
	if err != nil {
		return "", err
	}
	claims, err := r.inService(ctx, 1)
	if err != nil {
		return "", err
	}
	if !ahead {
		return "", errors.New("the Node was first seen when its kubelet had registered")
	}
	r.remember(ctx, claims)
	c := &claims[0]
	return fmt.Sprintf("NodeClaim %s is a %s in %s", c.Name, c.Labels[corev1.LabelInstanceTypeStable], c.Labels[corev1.LabelTopologyZone]), nil
}

func (r *Rehearsal) burst(ctx context.Context) (string, error) {
	for _, d := range []client.Object{
		r.deployment("small", 6, "250m", "256Mi", Name), r.deployment("middle", 4, "700m", "1Gi", Name), r.deployment("large", 2, "1500m", "3Gi", Name),
	} {
		if err := r.create(ctx, d); err != nil {
			return "", err
		}
	}
	for app, n := range map[string]int{"small": 6, "middle": 4, "large": 2} {
		if err := r.until(ctx, func() (string, error) { return r.running(ctx, app, n) }); err != nil {
			return "", err
		}
	}
	return r.sound(ctx)
}

func (r *Rehearsal) killed(ctx context.Context) (string, error) {
	before, err := r.claims(ctx)
	if err != nil {
		return "", err
	}
	if err := r.create(ctx, r.deployment("after", 3, "1800m", "2Gi", Name)); err != nil {
		return "", err
	}
	err = r.until(ctx, func() (string, error) {
		now, err := r.claims(ctx)
		if err == nil && len(now) == len(before) {
			return "no NodeClaim was made", nil
		}
		return "", err
	})
	if err != nil {
		return "", err
	}
	if err := r.KillLeader(ctx); err != nil {
		return "", fmt.Errorf("killing the leader: %w", err)
	}
	if err := r.until(ctx, func() (string, error) { return r.running(ctx, "after", 3) }); err != nil {
		return "", err
	}
	return r.sound(ctx)
}

// sound returns an error if an instance has no NodeClaim, or a NodeClaim several instances, or a kubelet has rejected a pod.
func (r *Rehearsal) sound(ctx context.Context) (string, error) {
	var pods corev1.PodList
	if err := r.Kube.List(ctx, &pods, client.InNamespace(Name)); err != nil {
		return "", fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == corev1.PodFailed {
			return "", fmt.Errorf("pod %s has failed: %s %s", p.Name, p.Status.Reason, p.Status.Message)
		}
	}
	claims, err := r.inService(ctx, 1)
	if err != nil {
		return "", err
	}
	r.remember(ctx, claims)
	instances, err := r.instances(ctx)
	if err != nil {
		return "", err
	}
	of := map[string]bool{}
	for i := range claims {
		of[claims[i].Status.ProviderID] = true
	}
	for _, id := range instances {
		if !slices.ContainsFunc(claims, func(c karpv1.NodeClaim) bool { return strings.HasSuffix(c.Status.ProviderID, "/"+id) }) {
			return "", fmt.Errorf("instance %s belongs to no NodeClaim", id)
		}
	}
	if len(of) != len(instances) {
		return "", fmt.Errorf("%d NodeClaims have %d instances", len(of), len(instances))
	}
	return fmt.Sprintf("%d NodeClaims, each with its instance", len(claims)), nil
}

func (r *Rehearsal) wrongClass(ctx context.Context) (string, error) {
	class := &ec2nc.EC2NodeClass{}
	if err := r.Kube.Get(ctx, client.ObjectKey{Name: r.NodeClass}, class); err != nil {
		return "", fmt.Errorf("reading EC2NodeClass %s: %w", r.NodeClass, err)
	}
	wrong := &ec2nc.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: wrongName}, Spec: *class.Spec.DeepCopy()}
	wrong.Spec.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{Tags: map[string]string{wrongName: "none"}}}
	if err := r.create(ctx, wrong); err != nil {
		return "", err
	}
	if err := r.create(ctx, r.pool(wrongName, wrongName)); err != nil {
		return "", err
	}
	if err := r.create(ctx, r.deployment("nowhere", 1, "100m", "64Mi", wrongName)); err != nil {
		return "", err
	}
	var said string
	err := r.until(ctx, func() (string, error) {
		var events corev1.EventList
		if err := r.Kube.List(ctx, &events, client.InNamespace(Name)); err != nil {
			return "", fmt.Errorf("listing events: %w", err)
		}
		for i := range events.Items {
			if e := &events.Items[i]; e.Reason == "FailedProvisioning" && strings.HasPrefix(e.InvolvedObject.Name, "nowhere-") && strings.Contains(e.Message, wrongName) {
				said = e.Message
				return "", nil
			}
		}
		return "no event FailedProvisioning on the pod names EC2NodeClass " + wrongName, nil
	})
	if err != nil {
		return "", err
	}
	var claims karpv1.NodeClaimList
	if err := r.Kube.List(ctx, &claims, client.MatchingLabels{karpv1.NodePoolLabelKey: wrongName}); err != nil {
		return "", fmt.Errorf("listing NodeClaims: %w", err)
	}
	if n := len(claims.Items); n > 0 {
		return "", fmt.Errorf("%d NodeClaims were made", n)
	}
	return said, nil
}

func (r *Rehearsal) scaledIn(ctx context.Context) (string, error) {
	var all appsv1.DeploymentList
	if err := r.Kube.List(ctx, &all, client.InNamespace(Name)); err != nil {
		return "", fmt.Errorf("listing Deployments: %w", err)
	}
	for i := range all.Items {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`))
		if err := r.Kube.Patch(ctx, &all.Items[i], patch); err != nil {
			return "", fmt.Errorf("scaling Deployment %s: %w", all.Items[i].Name, err)
		}
	}
	return "no Node, NodeClaim or instance is left", r.until(ctx, func() (string, error) { return r.left(ctx) })
}

// left says what is left of the rehearsal's nodes.
func (r *Rehearsal) left(ctx context.Context) (string, error) {
	claims, err := r.claims(ctx)
	if err != nil {
		return "", err
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return "", err
	}
	instances, err := r.instances(ctx)
	if err != nil {
		return "", err
	}
	if len(claims)+len(nodes)+len(instances) > 0 {
		return fmt.Sprintf("%d NodeClaims, %d Nodes and the instances %s are left", len(claims), len(nodes), strings.Join(instances, ", ")), nil
	}
	return "", nil
}

func (r *Rehearsal) cleanUp(ctx context.Context) (string, error) {
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Name}},
		&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: wrongName}}, &ec2nc.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: wrongName}},
		&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: Name}},
	} {
		if err := r.Kube.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("deleting %T %s: %w", o, o.GetName(), err)
		}
	}
	return "nothing is left", r.until(ctx, func() (string, error) { return r.left(ctx) })
}
