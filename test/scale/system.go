package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
	"github.com/dovetail-scheduler/dovetail/test/load"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

const (
	// speed divides the delays of instances and kubelets.
	speed = 20
	// heartbeat is how often nodes renew their leases and report their status, as real kubelets do the latter. They renew leases every ten
	// seconds, which the scheduler doesn't see and this computer couldn't do beside it.
	heartbeat = 5 * time.Minute
	// namespace is that of the pods on copied nodes.
	namespace = "placed"
	// filled is the pool of the copied nodes, roomy that of the bursts' nodes.
	filled, roomy = "filled", "roomy"
	jsonType      = "application/json"
)

var zones = []string{"us-west-2a", "us-west-2b", "us-west-2c"}

// system is the running system.
type system struct {
	*sandbox.Sandbox
	set *settings
	// kube and objects are clients without limits.
	kube    kubernetes.Interface
	objects client.Client
	// waiting returns how many of the pods in namespace don't run yet; with many, a part of them.
	waiting func(context.Context) (int, error)
	// contentType is what the scheduler writes; empty: what it would.
	contentType string
	// models are the nodes that are copied, one in each zone; nodes and pods are how many there are in all, own the nodes' instances by ID.
	models      []model
	nodes, pods int
	own         map[string]bool
	runs        int
}

// beginAPIServer starts etcd, kube-apiserver and everything else but a scheduler.
func beginAPIServer(ctx context.Context, dir string, set *settings) (*system, error) {
	// The plugin gives new nodes a taint that kube-controller-manager would have to remove. It doesn't run: it would take nodes for lost whose leases
	// are renewed so rarely.
	plane := cluster.Options{Dir: dir, APIServerArgs: []string{"--disable-admission-plugins=TaintNodesByCondition"}}
	box, err := sandbox.Start(ctx, options(sandbox.Options{Cluster: plane}))
	if err != nil {
		return nil, err
	}
	s := &system{Sandbox: box, set: set, own: map[string]bool{}}
	config := box.AdminConfig()
	config.ContentType, config.QPS, config.Burst = runtime.ContentTypeProtobuf, -1, -1
	s.waiting = func(ctx context.Context) (int, error) {
		list, err := s.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending", Limit: 1000})
		if err != nil {
			return 0, fmt.Errorf("listing pods that don't run: %w", err)
		}
		return len(list.Items), nil
	}
	return s, s.connect(ctx, config)
}

// beginMemory starts an API server in memory, and everything else but a scheduler.
func beginMemory(ctx context.Context, dir string, set *settings) (*system, error) {
	api := kubeapi.New(cluster.Scheme, clock.RealClock{})
	inside := api.Client().Config()
	kube, err := kubernetes.NewForConfig(inside)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, corev1.NamespaceNodeLease} {
		if err := createNamespace(ctx, kube, name); err != nil {
			return nil, err
		}
	}
	server := httptest.NewUnstartedServer(api.Handler())
	server.EnableHTTP2 = true
	server.StartTLS()
	admin := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: jsonType},
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}}
	plane, err := cluster.Open(admin, kubeapi.Mapper(cluster.Scheme), dir, func() {
		server.CloseClientConnections() // watches wouldn't end by themselves
		server.Close()
	})
	if err != nil {
		return nil, err
	}
	box, err := sandbox.Start(ctx, options(sandbox.Options{Plane: plane, Kubelet: kubelet.Config{Client: kube}}))
	if err != nil {
		return nil, err
	}
	s := &system{Sandbox: box, set: set, own: map[string]bool{}, contentType: jsonType}
	s.waiting = func(context.Context) (n int, err error) {
		api.Visit("", "pods", func(o *unstructured.Unstructured) {
			if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); o.GetNamespace() == namespace && phase == string(corev1.PodPending) {
				n++
			}
		})
		return n, nil
	}
	return s, s.connect(ctx, inside)
}

