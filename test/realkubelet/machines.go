package realkubelet

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

// Config configures the kubelets.
type Config struct {
	// Admin is a configuration for the API server with a user that may impersonate every node.
	Admin *rest.Config
	// Dir holds a folder per kubelet, with its log. Its path should be short, because sockets are created below it.
	Dir string
	// Plan returns how an instance boots, given what its user data configures; nil: at once and under its private DNS name.
	Plan func(*ec2.Machine, *kubelet.Shape) Plan
}

// Plan describes how one instance boots.
type Plan struct {
	// Name of the Node; empty: the instance's private DNS name.
	Name string
	// After is closed when the kubelet may start; nil: at once.
	After <-chan struct{}
	// DevicesAfter is the time between the kubelet's start and the report of its devices.
	DevicesAfter time.Duration
}

// Machines runs the kubelets of all instances. It implements ec2.Machines.
type Machines struct {
	cfg Config

	mu      sync.Mutex
	booted  map[string]chan struct{} // by instance ID; closed by Halt
	running map[string]*cluster.Process
	broken  error
	closed  bool
	wg      sync.WaitGroup
}

var _ ec2.Machines = &Machines{}

// New returns Machines without kubelets; Boot adds them.
func New(cfg Config) *Machines {
	return &Machines{cfg: cfg, booted: map[string]chan struct{}{}, running: map[string]*cluster.Process{}}
}

// Boot implements ec2.Machines.
func (k *Machines) Boot(m ec2.Machine) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	off := make(chan struct{})
	k.booted[m.ID] = off
	k.wg.Go(func() {
		if err := k.boot(&m, off); err != nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.broken = err
		}
	})
}

// boot starts the instance's kubelet according to its plan, unless off is closed before.
func (k *Machines) boot(m *ec2.Machine, off <-chan struct{}) error {
	shape, err := kubelet.ShapeOf(m, nil)
	if err != nil {
		return fmt.Errorf("the machine %s can't come up: %w", m.ID, err)
	}
	var plan Plan
	if k.cfg.Plan != nil {
		plan = k.cfg.Plan(m, shape)
	}
	if plan.Name == "" {
		plan.Name = m.PrivateDNSName
	}
	if plan.After != nil {
		select {
		case <-plan.After:
		case <-off:
			return nil
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.booted[m.ID] == nil {
		return nil
	}
	k.running[m.ID], err = k.start(m, shape, plan)
	return err
}

// Halt implements ec2.Machines: it kills the kubelet without a shutdown.
func (k *Machines) Halt(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.halt(id)
}

func (k *Machines) halt(id string) {
	if off := k.booted[id]; off != nil {
		close(off)
		delete(k.booted, id)
	}
	if p := k.running[id]; p != nil {
		p.Kill()
		delete(k.running, id)
	}
}

// Close stops all kubelets.
func (k *Machines) Close() {
	k.mu.Lock()
	k.closed = true
	for id := range k.booted {
		k.halt(id)
	}
	k.mu.Unlock()
	k.wg.Wait()
}

// Err returns an error if a kubelet couldn't be started or has exited by itself.
func (k *Machines) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.running {
		select {
		case <-p.Exited():
			return fmt.Errorf("the kubelet %s ended: %w", p.Name, p.Err())
		default:
		}
	}
	return k.broken
}

// Logs returns the last n bytes of every kubelet's log.
func (k *Machines) Logs(n int) string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(k.cfg.Dir, "*", logFile)) // the pattern is valid
	for _, f := range files {
		fmt.Fprintf(&b, "%s:\n%s\n", f, cluster.Tail(f, n))
	}
	return b.String()
}

const logFile = "log"

func (k *Machines) start(m *ec2.Machine, shape *kubelet.Shape, plan Plan) (*cluster.Process, error) {
	dir := filepath.Join(k.cfg.Dir, m.ID)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a kubelet's directory: %w", err)
	}
	o := &order{
		Kubeconfig: filepath.Join(dir, "kubeconfig"), Name: plan.Name, ProviderID: m.ProviderID(), Labels: shape.Labels, Taints: shape.Taints,
		Capacity: shape.Capacity, Reserved: reserved(shape), Devices: shape.Devices, DevicesAfter: plan.DevicesAfter,
	}
	if err := k.writeKubeconfig(o); err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("telling a kubelet what to do: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("looking for the binary to start kubelets from: %w", err)
	}
	return cluster.StartProcess(o.Name, self, filepath.Join(dir, logFile), nil, append(os.Environ(), orderVariable+"="+string(text), "TMPDIR="+dir))
}

// writeKubeconfig writes a kubeconfig for the node's user.
func (k *Machines) writeKubeconfig(o *order) error {
	admin := k.cfg.Admin
	file := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": {
			Server: admin.Host, CertificateAuthority: admin.CAFile, CertificateAuthorityData: admin.CAData, TLSServerName: admin.ServerName,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"node": {
			ClientCertificateData: admin.CertData, ClientKeyData: admin.KeyData, Token: admin.BearerToken,
			Impersonate: "system:node:" + o.Name, ImpersonateGroups: []string{"system:nodes", "system:authenticated"},
		}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "node"}},
		CurrentContext: "test",
	}
	if err := clientcmd.WriteToFile(file, o.Kubeconfig); err != nil {
		return fmt.Errorf("writing a kubelet's kubeconfig: %w", err)
	}
	return nil
}

// reserved returns what the image reserves: capacity minus allocatable.
func reserved(s *kubelet.Shape) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, total := range s.Capacity {
		total = total.DeepCopy()
		total.Sub(s.Allocatable[name])
		if !total.IsZero() {
			out[name] = total
		}
	}
	return out
}
