package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options of Start. The zero value is a control plane without kube-controller-manager in a temporary directory.
type Options struct {
	// Dir holds data, certificates, kubeconfigs and logs. Empty: a temporary directory that Stop removes.
	Dir string
	// ControllerManager also starts kube-controller-manager. Without it nothing creates the pods of Deployments, collects garbage,
	// evicts pods from dead nodes or finishes deleting namespaces, and pods need no ServiceAccount.
	ControllerManager bool
	// Manifests is the folder of manifests to apply: "secondary" (default), "replace" or NoManifests.
	Manifests string
	// ControlPlane is the path of a control plane's binary; empty: that of this module, which is built first.
	ControlPlane string
	// APIServerArgs and ControllerManagerArgs are appended to the flags that Start passes.
	APIServerArgs, ControllerManagerArgs []string
	// Deadline bounds each attempt to start. Zero means two minutes.
	Deadline time.Duration
}

// Cluster is a running control plane with the custom resources and Dovetail's manifests installed.
type Cluster struct {
	// Dir holds data, certificates, kubeconfigs and logs.
	Dir string

	folder                  string          // of the manifests
	mapper                  meta.RESTMapper // nil: the API server is asked
	admin, scheduler, nodes *identity
	processes               []*Process // in the order in which they were started
	schedulers              []*SchedulerProcess
	closers                 []func() // run by Stop before it stops the control plane, last added first
	final                   []func() // run by Stop at the very end, in order

	mu      sync.Mutex
	client  client.WithWatch
	stopped bool
}

// Start starts a control plane, waits until it is ready and installs custom resources, manifests and identities. If it returns an
// error, nothing is left running. ctx and Options.Deadline bound only the start; Stop stops the cluster.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	binary := o.ControlPlane
	if binary == "" {
		var err error
		if binary, err = Build(ctx, ControlPlane); err != nil {
			return nil, err
		}
	}
	if o.Deadline == 0 {
		o.Deadline = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, o.Deadline)
	defer cancel()
	for attempt := 1; ; attempt++ {
		c, err := start(ctx, binary, o)
		if err == nil {
			return c, nil
		}
		// Another process may have taken a port since it was found free; any other error would recur.
		if attempt == 3 || !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
	}
}

func start(ctx context.Context, binary string, o Options) (*Cluster, error) {
	c, err := newCluster(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx, binary, o); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, binary string, o Options) error {
	plane, err := newPlane(c.Dir, binary, o)
	if err != nil {
		return err
	}
	c.admin, c.scheduler = plane.admin, plane.scheduler
	if err := c.run(plane.etcd()); err != nil {
		return err
	}
	if err := c.run(plane.apiServer()); err != nil {
		return err
	}
	if err := c.waitReady(ctx); err != nil {
		return err
	}
	if o.ControllerManager {
		if err := c.run(plane.controllerManager()); err != nil {
			return err
		}
	}
	return c.Install(ctx, o.Manifests)
}

// newCluster creates the cluster's directory. Stop removes it if it is a temporary one.
func newCluster(dir string) (*Cluster, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("making the cluster's directory: %w", err)
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("making the cluster's directory: %w", err)
		}
		return &Cluster{Dir: abs}, nil
	}
	dir, err := os.MkdirTemp("", "dovetail-cluster-")
	if err != nil {
		return nil, fmt.Errorf("making the cluster's directory: %w", err)
	}
	return &Cluster{Dir: dir, final: []func(){func() { os.RemoveAll(dir) }}}, nil
}

// Adopt returns a Cluster for an API server that the caller runs, and installs custom resources, the secondary manifests and
// identities in it. Stop calls stop last. admin must have all permissions.
func Adopt(ctx context.Context, admin *rest.Config, stop func()) (*Cluster, error) {
	c, err := newCluster("")
	if err != nil {
		return nil, err
	}
	c.final = append(c.final, stop)
	c.admin, err = newIdentity(c.Dir, "admin", admin)
	if err == nil {
		err = c.Install(ctx, secondary)
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Open returns a Cluster for an API server that the caller runs and that asks nobody who they are, such as test/kubeapi: all identities are the
// same user. mapper knows its resources, dir is as in Options. It installs nothing; ShippedConfig is that of the secondary manifests. Stop calls stop last.
func Open(config *rest.Config, mapper meta.RESTMapper, dir string, stop func()) (*Cluster, error) {
	c, err := newCluster(dir)
	if err != nil {
		stop()
		return nil, err
	}
	c.folder, c.mapper = secondary, mapper
	c.final = append(c.final, stop)
	if c.admin, err = newIdentity(c.Dir, "admin", config); err != nil {
		c.Stop()
		return nil, err
	}
	c.scheduler, c.nodes = c.admin, c.admin
	return c, nil
}

func (c *Cluster) run(cmd command) error {
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return nil
}

// waitReady polls the API server's /readyz until it answers ok, a process exits or ctx is done.
func (c *Cluster) waitReady(ctx context.Context) error {
	probe, err := rest.UnversionedRESTClientFor(withUnversionedCodec(c.admin.config))
	if err != nil {
		return fmt.Errorf("making a client for /readyz: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = poll(ctx, func() error {
		if err := c.Failed(); err != nil {
			cancel(err)
		}
		ask, done := context.WithTimeout(ctx, 5*time.Second)
		defer done()
		body, err := probe.Get().AbsPath("/readyz").DoRaw(ask)
		if err != nil {
			return fmt.Errorf("%w %s", err, body)
		}
		return nil
	})
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, ctx.Err()) {
		err = cause
	}
	if err != nil {
		return fmt.Errorf("waiting for kube-apiserver to be ready: %w", err)
	}
	return nil
}

// Failed returns an error if one of the control plane's processes has exited by itself, otherwise nil.
func (c *Cluster) Failed() error {
	var errs []error
	for _, p := range c.processes {
		select {
		case <-p.Exited():
			errs = append(errs, p.failure())
		default:
		}
	}
	return errors.Join(errs...)
}

// OnStop adds a function that Stop runs after it has stopped the schedulers and before it stops the control plane, last added first.
func (c *Cluster) OnStop(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closers = append(c.closers, f)
}

// Stop stops the schedulers, runs the functions of OnStop, stops the control plane and removes a temporary directory. It may be called
// twice.
func (c *Cluster) Stop() {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return
	}
	c.stopped = true
	schedulers := slices.Clone(c.schedulers)
	closers := slices.Clone(c.closers)
	c.mu.Unlock()

	for _, s := range schedulers {
		s.Stop()
	}
	for _, f := range slices.Backward(closers) {
		f()
	}
	// The data is deleted with the cluster, so the control plane needs no graceful shutdown.
	for _, p := range slices.Backward(c.processes) {
		p.Kill()
	}
	for _, f := range c.final {
		f()
	}
}
