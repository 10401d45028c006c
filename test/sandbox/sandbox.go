package sandbox

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

// Options of Start. The zero value is everything as shipped, at the speed of the real EC2.
type Options struct {
	// Cluster are the options of the control plane.
	Cluster cluster.Options
	// Plane is a control plane that already runs, e.g. from inprocess.Start; Cluster is then ignored. Stop stops it too.
	Plane *cluster.Cluster
	// EC2 configures the simulator. Start fills in its cluster and machines.
	EC2 ec2.Config
	// Kubelet configures the kubelets that boot on instances. Start fills in Client, and speed and seed from EC2 if they are zero.
	// With NoKubelets nothing boots.
	Kubelet    kubelet.Config
	NoKubelets bool
	// Scheduler are the options of the scheduler; Start fills in its AWS environment. ProvisionArgs are set in its configuration after
	// the fields that the cluster and the simulator determine; nil values remove a field.
	Scheduler     cluster.SchedulerOptions
	ProvisionArgs map[string]any
	// Idle doesn't start the scheduler; StartScheduler starts it later.
	Idle bool
	// Objects are created before the scheduler starts. Nil means the shipped examples; an empty list means none.
	Objects []client.Object
	// Progress is called with what is being started.
	Progress func(string)
}

// Sandbox is the running system.
type Sandbox struct {
	*cluster.Cluster
	EC2 *ec2.Sim
	// Kubelets are those on the instances; nil if there are none.
	Kubelets *kubelet.Kubelets
	// Scheduler is nil until it is started.
	Scheduler *cluster.SchedulerProcess

	options Options
}

// Start starts everything:
//  1. etcd, kube-apiserver and, if wanted, kube-controller-manager, with custom resources and RBAC,
//  2. the EC2 simulator, with kubelets that boot on its instances,
//  3. pools and node classes,
//  4. the scheduler, under the shipped RBAC.
//
// If it returns an error, nothing is left running.
func Start(ctx context.Context, o Options) (*Sandbox, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	s := &Sandbox{options: o, Cluster: o.Plane}
	if s.Cluster == nil {
		o.Progress("etcd and kube-apiserver")
		var err error
		if s.Cluster, err = cluster.Start(ctx, o.Cluster); err != nil {
			return nil, err
		}
	}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Sandbox) start(ctx context.Context) error {
	s.options.Progress("the EC2 simulator")
	if err := s.startEC2(); err != nil {
		return err
	}
	objects := s.options.Objects
	if objects == nil {
		var err error
		if objects, err = Examples(); err != nil {
			return err
		}
	}
	if err := s.Create(ctx, objects...); err != nil {
		return err
	}
	if s.options.Idle {
		return nil
	}
	s.options.Progress("dovetail-scheduler")
	return s.StartScheduler(ctx)
}

func (s *Sandbox) startEC2() error {
	config := s.options.EC2
	admin := s.AdminConfig()
	config.ClusterEndpoint, config.ClusterCA = admin.Host, admin.CAData
	if !s.options.NoKubelets {
		k := s.options.Kubelet
		k.Kube = s.NodesConfig()
		if k.Speed == 0 {
			k.Speed = config.Speed
		}
		if k.Seed == 0 {
			k.Seed = config.Seed
		}
		kubelets, err := kubelet.New(k)
		if err != nil {
			return err
		}
		s.Kubelets, config.Machines = kubelets, kubelets
		s.OnStop(kubelets.Close)
	}
	if config.Policy == nil {
		config.Policy = manifests.IAMPolicy()
	}
	sim, err := ec2.New(config)
	if err != nil {
		return err
	}
	s.EC2 = sim
	s.OnStop(func() { sim.Close() })
	return nil
}

// StartScheduler starts the scheduler with its options, and with the shipped configuration unless they contain another.
func (s *Sandbox) StartScheduler(ctx context.Context) error {
	o := s.options.Scheduler
	o.AWSEnv = append(s.EC2.Env(), o.AWSEnv...)
	if o.Config == nil {
		var err error
		if o.Config, err = s.ShippedConfig(); err != nil {
			return err
		}
		o.Config.LongLeases()
	}
	args := map[string]any{"clusterName": s.EC2.Cluster(), "region": s.EC2.Region()}
	maps.Copy(args, s.options.ProvisionArgs)
	o.Config.SetProvisionArgs(args)
	scheduler, err := s.Cluster.StartScheduler(ctx, o)
	if err != nil {
		return fmt.Errorf("starting the scheduler: %w", err)
	}
	s.Scheduler = scheduler
	return s.publish(ctx, o.Config)
}

// publish writes the configuration into the ConfigMap of the manifests, where users and 'dovetail' look for it.
func (s *Sandbox) publish(ctx context.Context, config cluster.Config) error {
	text, err := config.YAML()
	if err != nil {
		return err
	}
	shipped := &corev1.ConfigMap{}
	err = s.Client().Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "dovetail-scheduler"}, shipped)
	if apierrors.IsNotFound(err) { // installed without the manifests
		return nil
	}
	if err == nil {
		shipped.Data[manifests.ConfigKey] = string(text)
		err = s.Client().Update(ctx, shipped)
	}
	if err != nil {
		return fmt.Errorf("publishing the scheduler's configuration: %w", err)
	}
	return nil
}

// Failed returns an error if a process of the system has exited by itself, otherwise nil.
func (s *Sandbox) Failed() error {
	if err := s.Cluster.Failed(); err != nil {
		return err
	}
	if s.Scheduler != nil {
		return s.Scheduler.Failed()
	}
	return nil
}
