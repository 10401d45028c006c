package integration

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

const (
	// cloudLag is how long a new instance is missing from the cloud controller manager's EC2 answers, ourLag how long it may be
	// missing from ours.
	cloudLag = 20 * time.Second
	ourLag   = 14 * time.Second
)

// A cloud controller manager that doesn't see new instances yet deletes their Nodes, again and again. That terminates no instance,
// launches none, and loses no pod.
func TestCloudControllerManagerThatLags(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		scale := time.Duration(s.sim.Speed)
		s.sim.DescribeLag = ourLag * scale
		s.boots.Boot = kubelet.Boot{Median: 26 * time.Second * scale, P95: 27 * time.Second * scale} // booting takes longer than the lag
	})
	deleted := manageCloudNodes(t, e)
	e.apply(nodeClass, nodePool)
	replicaSets(t, e.c.AdminConfig(), 100)
	e.create(replicas("web", 12, "1500m", "2Gi"))
	s := &scene{env: e, name: "web"}
	s.alive(12)
	var claims []*karpv1.NodeClaim
	s.until("all machines to be initialized", func() (bool, string) {
		claims = e.claims()
		for _, c := range claims {
			if !initialized(c) || c.DeletionTimestamp != nil {
				return false, c.Name
			}
		}
		return true, ""
	})
	if n := len(e.sim.Instances()); n != len(claims) || n != len(e.sim.Live()) {
		t.Errorf("%d instances were launched, %d live, %d claims are there", n, len(e.sim.Live()), len(claims))
	}
	if n := deleted(); n == 0 {
		t.Log("the machine is so busy that no Node was made before the cloud controller manager saw its instance")
	}
	if n := len(e.sim.Calls("TerminateInstances")); n > 0 {
		t.Errorf("instances were told to end %d times", n)
	}
}

// A cloud controller manager looks only at new Nodes that ask for it by their taint, also at those that are made ahead. From it they have the
// labels of the network topology, by which training jobs are placed.
func TestCloudControllerManagerInitializes(t *testing.T) {
	t.Parallel()
	e := start(t, func(*setting) {})
	e.apply(nodeClass, strings.Replace(nodePool, "[c, m, r]", "[trn]", 1))
	p := podsAs("train", "1", "1Gi")
	p.Name = "train-0"
	p.Spec.NodeSelector = map[string]string{corev1.LabelInstanceTypeStable: "trn1.2xlarge"}
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"aws.amazon.com/neuron": resource.MustParse("1")}
	p.Spec.Containers[0].Resources.Requests["aws.amazon.com/neuron"] = resource.MustParse("1")
	e.create(p)
	s := &scene{env: e, name: "train"}
	home := s.alive(1)[0].Spec.NodeName
	n := e.nodes()[home]
	if n.Labels["topology.k8s.aws/network-node-layer-1"] == "" {
		t.Errorf("the node has no label of the network topology: %v", n.Labels)
	}
	for _, taint := range n.Spec.Taints {
		if taint.Key == cloudproviderapi.TaintExternalCloudProvider {
			t.Errorf("the pod runs, and the cloud controller manager has not initialized its node")
		}
	}
}

// manageCloudNodes is the node lifecycle part of a cloud controller manager: it deletes a Node that isn't Ready and whose instance the
// cloud doesn't know. It sees instances once they are cloudLag old. deleted returns how many Nodes it has deleted.
func manageCloudNodes(t *testing.T, e *env) (deleted func() int) {
	t.Helper()
	kube := kubernetes.NewForConfigOrDie(e.c.AdminConfig())
	cloud := awsec2.NewFromConfig(e.sim.AdminConfig())
	exists := func(ctx context.Context, id string) bool {
		out, err := cloud.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{id}})
		var api smithy.APIError
		if errors.As(err, &api) && api.ErrorCode() == "InvalidInstanceID.NotFound" {
			return false
		}
		if err != nil || len(out.Reservations) == 0 {
			return true
		}
		in := out.Reservations[0].Instances[0]
		return time.Since(*in.LaunchTime) >= cloudLag && in.State.Name != types.InstanceStateNameTerminated
	}
	var mu sync.Mutex
	count := 0
	done := make(chan struct{})
	ctx, stop := context.WithCancel(e.ctx)
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for i := range nodes.Items {
				n := &nodes.Items[i]
				if n.DeletionTimestamp != nil || up(n) || exists(ctx, n.Spec.ProviderID[strings.LastIndexByte(n.Spec.ProviderID, '/')+1:]) {
					continue
				}
				// First an event about it, as k8s.io/cloud-provider does.
				event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: n.Name + "."}, Type: corev1.EventTypeNormal, Reason: "DeletingNode",
					Message:        "Deleting node " + n.Name + " because it does not exist in the cloud provider",
					InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: n.Name, UID: n.UID}}
				if _, err := kube.CoreV1().Events("default").Create(ctx, event, metav1.CreateOptions{}); err != nil {
					continue
				}
				// With the resource version it has seen, so that a node that has become Ready meanwhile stays.
				err = kube.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion}})
				if err == nil {
					mu.Lock()
					count++
					mu.Unlock()
				}
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

func up(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
