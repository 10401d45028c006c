package bootstrap

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"k8s.io/utils/clock"
)

// plane is a control plane: what its API servers answer in turn, and what EKS says of its version; empty: no answer.
type plane struct {
	servers []string
	eks     string
}

// planes is the control plane that answers now, and how often its API servers were asked.
type planes struct {
	now   atomic.Pointer[plane]
	asked int
}

func (s *planes) serverVersion(context.Context) (string, error) {
	p := s.now.Load()
	said := p.servers[s.asked%len(p.servers)]
	if s.asked++; said == "" {
		return "", errors.New("no route to host")
	}
	return said, nil
}

func (s *planes) DescribeCluster(context.Context, *eks.DescribeClusterInput, ...func(*eks.Options)) (*eks.DescribeClusterOutput, error) {
	p := s.now.Load()
	if p.eks == "" {
		return nil, &ekstypes.ResourceNotFoundException{}
	}
	return &eks.DescribeClusterOutput{Cluster: &ekstypes.Cluster{
		Version: &p.eks, Endpoint: awssdk.String("https://eks.invalid"),
		CertificateAuthority:    &ekstypes.Certificate{Data: awssdk.String("Q0E=")},
		KubernetesNetworkConfig: &ekstypes.KubernetesNetworkConfigResponse{ServiceIpv4Cidr: awssdk.String("172.20.0.0/16")},
	}}, nil
}

// The version of the control plane is followed after its upgrade, whoever tells it.
func TestVersionIsFollowed(t *testing.T) {
	configured := func(c *ClusterConfig) { c.Endpoint, c.CABundle, c.CIDR = "https://own.invalid", "Q0E=", "10.96.0.0/12" }
	for name, tc := range map[string]struct {
		config        func(*ClusterConfig)
		before, after plane
		// want is the version five minutes after the upgrade, later half an hour after it.
		want, later string
	}{
		"EKS tells, and counts before the API server": {func(*ClusterConfig) {},
			plane{servers: []string{"1.36"}, eks: "1.35"}, plane{servers: []string{"1.37"}, eks: "1.36"}, "1.36", "1.36"},
		"the API server tells": {configured,
			plane{servers: []string{"1.36"}}, plane{servers: []string{"1.37"}}, "1.36", "1.37"},
		"the API server tells, where there is no EKS cluster": {func(*ClusterConfig) {},
			plane{servers: []string{"1.36"}}, plane{servers: []string{"1.37"}}, "1.36", "1.37"},
		"API servers differ while they are upgraded": {configured,
			plane{servers: []string{"1.36"}}, plane{servers: []string{"1.37", "1.36"}}, "1.36", "1.36"},
		"the API server doesn't answer": {configured,
			plane{servers: []string{"1.36"}}, plane{servers: []string{""}}, "1.36", "1.36"},
		"the API server didn't answer at first": {configured,
			plane{servers: []string{""}}, plane{servers: []string{"1.37"}}, "1.37", "1.37"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p planes
				p.now.Store(&tc.before)
				cfg := ClusterConfig{Name: "films", KubernetesVersion: tc.before.servers[0], ServerVersion: p.serverVersion, Every: 5 * time.Minute}
				tc.config(&cfg)
				var changes atomic.Int32
				r := NewClusterReader(cfg, &p, clock.RealClock{}, func() { changes.Add(1) })
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); r.Keep(ctx) }()
				defer func() { stop(); <-done }()
				<-time.After(time.Hour + time.Second)
				synctest.Wait()
				before := tc.before.eks
				if before == "" {
					before = tc.before.servers[0]
				}
				if v, _ := r.KubernetesVersion(); v != before {
					t.Errorf("before the upgrade the version is %q, want %q", v, before)
				}
				p.now.Store(&tc.after)
				changes.Store(0)
				for _, step := range []struct {
					after time.Duration
					want  string
				}{{5 * time.Minute, tc.want}, {25 * time.Minute, tc.later}} {
					<-time.After(step.after)
					synctest.Wait()
					if v, _ := r.KubernetesVersion(); v != step.want {
						t.Errorf("%s later the version is %q, want %q", step.after, v, step.want)
					}
				}
				if changed := tc.later != before; changed && changes.Load() == 0 {
					t.Error("nobody was told of the change")
				}
			})
		})
	}
}

// Without anything to ask, nothing runs.
func TestNothingToAsk(t *testing.T) {
	cfg := ClusterConfig{Name: "films", Endpoint: "https://own.invalid", CABundle: "Q0E=", CIDR: "10.96.0.0/12", KubernetesVersion: "1.36", Every: time.Minute}
	NewClusterReader(cfg, &planes{}, clock.RealClock{}, func() { t.Error("changed") }).Keep(t.Context())
}
