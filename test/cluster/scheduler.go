package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// SchedulerOptions are the options of StartScheduler. The zero value runs the shipped configuration.
type SchedulerOptions struct {
	// Name distinguishes the schedulers of one cluster in file names. Default: scheduler.
	Name string
	// Binary is the path of a dovetail-scheduler. If it is empty, one is built, once per process; Race builds it with the race
	// detector.
	Binary string
	Race   bool
	// Config is modified before it is written. Default: ShippedConfig of the cluster's manifests, with leases short enough for a test.
	Config Config
	// AWSEnv are the environment variables that point the AWS SDK to the simulator. No other variable that begins with AWS_ is passed
	// on, so that the process can't reach a real account.
	AWSEnv []string
	// Args are appended to the flags. Verbosity is --v, default 2.
	Args      []string
	Verbosity int
	// Deadline bounds each start, default two minutes; Patience each request to its server, default ten seconds.
	Deadline, Patience time.Duration
}

// SchedulerProcess is a dovetail-scheduler process. Only one goroutine may use it.
type SchedulerProcess struct {
	cluster *Cluster
	options SchedulerOptions
	process *Process
	client  *http.Client

	// URL is the base URL of healthz, readyz, livez, metrics, configz and debug.
	URL string
	// ConfigPath is the file of its configuration, LogPath its log, which restarts append to.
	ConfigPath, LogPath string
}

// StartScheduler runs the scheduler as the shipped user under the shipped RBAC and waits until it is ready. Cluster.Stop stops it.
func (c *Cluster) StartScheduler(ctx context.Context, o SchedulerOptions) (*SchedulerProcess, error) {
	if o.Name == "" {
		o.Name = "scheduler"
	}
	if o.Verbosity == 0 {
		o.Verbosity = 2
	}
	if o.Deadline == 0 {
		o.Deadline = 2 * time.Minute
	}
	if o.Patience == 0 {
		o.Patience = 10 * time.Second
	}
	if o.Binary == "" {
		b := Scheduler
		b.Race = o.Race
		var err error
		if o.Binary, err = Build(ctx, b); err != nil {
			return nil, err
		}
	}
	if o.Config == nil {
		var err error
		if o.Config, err = c.ShippedConfig(); err != nil {
			return nil, err
		}
		o.Config.ShortLeases()
	}
	s := &SchedulerProcess{
		cluster: c, options: o,
		ConfigPath: filepath.Join(c.Dir, o.Name+"-config.yaml"),
		LogPath:    filepath.Join(c.Dir, o.Name+".log"),
		// The server's certificate is self-signed.
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}},
	}
	o.Config.SetKubeconfig(c.SchedulerKubeconfig())
	data, err := o.Config.YAML()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.ConfigPath, data, 0o644); err != nil {
		return nil, fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	c.mu.Lock()
	c.schedulers = append(c.schedulers, s)
	c.mu.Unlock()
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// start starts the process. It tries once more if another process took its port first.
func (s *SchedulerProcess) start(ctx context.Context) error {
	err := s.startOnce(ctx)
	if err != nil && strings.Contains(err.Error(), "address already in use") {
		err = s.startOnce(ctx)
	}
	return err
}

func (s *SchedulerProcess) startOnce(ctx context.Context) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	s.URL = fmt.Sprintf("https://127.0.0.1:%d", ports[0])
	kubeconfig := s.cluster.SchedulerKubeconfig()
	s.process, err = startProcess(command{
		name: s.options.Name, path: s.options.Binary, log: s.LogPath,
		args: append([]string{
			"--config=" + s.ConfigPath,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics,/metrics/resources,/configz,/debug/*",
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", ports[0]),
			"--cert-dir=" + filepath.Join(s.cluster.Dir, s.options.Name+"-certs"),
			fmt.Sprintf("--v=%d", s.options.Verbosity),
		}, s.options.Args...),
		env: append(WithoutAWS(os.Environ()), s.options.AWSEnv...),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Deadline)
	defer cancel()
	return s.WaitReady(ctx)
}

// WithoutAWS removes every setting of the AWS SDK from an environment, and points the SDK's configuration files to nothing.
func WithoutAWS(environment []string) []string {
	kept := []string{"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_EC2_METADATA_DISABLED=true"}
	for _, e := range environment {
		if !strings.HasPrefix(e, "AWS_") {
			kept = append(kept, e)
		}
	}
	return kept
}

// WaitReady waits until /readyz answers ok, and returns an error if the process exits or ctx is done first.
func (s *SchedulerProcess) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := poll(ctx, func() error {
		if err := s.Failed(); err != nil {
			cancel(err)
			return err
		}
		_, err := s.Get(ctx, "/readyz")
		return err
	})
	if failed := s.Failed(); err != nil && failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("waiting for %s to be ready: %w; end of %s:\n%s", s.options.Name, err, s.LogPath, Tail(s.LogPath, 2000))
	}
	return nil
}

// Get returns the body of a path of the scheduler's server. Any status but 200 is an error, which contains the body.
func (s *SchedulerProcess) Get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return nil, fmt.Errorf("asking the scheduler for %s: %w", path, err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the scheduler for %s: %w", path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the scheduler for %s: %w: %s", path, err, body)
	}
	return body, nil
}

// Usage returns what the current process has used so far. It fails on systems other than Linux.
func (s *SchedulerProcess) Usage() (Usage, error) { return s.process.Usage() }

// Exited returns a channel that is closed when the current process exits, by itself or by Kill or Stop.
func (s *SchedulerProcess) Exited() <-chan struct{} { return s.process.Exited() }

// Failed returns how the process exited and the last lines of its log, or nil while it runs.
func (s *SchedulerProcess) Failed() error {
	select {
	case <-s.process.Exited():
		return s.process.failure()
	default:
		return nil
	}
}

// Log returns everything logged so far, including before restarts.
func (s *SchedulerProcess) Log() (string, error) {
	data, err := os.ReadFile(s.LogPath)
	if err != nil {
		return "", fmt.Errorf("reading the scheduler's log: %w", err)
	}
	return string(data), nil
}

// Pause freezes the process (SIGSTOP) until Resume. After that it finds everything that was written to the API meanwhile at once.
func (s *SchedulerProcess) Pause() { s.process.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *SchedulerProcess) Resume() { s.process.signal(syscall.SIGCONT) }

// Kill kills the process as a crash would (SIGKILL); its lease stays until it expires.
func (s *SchedulerProcess) Kill() { s.process.Kill() }

// Stop shuts the process down in order (SIGTERM) and reports whether it exited by itself within ten seconds.
func (s *SchedulerProcess) Stop() bool { return s.process == nil || s.process.Stop(10*time.Second) }

// SetBinary has the next start run another binary, as a roll-out would; empty: that of this tree.
func (s *SchedulerProcess) SetBinary(ctx context.Context, path string) (err error) {
	if path == "" {
		path, err = Build(ctx, Binary{Package: Scheduler.Package, Name: Scheduler.Name, Race: s.options.Race})
	}
	s.options.Binary = path
	return err
}

// Restart starts the process again after Kill, Stop or a crash, with the same configuration and log and another port, and
// waits until it is ready.
func (s *SchedulerProcess) Restart(ctx context.Context) error {
	s.process.Kill()
	return s.start(ctx)
}
