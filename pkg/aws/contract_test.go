package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
	simcatalog "github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// The tests in this file run the provider against the simulator, over HTTP, with the unmodified SDK.

// world is a provider with its simulator and the statuses it has reported.
type world struct {
	*Provider
	clients sdk.Clients
	t       *testing.T
	ctx     context.Context
	sim     *sim.Sim

	mu       sync.Mutex
	told     map[string]ec2nc.EC2NodeClassStatus
	changed  chan struct{}
	statuses chan struct{}

	// Resources that a test case has created in the account.
	placementGroup, reservation string
}

// fewTypes are enough for most tests: reading all types takes most of the time of a short test. A test that needs all sets no
// catalogue.
var fewTypes = simcatalog.Builtin().Families("m5", "c5", "c5n", "m6g", "t3")

func allTypes(_ *Config, s *sim.Config) { s.Catalog = nil }

type worldOption func(*Config, *sim.Config)

func newWorld(t *testing.T, opts ...worldOption) *world {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, stop := context.WithCancel(ctx)
	simCfg := sim.Config{Seed: 1, Speed: 1000, Cluster: "films", ClusterCA: []byte("a certificate"), Catalog: fewTypes}
	cfg := Config{Region: "us-west-2", ClusterName: "films"}
	for _, o := range opts {
		o(&cfg, &simCfg)
	}
	before := goleak.IgnoreCurrent()
	s, err := sim.New(simCfg)
	if err != nil {
		t.Fatal(err)
	}
	aws := s.AWSConfig()
	client := &http1{}
	aws.HTTPClient = client.make()
	clients := sdk.NewClients(aws, clock.RealClock{})
	p, err := New(cfg, clients)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Provider: p, clients: clients, t: t, ctx: ctx, sim: s, told: map[string]ec2nc.EC2NodeClassStatus{}, changed: make(chan struct{}, 1), statuses: make(chan struct{}, 1)}
	poke := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	p.OnChange(func() { poke(w.changed) })
	p.OnNodeClass(func(name string, _ int64, st ec2nc.EC2NodeClassStatus) {
		w.mu.Lock()
		w.told[name] = st
		w.mu.Unlock()
		poke(w.statuses)
	})
	done := make(chan struct{})
	go func() {
		p.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		stop()
		<-done
		client.close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, before)
	})
	return w
}

// types waits until the class is usable.
func (w *world) types(class string) []*capacity.InstanceType {
	w.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		types, unready := w.InstanceTypes(class)
		if unready == "" {
			return types
		}
		select {
		case <-w.changed:
		case <-deadline:
			w.t.Fatalf("class %s is not ready: %s", class, unready)
		}
	}
}

// status waits for a status of the class that satisfies the condition.
func (w *world) status(class string, want func(ec2nc.EC2NodeClassStatus) bool) ec2nc.EC2NodeClassStatus {
	w.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		w.mu.Lock()
		st, ok := w.told[class]
		w.mu.Unlock()
		if ok && want(st) {
			return st
		}
		select {
		case <-w.statuses:
		case <-deadline:
			w.t.Fatalf("class %s was never as wanted; last status: %+v", class, st)
		}
	}
}

func nodeClass(change ...func(*ec2nc.EC2NodeClass)) *ec2nc.EC2NodeClass {
	nc := &ec2nc.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "uid-1", Generation: 1},
		Spec: ec2nc.EC2NodeClassSpec{
			SubnetSelectorTerms:        []ec2nc.SubnetSelectorTerm{{Tags: map[string]string{"karpenter.sh/discovery": "films"}}},
			SecurityGroupSelectorTerms: []ec2nc.SecurityGroupSelectorTerm{{Tags: map[string]string{"karpenter.sh/discovery": "*"}}},
			AMISelectorTerms:           []ec2nc.AMISelectorTerm{{Alias: "al2023@latest"}},
			Role:                       "DovetailNode",
		},
	}
	for _, c := range change {
		c(nc)
	}
	return nc
}

func newBatch(token, capacityType string, n int, offers ...capacity.OfferKey) capacity.LaunchBatch {
	w := capacity.LaunchBatch{Token: token, Attempt: 1, Pool: "pool", NodeClass: "default", CapacityType: capacityType, Offers: offers,
		Labels: map[string]string{"team": "a", "karpenter.k8s.aws/instance-family": "m5"},
		Taints: []corev1.Taint{{Key: "dedicated", Value: "a", Effect: corev1.TaintEffectNoSchedule}}}
	for i := range n {
		w.Claims = append(w.Claims, fmt.Sprintf("claim-%02d", i))
	}
	return w
}

func offer(instanceType, zone, capacityType string) capacity.OfferKey {
	return capacity.OfferKey{InstanceType: instanceType, Zone: "us-west-2" + zone, CapacityType: capacityType}
}

