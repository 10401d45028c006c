package main

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

// karpenter is the process.
type karpenter struct {
	process *cluster.Process
	url     string
}

// startKarpenter starts the process, which stops with the cluster.
func startKarpenter(c *cluster.Cluster, binary string, instanceTypes []byte) (*karpenter, error) {
	file := filepath.Join(c.Dir, "instance-types.json")
	if err := os.WriteFile(file, instanceTypes, 0o644); err != nil {
		return nil, fmt.Errorf("writing instance types: %w", err)
	}
	metrics, err := freePort()
	if err != nil {
		return nil, err
	}
	health, err := freePort()
	if err != nil {
		return nil, err
	}
	process, err := cluster.StartProcess("karpenter", binary, filepath.Join(c.Dir, "karpenter.log"), []string{
		"--instance-types-file-path=" + file,
		"--disable-leader-election=true",
		fmt.Sprintf("--metrics-port=%d", metrics),
		fmt.Sprintf("--health-probe-port=%d", health),
	}, append(os.Environ(), "KUBECONFIG="+c.AdminKubeconfig(), "SYSTEM_NAMESPACE=kube-system"))
	if err != nil {
		return nil, err
	}
	c.OnStop(process.Kill)
	return &karpenter{process: process, url: fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics)}, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// metrics are the lines of a page of metrics.
type metrics []string

// metrics reads the page; it tries again while the process starts.
func (k *karpenter) metrics(ctx context.Context) (metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		page, err := k.page(ctx)
		if err == nil {
			return strings.Split(page, "\n"), nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("reading Karpenter's metrics: %w", err)
		case <-time.After(time.Second):
		}
	}
}

func (k *karpenter) page(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
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

// sum adds up the values of a metric that have all these labels.
func (m metrics) sum(name string, labels ...string) int {
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
