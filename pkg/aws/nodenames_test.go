package aws

import (
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
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

// An annotation that is added when the names could not be predicted counts until a node has yet another name, for a later process as well.
func TestAnnotationEndsNamesThatCannotBePredicted(t *testing.T) {
	class := func(annotations map[string]string) *ec2nc.EC2NodeClass {
		return nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Annotations = annotations })
	}
	p, err := New(Config{Region: "us-west-2", ClusterName: "films"}, sdk.NewClients(awsConfigForTests(), clock.RealClock{}))
	if err != nil {
		t.Fatal(err)
	}
	check := func(of *Provider, what string, want bootstrap.NameForm) {
		t.Helper()
		if got := of.classes.get("default").form(bootstrap.AL2023); got != want {
			t.Errorf("%s: names are %q, want %q", what, got, want)
		}
	}
	odd := cloudprovider.RegisteredNode{NodeClass: "default", Name: "worker-1", InstanceID: "i-1", InternalIP: "10.0.0.1"}
	learned := map[string]string{objects.AnnotationLearned: `{"nodeName":"other"}`}
	p.SetNodeClass(class(learned))
	check(p, "as an earlier process has seen", bootstrap.NameOther)
	learned[objects.AnnotationNodeName] = "short-dns"
	p.SetNodeClass(class(learned))
	check(p, "annotated", bootstrap.NameShortDNS)
	p.ObserveNode(odd)
	p.SetNodeClass(class(learned))
	check(p, "a node has another name", bootstrap.NameOther)
	later, err := New(Config{Region: "us-west-2", ClusterName: "films"}, sdk.NewClients(awsConfigForTests(), clock.RealClock{}))
	if err != nil {
		t.Fatal(err)
	}
	later.SetNodeClass(class(learned))
	check(later, "in a later process", bootstrap.NameShortDNS)
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
