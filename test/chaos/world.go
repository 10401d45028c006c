package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// world is everything around the product: the API server, the cloud, the kubelets and the other controllers.
type world struct {
	ctx  context.Context
	stop context.CancelFunc
	api  *kubeapi.Server
	ec2  *ec2.Sim
	// kube and objects are the harness's own clients of the API server; no faults are injected into them.
	kube    kubernetes.Interface
	objects client.Client
	// lag is how long after a launch the cloud first lists the instance.
	lag time.Duration
	// cloudEnds is called with the provider ID of each Node that the cloud controller manager deletes.
	cloudEnds func(providerID string)
	// cloud is the client with which the cloud controller manager looks at instances; it sees them with the same lag as the product.
	cloud *awsec2.Client

	boots   *kubelet.Kubelets
	factory informers.SharedInformerFactory
	ended   []chan struct{}
}

// begin is the time at which all histories begin; the simulator's images were published before it, in the same year.
var begin = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// setting holds what differs between worlds.
type setting struct {
	seed uint64
	boot kubelet.Boot
	// lag is how long after a launch the cloud first lists the instance, fleet how long CreateFleet takes to answer.
	lag, fleet                            time.Duration
	hideNetwork, reuseAddresses, throttle bool
	// patience is how long the node lifecycle controller waits for a silent node, monitor how often it looks.
	patience, monitor time.Duration
	// overhead is the share of its memory that a machine keeps at most; 0: the usual. Schedulers plan with 7.5 %.
	overhead float64
	// kubelets and cloud change further configuration, controllers the connection of Kubernetes' own controllers; each may be nil.
	kubelets    func(*kubelet.Config)
	cloud       func(*ec2.Config)
	controllers func(*kubeapi.Client)
}

// drawn returns a random setting for a history.
func drawn(seed uint64, r *rand.Rand) setting {
	s := setting{seed: seed, boot: kubelet.Boot{Median: 30 * time.Second}, monitor: 5 * time.Second, patience: 50 * time.Second}
	if seed%2 == 0 {
		s.overhead = 0.12
	}
	if r.IntN(4) == 0 {
		s.boot.Never = 0.15
	}
	s.lag = []time.Duration{0, 0, 5 * time.Second, 20 * time.Second}[r.IntN(4)]
	s.hideNetwork = r.IntN(3) == 0
	s.fleet = []time.Duration{0, 2 * time.Second}[r.IntN(2)]
	s.reuseAddresses, s.throttle = r.IntN(3) == 0, r.IntN(3) == 0
	return s
}

// newWorld starts a cluster and an account.
func newWorld(scheme *runtime.Scheme, s setting, cloudEnds func(providerID string)) (*world, error) {
	w := &world{api: kubeapi.New(scheme, clock.RealClock{}), cloudEnds: cloudEnds, lag: s.lag}
	w.ctx, w.stop = context.WithCancel(context.Background())
	own := w.api.Client()
	w.kube = kubernetes.NewForConfigOrDie(own.Config())
	var err error
	if w.objects, err = client.New(own.Config(), client.Options{Scheme: scheme, Mapper: kubeapi.Mapper(scheme)}); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	kubelets := kubelet.Config{Client: kubernetes.NewForConfigOrDie(w.api.Client().Config()), Seed: s.seed, Boot: s.boot}
	if s.overhead > 0 {
		kubelets.Overhead = kubelet.DrawnOverhead(s.seed, 0.01, s.overhead)
	}
	if s.kubelets != nil {
		s.kubelets(&kubelets)
	}
	if w.boots, err = kubelet.New(kubelets); err != nil {
		return nil, err
	}
	cloud := ec2.Config{
		Seed: s.seed, Machines: w.boots, ClusterEndpoint: "https://kubernetes.invalid", ClusterCA: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
		Policy: manifests.IAMPolicy(), DescribeLag: s.lag, HideNetworkWhilePending: s.hideNetwork, FleetLatency: s.fleet, ReuseAddresses: s.reuseAddresses, Throttle: s.throttle,
	}
	if s.cloud != nil {
		s.cloud(&cloud)
	}
	if w.ec2, err = ec2.NewUnserved(cloud); err != nil {
		return nil, err
	}
	w.cloud = awsec2.New(awsec2.Options{Region: w.ec2.Region(), BaseEndpoint: aws.String(Endpoint), HTTPClient: &http.Client{Transport: &wire{handler: w.ec2.Handler()}},
		Credentials: w.ec2.AdminConfig().Credentials})
	return w, w.controllers(s)
}

// controllers runs the controllers of kube-controller-manager that affect a node's life, and the one that counts disruption budgets.
func (w *world) controllers(s setting) error {
	connection := w.api.Client()
	if s.controllers != nil {
		s.controllers(connection)
	}
	kube := kubernetes.NewForConfigOrDie(connection.Config())
	w.factory = informers.NewSharedInformerFactory(kube, 0)
	core := w.factory.Core().V1()
	nodes, err := nodelifecycle.NewNodeLifecycleController(w.ctx, w.factory.Coordination().V1().Leases(), core.Pods(), core.Nodes(), w.factory.Apps().V1().DaemonSets(),
		kube, s.monitor, time.Minute, s.patience, 0.1, 0.01, 50, 0.55)
	if err != nil {
		return fmt.Errorf("making the node lifecycle controller: %w", err)
	}
	taints, err := tainteviction.New(w.ctx, kube, core.Pods(), core.Nodes(), "taint-eviction-controller")
	if err != nil {
		return fmt.Errorf("making the taint eviction controller: %w", err)
	}
	garbage := podgc.NewPodGCInternal(w.ctx, kube, core.Pods(), core.Nodes(), 1000, 20*time.Second, 40*time.Second)
	apps := w.factory.Apps().V1()
	budgets := disruption.NewDisruptionController(w.ctx, core.Pods(), w.factory.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(), apps.ReplicaSets(),
		apps.Deployments(), apps.StatefulSets(), kube, meta.NewDefaultRESTMapper(nil), nil, nil) // which finds no owners of other kinds
	w.run(nodes.Run, taints.Run, garbage.Run, budgets.Run, w.manageCloudNodes)
	return nil
}

// run starts the informers and then the parts, which read from them.
func (w *world) run(parts ...func(context.Context)) {
	w.factory.Start(w.ctx.Done())
	w.factory.WaitForCacheSync(w.ctx.Done())
	for _, run := range parts {
		done := make(chan struct{})
		w.ended = append(w.ended, done)
		go func() {
			defer close(done)
			run(w.ctx)
		}()
	}
}

// close stops everything and waits until it has stopped.
func (w *world) close() {
	w.stop()
	for _, done := range w.ended {
		<-done
	}
	w.boots.Close()
	w.ec2.Close()
	w.factory.Shutdown()
}
