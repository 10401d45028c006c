package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// Cluster is the data that a node needs to join the cluster.
type Cluster struct {
	endpoint, ca, cidr, dns string
	version                 string // major.minor
	// Err is why something is missing.
	Err error
}

func (j *Cluster) complete() bool {
	return j.endpoint != "" && j.ca != "" && j.cidr != "" && j.version != ""
}

// ClusterConfig is what the user has configured of the cluster. It always takes precedence over EKS's data.
type ClusterConfig struct {
	Name                          string
	Endpoint, CABundle, CIDR, DNS string
	KubernetesVersion             string
	Every                         time.Duration // between two questions to EKS
}

// cluster returns the configured data.
func (c *ClusterConfig) cluster() *Cluster {
	j := &Cluster{endpoint: c.Endpoint, ca: c.CABundle, cidr: c.CIDR, dns: c.DNS, version: c.KubernetesVersion}
	if j.dns == "" {
		j.dns = tenth(j.cidr)
	}
	return j
}

// tenth returns the address that EKS and most others give to the cluster's DNS service.
func tenth(cidr string) string {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return ""
	}
	a := prefix.Masked().Addr()
	for range 10 {
		a = a.Next()
	}
	return a.String()
}

// IPv6 reports whether services have IPv6 addresses.
func (j *Cluster) IPv6() bool {
	prefix, err := netip.ParsePrefix(j.cidr)
	return err == nil && prefix.Addr().Is6()
}

// ClusterReader reads from EKS what is not configured of how nodes join the cluster.
type ClusterReader struct {
	cfg     ClusterConfig
	api     sdk.EKS // nil: everything has to be configured
	clock   clock.WithTicker
	changed func()

	now atomic.Pointer[Cluster]
}

// NewClusterReader returns a reader that calls changed when the data, or the reason why it is missing, may differ from before.
func NewClusterReader(cfg ClusterConfig, api sdk.EKS, c clock.WithTicker, changed func()) *ClusterReader {
	r := &ClusterReader{cfg: cfg, api: api, clock: c, changed: changed}
	r.now.Store(cfg.cluster())
	return r
}

// Known returns what is known now.
func (r *ClusterReader) Known() *Cluster { return r.now.Load() }

// Ready returns an error that names what is missing of the data for user data.
func (r *ClusterReader) Ready() error {
	j := r.now.Load()
	missing := ""
	switch {
	case j.endpoint == "":
		missing = "clusterEndpoint"
	case j.ca == "":
		missing = "clusterCABundle"
	case j.cidr == "":
		missing = "clusterCIDR"
	default:
		return nil
	}
	return fmt.Errorf("the cluster's join data is not known: %s is not configured, and EKS has not returned it%s", missing, because(j.Err))
}

// KubernetesVersion returns the version of the API server, major.minor, or an error that says why it is not known.
func (r *ClusterReader) KubernetesVersion() (string, error) {
	j := r.now.Load()
	if j.version == "" {
		return "", fmt.Errorf("the cluster's Kubernetes version is not known: it is not configured, and EKS has not returned it%s", because(j.Err))
	}
	return j.version, nil
}

// ClusterCA returns the certificates with which nodes verify the API server, as base64 of PEM; false: not known yet.
func (r *ClusterReader) ClusterCA() (string, bool) {
	ca := r.now.Load().ca
	return ca, ca != ""
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + sdk.Summarize(err)
}

// Keep reads the data again and again until ctx ends. It returns at once if everything is configured.
func (r *ClusterReader) Keep(ctx context.Context) {
	if r.api == nil || r.cfg.cluster().complete() {
		return
	}
	logger := klog.FromContext(ctx)
	retry := sdk.Backoff{}
	var had Cluster
	for {
		wait := r.cfg.Every
		j, err := r.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil:
			if wait = retry.Next(); sdk.IsNotFound(err) {
				wait = r.cfg.Every // not an EKS cluster: everything has to be configured
			}
			old := *r.now.Load()
			if last := old.Err; last == nil || sdk.Summarize(last) != sdk.Summarize(err) {
				logger.Error(err, "Could not get from EKS how nodes join the cluster", "retryIn", wait)
			}
			old.Err = err
			j = &old
		default:
			retry = sdk.Backoff{}
		}
		r.now.Store(j)
		if err != nil || *j != had {
			r.changed()
		}
		if err == nil {
			had = *j
		}
		if !sdk.Sleep(ctx, r.clock, wait) {
			return
		}
	}
}

func (r *ClusterReader) ask(ctx context.Context) (*Cluster, error) {
	out, err := r.api.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &r.cfg.Name})
	if err != nil {
		return nil, fmt.Errorf("describing EKS cluster %s: %w", r.cfg.Name, err)
	}
	c := out.Cluster
	if c == nil {
		return nil, errors.New("describing EKS cluster: the answer has none")
	}
	cfg := r.cfg
	or := func(have *string, answer *string) {
		if *have == "" {
			*have = awssdk.ToString(answer)
		}
	}
	or(&cfg.Endpoint, c.Endpoint)
	or(&cfg.KubernetesVersion, c.Version)
	if c.CertificateAuthority != nil {
		or(&cfg.CABundle, c.CertificateAuthority.Data)
	}
	if n := c.KubernetesNetworkConfig; n != nil {
		or(&cfg.CIDR, n.ServiceIpv4Cidr)
		or(&cfg.CIDR, n.ServiceIpv6Cidr)
	}
	return cfg.cluster(), nil
}
