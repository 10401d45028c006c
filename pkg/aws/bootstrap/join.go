package bootstrap

import (
	"cmp"
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
	eks                     bool   // EKS has answered
	// Err is why some of the data is missing; nil: nothing is.
	Err error
}

// ClusterConfig is what the user has configured, and the version that the API server reports. What the user has configured takes precedence
// over EKS's data. EKS's version takes precedence over the API server's: during an upgrade of the control plane its API servers differ.
type ClusterConfig struct {
	Name                          string
	Endpoint, CABundle, CIDR, DNS string
	// KubernetesVersion is what the API server has said (major.minor), ServerVersion asks it again; nil: it isn't asked again.
	KubernetesVersion string
	ServerVersion     func(ctx context.Context) (string, error)
	Every             time.Duration // between two questions to EKS and to the API server
}

// asksEKS reports whether something is missing that only EKS can tell.
func (c *ClusterConfig) asksEKS() bool {
	return c.Endpoint == "" || c.CABundle == "" || c.CIDR == "" || c.KubernetesVersion == "" && c.ServerVersion == nil
}

// cluster returns the configured data.
func (c *ClusterConfig) cluster() *Cluster {
	j := &Cluster{endpoint: c.Endpoint, ca: c.CABundle, cidr: c.CIDR, dns: c.DNS, version: c.KubernetesVersion}
	if j.dns == "" {
		j.dns = tenth(j.cidr)
	}
	return j
}

// tenth returns the tenth address of the service range, which EKS and most others give to the cluster's DNS service.
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

// EKS reports whether EKS has answered that the cluster is one of its own. EKS runs a cloud controller manager.
func (j *Cluster) EKS() bool { return j.eks }

// ClusterReader reads from EKS the part of Cluster that the user has not configured.
type ClusterReader struct {
	cfg     ClusterConfig
	api     sdk.EKS // nil: everything has to be configured
	clock   clock.WithTicker
	changed func()

	now atomic.Pointer[Cluster]
	// server is the Kubernetes version that the API server reports, eks the one that EKS reports. Only Keep uses these fields.
	server serverVersion
	eks    string
}

// NewClusterReader returns a reader that calls changed when the data, or the reason why it is missing, may differ from before.
func NewClusterReader(cfg ClusterConfig, api sdk.EKS, c clock.WithTicker, changed func()) *ClusterReader {
	r := &ClusterReader{cfg: cfg, api: api, clock: c, changed: changed, server: serverVersion{now: cfg.KubernetesVersion}}
	r.now.Store(cfg.cluster())
	return r
}

// Known returns what is known now.
func (r *ClusterReader) Known() *Cluster { return r.now.Load() }

// Ready returns an error that names the data which user data needs and which is missing.
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

// Keep reads the data again and again until ctx ends. It returns at once if everything is configured and nothing can change.
func (r *ClusterReader) Keep(ctx context.Context) {
	asks := r.api != nil && r.cfg.asksEKS()
	if !asks && r.cfg.ServerVersion == nil {
		return
	}
	logger := klog.FromContext(ctx)
	retry := sdk.Backoff{}
	var had Cluster
	for {
		wait := min(r.cfg.Every, r.askServer(ctx))
		j, err := r.configured(), error(nil)
		if asks {
			j, err = r.ask(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil:
			if !sdk.IsNotFound(err) { // otherwise it is not an EKS cluster, and everything has to be configured
				wait = min(wait, retry.Next())
			}
			old := *r.now.Load()
			if last := old.Err; last == nil || sdk.Summarize(last) != sdk.Summarize(err) {
				logger.Error(err, "Could not get from EKS how nodes join the cluster", "retryIn", wait)
			}
			old.Err, old.version = err, cmp.Or(r.eks, r.server.now)
			j = &old
		default:
			retry = sdk.Backoff{}
		}
		if v := r.now.Load().version; v != "" && v != j.version {
			logger.Info("The control plane's Kubernetes version has changed; images are looked up for the new one", "before", v, "now", j.version)
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

// configured returns the configured data, with the version that is known.
func (r *ClusterReader) configured() *Cluster {
	cfg := r.cfg
	cfg.KubernetesVersion = cmp.Or(r.eks, r.server.now)
	return cfg.cluster()
}

// undecided is the pause before the API server is asked again, after it has reported a version that doesn't count yet (serverVersion).
const undecided = time.Minute

// askServer asks the API server for its version, and returns when to ask again.
func (r *ClusterReader) askServer(ctx context.Context) time.Duration {
	if r.cfg.ServerVersion == nil {
		return r.cfg.Every
	}
	if said, err := r.cfg.ServerVersion(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Could not ask the API server for its version, will retry", "err", err)
	} else if r.server.heard(said); r.server.next != "" {
		return undecided
	}
	return r.cfg.Every
}

// serverVersion is the version that the API servers report (now). Another version (next) replaces it only when it is reported twice in a row:
// during an upgrade the old and the new servers answer in turn.
type serverVersion struct{ now, next string }

func (v *serverVersion) heard(said string) {
	switch {
	case said == "":
	case v.now == "" || said == v.now || said == v.next:
		v.now, v.next = said, ""
	default:
		v.next = said
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
	r.eks = cmp.Or(awssdk.ToString(c.Version), r.eks)
	cfg.KubernetesVersion = cmp.Or(r.eks, r.server.now)
	if c.CertificateAuthority != nil {
		or(&cfg.CABundle, c.CertificateAuthority.Data)
	}
	if n := c.KubernetesNetworkConfig; n != nil {
		or(&cfg.CIDR, n.ServiceIpv4Cidr)
		or(&cfg.CIDR, n.ServiceIpv6Cidr)
	}
	j := cfg.cluster()
	j.eks = true
	return j, nil
}
