package karpenter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// Process is a running Karpenter.
type Process struct {
	*cluster.Process
	url string
}

// Start starts a main of Karpenter with all permissions in the cluster. It stops with the cluster. Of this process's environment it gets no
// variable that begins with AWS_.
func Start(c *cluster.Cluster, binary string, args, env []string) (*Process, error) {
	metrics, err := freePort()
	if err != nil {
		return nil, err
	}
	health, err := freePort()
	if err != nil {
		return nil, err
	}
	args = append([]string{fmt.Sprintf("--metrics-port=%d", metrics), fmt.Sprintf("--health-probe-port=%d", health)}, args...)
	env = append(append(cluster.WithoutAWS(os.Environ()), "KUBECONFIG="+c.AdminKubeconfig(), "SYSTEM_NAMESPACE=kube-system"), env...)
	process, err := cluster.StartProcess("karpenter", binary, filepath.Join(c.Dir, "karpenter.log"), args, env)
	if err != nil {
		return nil, err
	}
	c.OnStop(process.Kill)
	return &Process{Process: process, url: fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics)}, nil
}

// Failed returns an error if the process has exited, otherwise nil.
func (p *Process) Failed() error {
	select {
	case <-p.Exited():
		return fmt.Errorf("karpenter has exited; end of its log:\n%s", cluster.Tail(p.LogPath, 2000))
	default:
		return nil
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Metrics are the lines of a page of metrics.
type Metrics []string

// Metrics reads the page; it tries again while the process starts.
func (p *Process) Metrics(ctx context.Context) (Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		page, err := p.page(ctx)
		if err == nil {
			return strings.Split(page, "\n"), nil
		}
		if failed := p.Failed(); failed != nil {
			return nil, failed
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("reading Karpenter's metrics: %w", err)
		case <-time.After(time.Second):
		}
	}
}

func (p *Process) page(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// Sum adds up the values of a metric that have all these labels, each written as in the page: name="value".
func (m Metrics) Sum(name string, labels ...string) int {
	total := 0.0
next:
	for _, line := range m {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		if value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
			total += value
		}
	}
	return int(total)
}