// options adds what both parts have in common.
func options(o sandbox.Options) sandbox.Options {
	o.Idle, o.EC2 = true, ec2.Config{Seed: 1, Speed: speed}
	o.Kubelet.LeaseInterval, o.Kubelet.StatusInterval = heartbeat, heartbeat
	o.Progress = func(what string) { standalone.Say("starting %s", what) }
	// Empty nodes of the one pool stay, which the copied nodes are until they get pods. Those of the other are to end soon.
	o.Objects = []client.Object{
		sandbox.NodeClass("default"),
		sandbox.NodePool(filled, func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, sandbox.Require(corev1.LabelInstanceTypeStable, "m6i.xlarge"))
			p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "10%"}, {Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonEmpty}}}
		}),
		sandbox.NodePool(roomy, func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, sandbox.Require("karpenter.k8s.aws/instance-cpu", "16", "32"))
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
			weight := int32(10)
			p.Spec.Weight = &weight
		}),
	}
	return o
}

// connect makes the clients, and the namespace of the pods on copied nodes. If it returns an error, nothing is left running.
func (s *system) connect(ctx context.Context, config *rest.Config) (err error) {
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if s.kube, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	config = rest.CopyConfig(config)
	config.ContentType = jsonType // custom resources have no other
	if s.objects, err = client.New(config, client.Options{Scheme: cluster.Scheme, Mapper: s.Client().RESTMapper()}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return createNamespace(ctx, s.kube, namespace)
}

func createNamespace(ctx context.Context, kube kubernetes.Interface, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
	if _, err := kube.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}

// process says how a scheduler differs from the others.
type process struct {
	rival  bool // another one runs beside it: its lease is the shipped one, where the others keep theirs, however slow this computer is
	series bool // its metrics have series for each node and pod, which take longer to read than anything else that is measured
}

// schedule starts a scheduler with the shipped configuration, but that nodes may end as fast as they can.
func (s *system) schedule(ctx context.Context, p process) (*cluster.SchedulerProcess, error) {
	config, err := s.ShippedConfig()
	if err != nil {
		return nil, err
	}
	config.SetProvisionArgs(map[string]any{"clusterName": s.EC2.Cluster(), "region": s.EC2.Region(), "maxTerminationsPerMinute": mostNodes,
		"disableClusterStateObservability": !p.series})
	if !p.rival {
		config.LongLeases()
	}
	if s.contentType != "" {
		config.SetMediaType(s.contentType)
	}
	s.runs++
	return s.Cluster.StartScheduler(ctx, cluster.SchedulerOptions{
		Name: fmt.Sprintf("scheduler-%d", s.runs), Binary: s.set.binary, Config: config, AWSEnv: s.EC2.Env(), Deadline: s.set.patience, Patience: 2 * time.Minute,
	})
}

// whileRunning returns a context that ends when the scheduler exits, or after the patience.
func (s *system) whileRunning(ctx context.Context, scheduler *cluster.SchedulerProcess) (context.Context, func()) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.set.patience, fmt.Errorf("not done within %s", s.set.patience))
	ctx, exit := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-scheduler.Exited():
			exit(errors.New("the scheduler has exited"))
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// end stops a scheduler, and keeps its log if that is wanted. The next scheduler doesn't wait for its lease.
func (s *system) end(ctx context.Context, scheduler *cluster.SchedulerProcess) error {
	if err := scheduler.Failed(); err != nil {
		return err
	}
	scheduler.Stop()
	if s.set.logs != "" {
		text, err := scheduler.Log()
		if err == nil {
			err = os.MkdirAll(s.set.logs, 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(s.set.logs, filepath.Base(s.Dir)+"-"+filepath.Base(scheduler.LogPath)), []byte(text), 0o644)
		}
		if err != nil {
			return fmt.Errorf("keeping a log: %w", err)
		}
	}
	err := s.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, "dovetail-scheduler", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the leader's lease: %w", err)
	}
	return nil
}

// watch begins to record bindings, by what the pods are for.
func (s *system) watch(ctx context.Context) (*load.Bindings, error) {
	return load.Watch(ctx, s.kube, func(p *corev1.Pod) string { return p.Labels[labelFor] })
}

// labelFor says what a pod is for.
const labelFor = "scale"
