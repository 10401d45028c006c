package kubelet

import (
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Config configures the kubelets. One of Kube and Client is required.
type Config struct {
	// Kube is the kubelets' configuration for the API server, with an identity that has a kubelet's permissions. Its client-side
	// limits are removed.
	Kube   *rest.Config
	Client kubernetes.Interface
	// Clock is the real clock by default.
	Clock clock.WithTicker
	// Seed makes delays the same in every run, per instance ID.
	Seed uint64
	// Speed divides the delays of Boot, PodStart and PodStop; default 1.
	Speed float64
	Boot  Boot
	// Fate returns what is special about an instance; it is called at each boot. Nil: no instance is special.
	Fate func(ec2.Machine) Fate
	// Overhead is what the machines' firmware and kernel keep of their memory; nil: the usual.
	Overhead Overhead
	// Version is the version that nodes report, default v1.36.4.
	Version string
	// DeclaredFeatures are the features that nodes report; nil: the Node's existing ones are left alone.
	DeclaredFeatures []string
	// Drivers are the CSI drivers of every node with their attach limits; a limit of 0 stands for the instance type's volume limit.
	// Nil: ebs.csi.aws.com.
	Drivers map[string]int32
	// PodStart is how long a container takes to start, default 1 s; PodStop how long it takes to stop unless its grace period is
	// shorter, default 1 s.
	PodStart, PodStop time.Duration
	// JobTime is how long pods of Jobs run, unless annotated with RunFor; default 5 s. It is not divided by Speed.
	JobTime time.Duration
	// LeaseInterval is the time between renewals of a node's Lease, default 10 s; with thousands of nodes it grows, to at most 25 s.
	// StatusInterval is the time between status reports of a node that hasn't changed, default 5 min. Neither is divided by Speed,
	// because the node lifecycle controller's timeouts aren't either.
	LeaseInterval, StatusInterval time.Duration
	// PluginsByLabel: NVIDIA's device plugin is a DaemonSet whose node affinity requires the label nvidia.com/gpu.present, as in its
	// Helm chart. It doesn't run on a Node without the label, unless the image contains it (Bottlerocket).
	PluginsByLabel bool
	// NoCloudController: no cloud controller manager initializes Nodes.
	NoCloudController bool
	// Workers is the number of goroutines that talk to the API server, default 32.
	Workers int
}

// Annotations that control how pods run; their values are durations such as "5s".
const (
	// RunFor: a pod that doesn't restart runs this long before it succeeds.
	RunFor = "sim.dovetail.sh/run-for"
	// PullFor: the pod's containers take this long to start, because of their image.
	PullFor = "sim.dovetail.sh/pull-for"
	// CrashAfter: the pod's main container fails each time it has run this long. InitCrashAfter does the same to its first init
	// container.
	CrashAfter     = "sim.dovetail.sh/crash-after"
	InitCrashAfter = "sim.dovetail.sh/init-crash-after"
)

// Boot sets how long nodes take to boot.
type Boot struct {
	// Median and P95 of the time from running instance to registered node, which is lognormal; default 40 s and twice the
	// median.
	Median, P95 time.Duration
	// ReadyMin to ReadyMax pass from registered to Ready, default 5 s to 15 s.
	ReadyMin, ReadyMax time.Duration
	// PluginsMin to PluginsMax pass from Ready to announced CSI drivers and device-plugin resources, default 2 s to 8 s.
	PluginsMin, PluginsMax time.Duration
	// Never is the share of nodes that never register, 0 to 1.
	Never float64
}

// Fate describes what is special about one instance.
type Fate struct {
	// Never: the kubelet never registers.
	Never bool
	// NoDevices: its device plugins never start, until Heal is called.
	NoDevices bool
}

func (c Config) withDefaults() (Config, error) {
	if c.Client == nil {
		if c.Kube == nil {
			return c, fmt.Errorf("kubelets need Kube or Client")
		}
		kube := rest.CopyConfig(c.Kube)
		kube.QPS, kube.Burst = -1, -1
		kube.ContentType, kube.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
		kube.UserAgent = "dovetail-light-kubelet"
		client, err := kubernetes.NewForConfig(kube)
		if err != nil {
			return c, fmt.Errorf("making the kubelets' client: %w", err)
		}
		c.Client = client
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Speed == 0 {
		c.Speed = 1
	}
	if c.Version == "" {
		c.Version = "v1.36.4"
	}
	if c.Drivers == nil {
		c.Drivers = map[string]int32{"ebs.csi.aws.com": 0}
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	b := &c.Boot
	def(&b.Median, 40*time.Second)
	def(&b.P95, 2*b.Median)
	def(&b.ReadyMin, 5*time.Second)
	def(&b.ReadyMax, 15*time.Second)
	def(&b.PluginsMin, 2*time.Second)
	def(&b.PluginsMax, 8*time.Second)
	def(&c.PodStart, time.Second)
	def(&c.PodStop, time.Second)
	def(&c.JobTime, 5*time.Second)
	def(&c.LeaseInterval, 10*time.Second)
	def(&c.StatusInterval, 5*time.Minute)
	if c.Workers == 0 {
		c.Workers = 32
	}
	switch {
	case c.Speed < 0:
		return c, fmt.Errorf("kubelets: speed %g is negative", c.Speed)
	case b.P95 < b.Median || b.ReadyMax < b.ReadyMin || b.PluginsMax < b.PluginsMin:
		return c, fmt.Errorf("kubelets: boot times are out of order: %+v", *b)
	case b.Never < 0 || b.Never > 1:
		return c, fmt.Errorf("kubelets: share of nodes that never register is %g", b.Never)
	}
	return c, nil
}

func (c *Config) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.Speed)
}
