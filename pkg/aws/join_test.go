package aws

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// userDataOf returns the user data that an instance of the class would start with now.
func (w *world) userDataOf(token string) string {
	w.t.Helper()
	templates := w.forms("CreateLaunchTemplate")
	w.prepared(newBatch(token, "on-demand", 1, offer("m5.large", "a", "on-demand")))
	forms := templates()
	if len(forms) == 0 {
		return ""
	}
	data, err := base64.StdEncoding.DecodeString(forms[0].Get("LaunchTemplateData.UserData"))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

// The API server moves, or its certificate is renewed: nodes of the next launch get the new data.
func TestJoinDataIsRefreshed(t *testing.T) {
	w := newWorld(t, func(c *Config, _ *sim.Config) { c.JoinEvery = 10 * time.Millisecond })
	w.SetNodeClass(nodeClass())
	w.types("default")
	if data := w.userDataOf("t1"); !strings.Contains(data, "https://cluster.invalid") {
		t.Fatalf("user data %s", data)
	}
	w.sim.SetCluster("https://moved.invalid", []byte("another certificate"))
	want := base64.StdEncoding.EncodeToString([]byte("another certificate"))
	for deadline := time.After(60 * time.Second); ; {
		if ca, ok := w.ClusterCA(); ok && ca == want {
			break
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatal("nothing is asked again")
		}
	}
	if data := w.userDataOf("t2"); !strings.Contains(data, "https://moved.invalid") {
		t.Errorf("user data %s", data)
	}
}

// The configuration takes precedence over EKS's data.
func TestConfiguredJoinDataWins(t *testing.T) {
	w := newWorld(t, func(c *Config, _ *sim.Config) {
		c.ClusterEndpoint, c.ClusterDNS = "https://proxy.invalid", "172.20.0.99"
	})
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "bottlerocket@latest"}}
	}))
	w.types("default")
	data := w.userDataOf("t")
	for _, want := range []string{"https://proxy.invalid", "172.20.0.99", base64.StdEncoding.EncodeToString([]byte("a certificate"))} {
		if !strings.Contains(data, want) {
			t.Errorf("user data lacks %s:\n%s", want, data)
		}
	}
}

// For a cluster that isn't an EKS cluster, what nodes need has to be configured, and classes that don't need it work.
func TestClusterThatEKSDoesNotKnow(t *testing.T) {
	w := newWorld(t, func(_ *Config, s *sim.Config) { s.Cluster = "another" }, allowed("*", "*"))
	w.sim.AddImage(sim.Image{Name: "own", Arch: "x86_64", Created: time.Unix(1, 0), Tags: map[string]string{"own": "yes"}})
	look := func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{Tags: map[string]string{"karpenter.sh/discovery": "*"}}}
		nc.Spec.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Tags: map[string]string{"own": "yes"}}}
	}
	w.SetNodeClass(nodeClass(look, func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.Spec.AMIFamily = "needs", ptr.To("AL2023") }))
	w.SetNodeClass(nodeClass(look, func(nc *ec2nc.EC2NodeClass) { nc.Spec.AMIFamily = ptr.To("Custom") }))
	w.types("default")
	st := w.status("needs", func(st ec2nc.EC2NodeClassStatus) bool {
		return strings.Contains(condition(st, ec2nc.ConditionTypeValidationSucceeded).Message, "No cluster found")
	})
	if m := condition(st, ec2nc.ConditionTypeValidationSucceeded).Message; !strings.HasPrefix(m, "the cluster's join data is not known: clusterEndpoint is not configured, and EKS has not returned it: ResourceNotFoundException") {
		t.Errorf("ValidationSucceeded says %q", m)
	}
	if n := len(w.sim.Calls("DescribeCluster")); n > 2 {
		t.Errorf("asked %d times for what is not there", n)
	}
}

// EKS runs a cloud controller manager. Whether another cluster has one isn't known.
func TestCloudInitialized(t *testing.T) {
	for name, tc := range map[string]struct {
		configure func(*Config, *sim.Config)
		want      bool
	}{
		"EKS": {nil, true},
		"all is configured": {func(c *Config, _ *sim.Config) {
			c.ClusterEndpoint, c.ClusterCABundle, c.ClusterCIDR, c.KubernetesVersion = "https://cluster.invalid", "Y2E=", "10.100.0.0/16", "1.36"
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config, s *sim.Config) {
				if tc.configure != nil {
					tc.configure(c, s)
				}
			})
			w.SetNodeClass(nodeClass())
			w.types("default")
			res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := w.Describe(w.ctx, res.Instances[0].ID); err != nil || got.CloudInitialized != tc.want {
				t.Errorf("initialized by the cloud: %t, want %t (%v)", got.CloudInitialized, tc.want, err)
			}
		})
	}
}

// In an IPv6 cluster, interfaces have IPv6 addresses, of which the first is the node's, and the metadata service is reachable by IPv6.
func TestIPv6Cluster(t *testing.T) {
	w := newWorld(t, func(_ *Config, s *sim.Config) { s.IPv6 = true })
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Spec.IPPrefixCount = ptr.To[int32](1) }))
	w.types("default")
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))))
	if err != nil {
		t.Fatal(err)
	}
	i := w.instance(res.Instances[0].ID)
	if n := i.Interfaces[0]; !n.PrimaryIPv6 || n.IPv6Addresses != 1 || n.IPv6Prefixes != 1 || n.IPv4Prefixes != 0 || i.Metadata.IPv6 != "enabled" {
		t.Errorf("interface %+v, metadata %+v", n, i.Metadata)
	}
	got, err := w.Describe(w.ctx, i.ID)
	if err != nil || !strings.Contains(got.InternalIP, ":") || !strings.HasPrefix(got.NodeName, "ip-10-") {
		t.Errorf("node %s has the address %s: %v", got.NodeName, got.InternalIP, err)
	}
	// The node's name contains its IPv4 address, which it doesn't report. The next names are predicted all the same.
	w.ObserveNode(cloudprovider.RegisteredNode{NodeClass: "default", Name: got.NodeName, InstanceID: i.ID, InternalIP: got.InternalIP, InstanceType: got.InstanceType, ImageID: got.ImageID})
	if again, err := w.Describe(w.ctx, i.ID); err != nil || again.NameUnsure || again.NodeName != got.NodeName {
		t.Errorf("the name is %q after the node has registered, unsure %v: %v", again.NodeName, again.NameUnsure, err)
	}
	if data := w.userDataOf("t2"); data != "" {
		t.Error("the same template was made twice")
	}
}
