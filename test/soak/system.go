package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/load"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

const (
	// patience bounds the waits before and after the load.
	patience = 20 * time.Minute
	// speed divides the delays of instances and kubelets.
	speed = 20
	// keyChurn is the label and taint of the pool whose nodes are launched and terminated.
	keyChurn = "soak.dovetail.sh/churn"
	// churnPerSec times a pod's life is the number of nodes per burst.
	churnPerSec = 1
	// rampStep is how many nodes boot at a time in the beginning, so that two cores suffice for everything.
	rampStep = 100
)

// system is the running system.
type system struct {
	*sandbox.Sandbox
	set  settings
	kube kubernetes.Interface
	runs int
}

// begin starts everything but a scheduler.
func begin(ctx context.Context, set settings, dir string) (*system, error) {
	standalone.Say("building what isn't built (the first time this compiles Kubernetes)")
	for _, b := range []cluster.Binary{cluster.ControlPlane, cluster.Scheduler} {
		if _, err := cluster.Build(ctx, b); err != nil {
			return nil, err
		}
	}
	small := func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, sandbox.Require("karpenter.k8s.aws/instance-cpu", "4"))
	}
	none := int64(0)
	box, err := sandbox.Start(ctx, sandbox.Options{
		Cluster: cluster.Options{Dir: dir, ControllerManager: true, ControllerManagerArgs: []string{
			// Only the controllers that affect nodes and their pods, and the one for ServiceAccounts, which pods need.
			"--controllers=node-lifecycle-controller,pod-garbage-collector-controller,serviceaccount-controller"}},
		EC2: ec2.Config{Seed: 1, Speed: speed}, Idle: true, Progress: func(what string) { standalone.Say("starting %s", what) },
		Objects: []client.Object{
			sandbox.NodeClass("default"),
			sandbox.NodePool("static", small, func(p *karpv1.NodePool) { p.Spec.Replicas = &none }),
			sandbox.NodePool("churn", small, func(p *karpv1.NodePool) {
				p.Spec.Template.Labels = map[string]string{keyChurn: "yes"}
				p.Spec.Template.Spec.Taints = []corev1.Taint{{Key: keyChurn, Effect: corev1.TaintEffectNoSchedule}}
				p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
			}),
		},
	})
	if err != nil {
		return nil, err
	}
	config := box.AdminConfig()
	config.ContentType, config.QPS, config.Burst = runtime.ContentTypeProtobuf, -1, -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		box.Stop()
		return nil, fmt.Errorf("making the load's client: %w", err)
	}
	return &system{Sandbox: box, set: set, kube: kube}, nil
}

// schedule starts a scheduler with the shipped configuration, or with the same one without our plugins.
func (s *system) schedule(ctx context.Context, plugins bool) (*cluster.SchedulerProcess, error) {
	config, err := s.ShippedConfig()
	if err != nil {
		return nil, err
	}
	config.SetProvisionArgs(map[string]any{"clusterName": s.EC2.Cluster(), "region": s.EC2.Region()})
	config["leaderElection"] = map[string]any{"leaderElect": false} // one scheduler follows the other without waiting for a lease
	if !plugins {
		delete(config, "profiles")
		config.AddProfile(sandbox.SchedulerName)
	}
	s.runs++
	return s.Cluster.StartScheduler(ctx, cluster.SchedulerOptions{
		Name: fmt.Sprintf("scheduler-%d", s.runs), Config: config, AWSEnv: s.EC2.Env(), Verbosity: s.set.verbose, Deadline: 5 * time.Minute,
	})
}

// parts runs the three parts.
func (s *system) parts(ctx context.Context) ([]part, error) {
	ours, err := s.schedule(ctx, true)
	if err != nil {
		return nil, err
	}
	for n := 0; n < s.set.nodes; {
		n = min(n+rampStep, s.set.nodes)
		if err := s.grow(ctx, n); err != nil {
			return nil, err
		}
	}
	pods, err := s.part(ctx, ours, part{name: "pods", limit: podRequests}, s.set.lasts, &load.Load{Name: "pods", PerSec: float64(s.set.perSec)})
	if err != nil {
		return nil, err
	}
	nodes, err := s.part(ctx, ours, part{name: "nodes", limit: nodeRequests}, s.set.lasts/2, &load.Load{Name: "nodes", PerSec: churnPerSec, Bursts: true, Change: alone})
	if err != nil {
		return nil, err
	}
	ours.Stop()
	theirs, err := s.schedule(ctx, false)
	if err != nil {
		return nil, err
	}
	plain, err := s.part(ctx, theirs, part{name: "plain", yardstick: true}, s.set.lasts, &load.Load{Name: "plain", PerSec: float64(s.set.perSec)})
	if err != nil {
		return nil, err
	}
	theirs.Stop()
	return []part{pods, nodes, plain}, nil
}

// alone makes a pod need a node that no other pod uses.
func alone(p *corev1.Pod) {
	p.Spec.NodeSelector = map[string]string{keyChurn: "yes"}
	p.Spec.Tolerations = []corev1.Toleration{{Key: keyChurn, Operator: corev1.TolerationOpExists}}
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}}}}}}
}

// grow scales the static pool and waits until all of its nodes are initialized.
func (s *system) grow(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "static"}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
	if err := s.Client().Patch(ctx, pool, patch); err != nil {
		return fmt.Errorf("scaling the static pool: %w", err)
	}
	_, err := cluster.UntilNodes(ctx, s.Client(), n, func(n *corev1.Node) bool { return n.Labels[karpv1.NodeInitializedLabelKey] == "true" })
	if err != nil {
		return err
	}
	standalone.Say("%d nodes are there", n)
	return nil
}
