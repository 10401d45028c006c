package aws

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"k8s.io/klog/v2"
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

// configured returns the configured data. It always takes precedence over EKS's data.
func configured(cfg *Config) *joined {
	j := &joined{endpoint: cfg.ClusterEndpoint, ca: cfg.ClusterCABundle, cidr: cfg.ClusterCIDR, dns: cfg.ClusterDNS, version: cfg.KubernetesVersion}
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

// joinData returns the data for user data; the error names what is missing.
func (p *Provider) joinData() (*joined, error) {
	j := p.join.Load()
	missing := ""
	switch {
	case j.endpoint == "":
		missing = "clusterEndpoint"
	case j.ca == "":
		missing = "clusterCABundle"
	case j.cidr == "":
		missing = "clusterCIDR"
	default:
		return j, nil
	}
	return nil, fmt.Errorf("the cluster's join data is not known: %s is not configured, and EKS has not returned it%s", missing, because(j.err))
}

func (p *Provider) kubernetesVersion() (string, error) {
	j := p.join.Load()
	if j.version == "" {
		return "", fmt.Errorf("the cluster's Kubernetes version is not known: it is not configured, and EKS has not returned it%s", because(j.err))
	}
	return j.version, nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + summarize(err)
}

// keepJoin reads from EKS what is not configured, until ctx ends.
func (p *Provider) keepJoin(ctx context.Context) {
	logger := klog.FromContext(ctx)
	retry := backoff{}
	var had joined
	for {
		wait := p.cfg.JoinEvery
		j, err := p.askJoin(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil:
			if wait = retry.next(); IsNotFound(err) {
				wait = p.cfg.JoinEvery // not an EKS cluster: everything has to be configured
			}
			old := *p.join.Load()
			if told := old.err; told == nil || summarize(told) != summarize(err) {
				logger.Error(err, "Could not get from EKS how nodes join the cluster", "retryIn", wait)
			}
			old.err = err
			j = &old
		default:
			retry = backoff{}
		}
		p.join.Store(j)
		if err != nil || *j != had {
			p.wakeClasses()
		}
		if err == nil {
			had = *j
		}
		if !sleep(ctx, p.clock, wait) {
			return
		}
	}
}

func (p *Provider) askJoin(ctx context.Context) (*joined, error) {
	out, err := p.eks.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &p.cfg.ClusterName})
	if err != nil {
		return nil, fmt.Errorf("describing EKS cluster %s: %w", p.cfg.ClusterName, err)
	}
	c := out.Cluster
	if c == nil {
		return nil, errors.New("describing EKS cluster: the answer has none")
	}
	cfg := p.cfg
	or := func(have *string, said *string) {
		if *have == "" {
			*have = awssdk.ToString(said)
		}
	}
	or(&cfg.ClusterEndpoint, c.Endpoint)
	or(&cfg.KubernetesVersion, c.Version)
	if c.CertificateAuthority != nil {
		or(&cfg.ClusterCABundle, c.CertificateAuthority.Data)
	}
	if n := c.KubernetesNetworkConfig; n != nil {
		or(&cfg.ClusterCIDR, n.ServiceIpv4Cidr)
		or(&cfg.ClusterCIDR, n.ServiceIpv6Cidr)
	}
	return configured(&cfg), nil
}