func typeOf(types []*capacity.InstanceType, name string) *capacity.InstanceType {
	for _, t := range types {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// subnetIn, groupCalled and imageName look up resources of the account.
func (w *world) subnetIn(zone string) string {
	w.t.Helper()
	out, err := w.clients.EC2.DescribeSubnets(w.ctx, &awsec2.DescribeSubnetsInput{Filters: []ec2types.Filter{sdk.Filter("availability-zone", zone)}})
	if err != nil {
		w.t.Fatal(err)
	}
	return *out.Subnets[0].SubnetId
}

func (w *world) groupCalled(name string) string {
	w.t.Helper()
	out, err := w.clients.EC2.DescribeSecurityGroups(w.ctx, &awsec2.DescribeSecurityGroupsInput{Filters: []ec2types.Filter{sdk.Filter("group-name", name)}})
	if err != nil {
		w.t.Fatal(err)
	}
	return *out.SecurityGroups[0].GroupId
}

func (w *world) imageName(id string) string {
	w.t.Helper()
	out, err := w.clients.EC2.DescribeImages(w.ctx, &awsec2.DescribeImagesInput{ImageIds: []string{id}})
	if err != nil {
		w.t.Fatal(err)
	}
	return *out.Images[0].Name
}

// prepared returns the launch batch with its request recorded.
func (w *world) prepared(v capacity.LaunchBatch) capacity.LaunchBatch {
	w.t.Helper()
	req, err := w.Prepare(w.ctx, v)
	if err != nil {
		w.t.Fatal(err)
	}
	v.Request = req
	return v
}

// launchedOnce launches the batch twice and returns the result and the instances that are found by its token: they are the same.
func (w *world) launchedOnce(v capacity.LaunchBatch) (first capacity.LaunchResult, found []capacity.Instance) {
	w.t.Helper()
	first, err := w.Launch(w.ctx, v)
	if err != nil {
		w.t.Fatal(err)
	}
	again, err := w.Launch(w.ctx, v)
	if err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(ids(first.Instances), ids(again.Instances)); diff != "" {
		w.t.Errorf("the same token launched something else (-first +second):\n%s", diff)
	}
	if found, err = w.FindBatch(w.ctx, v.Token); err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(ids(first.Instances), ids(found)); diff != "" {
		w.t.Errorf("found by launch batch (-launched +found):\n%s", diff)
	}
	return first, found
}

// EC2's reason for an instance that it couldn't start is in the answer that shows the instance as terminated.
func TestWhyAnInstanceEnded(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	const why = "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state"
	w.sim.EndNew(1, why)
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 2, offer("m5.large", "a", "on-demand"))))
	if err != nil || len(res.Instances) != 2 {
		t.Fatal(res, err)
	}
	var got []string
	for _, inst := range res.Instances {
		for got = append(got, ""); got[len(got)-1] == ""; {
			i, err := w.Describe(w.ctx, inst.ID)
			if err != nil {
				t.Fatal(err)
			}
			if i.State != capacity.InstancePending {
				got[len(got)-1] = i.Fate()
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"running", "terminated: " + why}, got); diff != "" {
		t.Errorf("fates (-want +got):\n%s", diff)
	}
}

