package aws

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

// joined is the data that a node needs to join the cluster.
type joined struct {
	endpoint, ca, cidr, dns string
	version                 string // major.minor
	// err is why something is missing.
	err error
}

func (j *joined) complete() bool {
	return j.endpoint != "" && j.ca != "" && j.cidr != "" && j.version != ""
}

// clusterConfig is what the user has configured of the cluster. It always takes precedence over EKS's data.
type clusterConfig struct {
	name                          string
	endpoint, caBundle, cidr, dns string
	kubernetesVersion             string
	every                         time.Duration // between two questions to EKS
}

// joined returns the configured data.
func (c *clusterConfig) joined() *joined {
	j := &joined{endpoint: c.endpoint, ca: c.caBundle, cidr: c.cidr, dns: c.dns, version: c.kubernetesVersion}
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

func (j *joined) ipv6() bool {
	prefix, err := netip.ParsePrefix(j.cidr)
	return err == nil && prefix.Addr().Is6()
}

// clusterReader reads from EKS what is not configured of how nodes join the cluster.
type clusterReader struct {
	cfg     clusterConfig
	api     sdk.EKS // nil: everything has to be configured
	clock   clock.WithTicker
	changed func()

	now atomic.Pointer[joined]
}

// newClusterReader returns a reader that calls changed when the data, or the reason why it is missing, may differ from before.
func newClusterReader(cfg clusterConfig, api sdk.EKS, c clock.WithTicker, changed func()) *clusterReader {
	r := &clusterReader{cfg: cfg, api: api, clock: c, changed: changed}
	r.now.Store(cfg.joined())
	return r
}

// Known returns what is known now.
func (r *clusterReader) Known() *joined { return r.now.Load() }

// ready returns an error that names what is missing of the data for user data.
func (r *clusterReader) ready() error {
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
	return fmt.Errorf("the cluster's join data is not known: %s is not configured, and EKS has not returned it%s", missing, because(j.err))
}

func (r *clusterReader) kubernetesVersion() (string, error) {
	j := r.now.Load()
	if j.version == "" {
		return "", fmt.Errorf("the cluster's Kubernetes version is not known: it is not configured, and EKS has not returned it%s", because(j.err))
	}
	return j.version, nil
}

// ClusterCA returns the certificates with which nodes verify the API server, as base64 of PEM; false: not known yet.
func (r *clusterReader) ClusterCA() (string, bool) {
	ca := r.now.Load().ca
	return ca, ca != ""
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + sdk.Summarize(err)
}

// keep reads the data again and again until ctx ends. It returns at once if everything is configured.
func (r *clusterReader) keep(ctx context.Context) {
	if r.api == nil || r.cfg.joined().complete() {
		return
	}
	logger := klog.FromContext(ctx)
	retry := sdk.Backoff{}
	var had joined
	for {
		wait := r.cfg.every
		j, err := r.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil:
			if wait = retry.Next(); sdk.IsNotFound(err) {
				wait = r.cfg.every // not an EKS cluster: everything has to be configured
			}
			old := *r.now.Load()
			if last := old.err; last == nil || sdk.Summarize(last) != sdk.Summarize(err) {
				logger.Error(err, "Could not get from EKS how nodes join the cluster", "retryIn", wait)
			}
			old.err = err
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

func (r *clusterReader) ask(ctx context.Context) (*joined, error) {
	out, err := r.api.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &r.cfg.name})
	if err != nil {
		return nil, fmt.Errorf("describing EKS cluster %s: %w", r.cfg.name, err)
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
	or(&cfg.endpoint, c.Endpoint)
	or(&cfg.kubernetesVersion, c.Version)
	if c.CertificateAuthority != nil {
		or(&cfg.caBundle, c.CertificateAuthority.Data)
	}
	if n := c.KubernetesNetworkConfig; n != nil {
		or(&cfg.cidr, n.ServiceIpv4Cidr)
		or(&cfg.cidr, n.ServiceIpv6Cidr)
	}
	return cfg.joined(), nil
}
