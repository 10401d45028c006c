package main

import (
	"context"
	"encoding/base64"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/karpenter"
	"github.com/dovetail-scheduler/dovetail/test/record"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

const (
	// speed divides the delays of instances and kubelets.
	speed = 10
	// karpenterKey is the access key that Karpenter signs its calls with, so that the simulator's journal tells whose a call is.
	karpenterKey = "KARPENTER"
)

// system is the running system.
type system struct {
	*sandbox.Sandbox
	binary    string
	karpenter *karpenter.Process // nil while it doesn't run
	recording *record.Recorder
	// faults are what was wrong.
	faults []error
}

// start starts everything but Dovetail and Karpenter. If it returns an error, nothing is left running.
func start(ctx context.Context, dir, binary string) (*system, error) {
	box, err := sandbox.Start(ctx, sandbox.Options{
		Cluster: cluster.Options{Dir: dir, ControllerManager: true, ControllerManagerArgs: []string{"--controllers=deployment-controller,replicaset-controller," +
			"daemonset-controller,node-lifecycle-controller,taint-eviction-controller,pod-garbage-collector-controller,garbage-collector-controller,serviceaccount-controller"}},
		EC2:           ec2.Config{Seed: 1, Speed: speed, Throttle: true},
		Idle:          true,
		Objects:       objects(),
		ProvisionArgs: map[string]any{"provisionFor": []any{corev1.DefaultSchedulerName}, "interruptionQueue": "dovetail"},
		Progress:      func(what string) { standalone.Say("starting %s", what) },
	})
	if err != nil {
		return nil, err
	}
	s := &system{Sandbox: box, binary: binary}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *system) start(ctx context.Context) error {
	// kube-scheduler is our binary without our plugins.
	config := cluster.Config{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"qps": 500, "burst": 1000},
		"profiles":         []any{map[string]any{"schedulerName": corev1.DefaultSchedulerName}},
	}
	config.LongLeases()
	standalone.Say("starting kube-scheduler")
	if _, err := s.Cluster.StartScheduler(ctx, cluster.SchedulerOptions{Name: "kube-scheduler", Config: config}); err != nil {
		return err
	}
	recorded, cancel := context.WithCancel(context.Background())
	s.OnStop(cancel)
	var err error
	s.recording, err = record.Start(recorded, s.Client(), &karpv1.NodeClaimList{}, &corev1.NodeList{})
	return err
}

// startKarpenter starts Karpenter with the settings of its Helm chart that a cluster must have, and its defaults.
func (s *system) startKarpenter() (err error) {
	env := append(s.EC2.Env(), "AWS_ACCESS_KEY_ID="+karpenterKey, "CLUSTER_NAME="+s.EC2.Cluster(), "INTERRUPTION_QUEUE="+s.EC2.Cluster(),
		"LEADER_ELECTION_NAMESPACE=kube-system", "CLUSTER_ENDPOINT="+s.AdminConfig().Host,
		"CLUSTER_CA_BUNDLE="+base64.StdEncoding.EncodeToString(s.AdminConfig().CAData), "LOG_LEVEL=debug")
	s.karpenter, err = karpenter.Start(s.Cluster, s.binary, nil, env)
	return err
}

// scale sets a Deployment's number of pods.
func (s *system) scale(ctx context.Context, name string, pods int) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	if err := s.Client().Patch(ctx, d, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, pods))); err != nil {
		return fmt.Errorf("scaling %s: %w", name, err)
	}
	return nil
}

// fault notes something that is wrong; the story goes on.
func (s *system) fault(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	standalone.Say("WRONG: %v", err)
	s.faults = append(s.faults, err)
}

// failed returns an error if a process has exited by itself.
func (s *system) failed() error {
	if s.karpenter != nil {
		if err := s.karpenter.Failed(); err != nil {
			return err
		}
	}
	if s.Scheduler == nil {
		return s.Cluster.Failed()
	}
	return s.Failed()
}