func TestFromClassToInstance(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	types := w.types("default")
	if again, _ := w.InstanceTypes("default"); &again[0] != &types[0] {
		t.Error("nothing changed, but there is another slice")
	}
	m5 := typeOf(types, "m5.large")
	if m5 == nil || typeOf(types, "m6g.large") == nil {
		t.Fatal("m5.large or m6g.large is missing")
	}
	if len(m5.Offers) != 6 {
		t.Errorf("m5.large has %d offers, want 3 zones x 2 capacity types", len(m5.Offers))
	}
	for _, o := range m5.Offers {
		if !o.Available || o.Price <= 0 || o.Labels[ec2nc.LabelTopologyZoneID] == "" {
			t.Errorf("an offer without price, availability or zone id: %+v", o)
		}
	}

	v := w.prepared(newBatch("token-1", "on-demand", 3, offer("m5.large", "a", "on-demand"), offer("m5.large", "b", "on-demand"), offer("m6g.large", "a", "on-demand")))
	res, _ := w.launchedOnce(v)
	if len(res.Instances) != 3 || len(res.Exhausted) != 0 {
		t.Fatalf("launched %d instances, exhausted %v; want 3, none", len(res.Instances), res.Exhausted)
	}
	// Lowest price: the Graviton instance is cheaper than the Intel one.
	for _, i := range res.Instances {
		if i.InstanceType != "m6g.large" || i.Zone != "us-west-2a" || i.ProviderID != "aws:///us-west-2a/"+i.ID || i.CapacityType != "on-demand" {
			t.Errorf("launched %+v", i)
		}
	}
	id := res.Instances[0].ID
	if err := w.TagClaim(w.ctx, id, "claim-00", "node-00"); err != nil {
		t.Fatal(err)
	}
	i, err := w.Describe(w.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	wantTags := map[string]string{
		"kubernetes.io/cluster/films": "owned", "eks:eks-cluster-name": "films", "karpenter.sh/nodepool": "pool", "karpenter.k8s.aws/ec2nodeclass": "default",
		"dovetail.sh/launch-batch": "token-1", "karpenter.sh/nodeclaim": "claim-00", "Name": "node-00",
	}
	for k, v := range i.Tags {
		if strings.HasPrefix(k, "aws:") {
			delete(i.Tags, k)
		} else if wantTags[k] != v {
			t.Errorf("tag %s=%s is not wanted", k, v)
		}
	}
	if diff := cmp.Diff(wantTags, i.Tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if found, err := w.FindClaim(w.ctx, "claim-00"); err != nil || len(found) != 1 || found[0].ID != id {
		t.Errorf("found by claim: %v, %v", ids(found), err)
	}
	if i.InternalIP == "" || i.NodeName == "" || i.NodeName != i.Hostname || i.Claim != "claim-00" || i.LaunchBatch != "token-1" {
		t.Errorf("described %+v", i)
	}

	if all, err := w.List(w.ctx); err != nil || len(all) != 3 {
		t.Errorf("List gives %d instances and %v, want 3", len(all), err)
	}
	for _, i := range res.Instances {
		for range 2 { // terminating twice has the same effect as once
			if err := w.Terminate(w.ctx, i.ID); err != nil {
				t.Error(err)
			}
		}
	}
	if live := w.sim.Live(); len(live) != 0 {
		t.Errorf("%d instances live on", len(live))
	}
}

func ids(instances []capacity.Instance) []string {
	var out []string
	for _, i := range instances {
		out = append(out, i.ID)
	}
	return out
}

func TestUnknownInstances(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 3, offer("m5.large", "a", "on-demand"))))
	if err != nil {
		t.Fatal(err)
	}
	// One batch with two unknown ids in it.
	unknown := []string{"i-00000000000000001", "i-00000000000000002"}
	all := append(ids(res.Instances), unknown...)
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, id := range all {
		wg.Go(func() { errs[i] = w.Terminate(w.ctx, id) })
	}
	wg.Wait()
	for i, id := range all {
		if want := slices.Contains(unknown, id); errors.Is(errs[i], capacity.ErrInstanceNotFound) != want || (errs[i] == nil) == want {
			t.Errorf("terminating %s: %v", id, errs[i])
		}
	}
	if len(w.sim.Live()) != 0 {
		t.Error("a stranger in the batch kept others alive")
	}
	if _, err := w.Describe(w.ctx, unknown[0]); !errors.Is(err, capacity.ErrInstanceNotFound) {
		t.Errorf("describing a stranger: %v", err)
	}
}

func TestDescribesShareARequest(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 50, offer("m5.large", "a", "on-demand"))))
	if err != nil {
		t.Fatal(err)
	}
	// The first of the shared requests is refused: all callers wait, none fails.
	w.sim.Before("DescribeInstances", sim.Times(1, sim.Fault{Code: "RequestLimitExceeded", Message: "Request limit exceeded."}))
	var wg sync.WaitGroup
	for _, i := range res.Instances {
		wg.Go(func() {
			got, err := w.Describe(w.ctx, i.ID)
			if err != nil || got.ID != i.ID {
				t.Errorf("describing %s: %s, %v", i.ID, got.ID, err)
			}
		})
	}
	wg.Wait()
	if n := len(w.sim.Calls("DescribeInstances")); n > 3 {
		t.Errorf("%d requests for 50 callers", n)
	}
}

// machines records which instances boot, by id.
type machines struct {
	mu     sync.Mutex
	booted map[string]sim.Machine
	more   chan struct{}
}

func newMachines() *machines {
	return &machines{booted: map[string]sim.Machine{}, more: make(chan struct{}, 1)}
}

func (m *machines) Boot(b sim.Machine) {
	m.mu.Lock()
	m.booted[b.ID] = b
	m.mu.Unlock()
	select {
	case m.more <- struct{}{}:
	default:
	}
}

func (m *machines) Halt(string) {}

// await waits until the instance boots. One caller at a time.
func (m *machines) await(t *testing.T, id string) sim.Machine {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		m.mu.Lock()
		b, ok := m.booted[id]
		m.mu.Unlock()
		if ok {
			return b
		}
		select {
		case <-m.more:
		case <-deadline:
			t.Fatalf("%s does not boot", id)
		}
	}
}

// hold keeps calls of an action waiting until the channel is closed.
func (w *world) hold(action string, until chan struct{}) (remove func()) {
	return w.sim.Before(action, func(*sim.Request) *sim.Fault {
		return &sim.Fault{Call: func() { <-until }}
	})
}
