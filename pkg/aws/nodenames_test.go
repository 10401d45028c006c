package aws

import (
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// For a class of unknown images, the first node shows how all of them are named.
func TestNameFormIsLearned(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.AMIFamily, nc.Spec.AMISelectorTerms = ptr.To("Custom"), []ec2nc.AMISelectorTerm{{Tags: map[string]string{"team": "platform"}}}
	}))
	w.types("default")
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))))
	if err != nil {
		t.Fatal(err)
	}
	described := func() capacity.Instance {
		i, err := w.Describe(w.ctx, res.Instances[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	i := described()
	if !i.NameUnsure {
		t.Errorf("named %q before anybody knows", i.NodeName)
	}
	short, _ := bootstrap.NameShortDNS.Name(&i)
	seen := cloudprovider.RegisteredNode{NodeClass: "default", Name: short, InstanceID: i.ID, InternalIP: i.InternalIP, InstanceType: i.InstanceType, ImageID: i.ImageID,
		NodeClassHash: w.classes.resolved("default").hash, Capacity: ofMemory(7700 * mi), Allocatable: ofMemory(7000 * mi)}
	w.ObserveNode(seen)
	if i := described(); i.NameUnsure || i.NodeName != short {
		t.Errorf("named %q, unsure %v; want %q", i.NodeName, i.NameUnsure, short)
	}
	// A node gets a different name: now the names can't be predicted any more.
	seen.Name = "worker-1"
	w.ObserveNode(seen)
	if i := described(); !i.NameUnsure {
		t.Errorf("named %q", i.NodeName)
	}
}

func TestNamesByResource(t *testing.T) {
	w := newWorld(t, func(_ *Config, s *sim.Config) { s.ResourceNames = true })
	w.SetNodeClass(nodeClass())
	w.types("default")
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))))
	if err != nil {
		t.Fatal(err)
	}
	i, err := w.Describe(w.ctx, res.Instances[0].ID)
	if err != nil || i.NameUnsure || i.NodeName != i.ID+".us-west-2.compute.internal" {
		t.Errorf("%+v, %v", i, err)
	}
}
