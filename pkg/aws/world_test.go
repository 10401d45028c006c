package aws

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
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

// world is a provider with its simulator and the statuses it has reported. The provider has the shipped IAM policy.
type world struct {
	*Provider
	clients sdk.Clients
	user    sdk.Clients // of an administrator
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
	return newWorldAfter(t, func(*sim.Sim) {}, opts...)
}

// newWorldAfter prepares the simulator before anything is read from it.
func newWorldAfter(t *testing.T, prepare func(*sim.Sim), opts ...worldOption) *world {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, stop := context.WithCancel(ctx)
	simCfg := sim.Config{Seed: 1, Speed: 1000, Cluster: "films", ClusterCA: []byte("a certificate"), Catalog: fewTypes, Policy: shippedPolicy(t)}
	cfg := Config{Region: "us-west-2", ClusterName: "films"}
	for _, o := range opts {
		o(&cfg, &simCfg)
	}
	before := goleak.IgnoreCurrent()
	s, err := sim.New(simCfg)
	if err != nil {
		t.Fatal(err)
	}
	prepare(s)
	aws := s.AWSConfig()
	client := &http1{}
	aws.HTTPClient = client.make()
	clients := sdk.NewClients(aws, clock.RealClock{})
	p, err := New(cfg, clients)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Provider: p, clients: clients, user: sdk.NewClients(asUser(s, client), clock.RealClock{}), t: t, ctx: ctx, sim: s, told: map[string]ec2nc.EC2NodeClassStatus{}, changed: make(chan struct{}, 1), statuses: make(chan struct{}, 1)}
	poke := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	p.OnChange(func() { poke(w.changed) })
	p.OnNodeClass(func(o status.Object) {
		w.mu.Lock()
		w.told[o.GetName()] = o.(*ec2nc.EC2NodeClass).Status
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

// shippedPolicy returns manifests/iam/policy.json.
func shippedPolicy(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile("../../manifests/iam/policy.json")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// allowed adds a permission to the policy, as the documentation tells users to do for what only some clusters need.
func allowed(action, resource string) worldOption {
	return func(_ *Config, s *sim.Config) {
		s.Policy = []byte(strings.Replace(string(s.Policy), `"Statement": [`, fmt.Sprintf(`"Statement": [{"Sid": "More", "Effect": "Allow", "Action": %q, "Resource": %q},`, action, resource), 1))
	}
}

// asUser returns the configuration of somebody who may do everything.
func asUser(s *sim.Sim, c *http1) awssdk.Config {
	cfg := s.AdminConfig()
	cfg.HTTPClient = &http.Client{Transport: c.transport}
	return cfg
}

// types waits until the class is usable.
func (w *world) types(class string) []*capacity.InstanceType {
	w.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		types, err := w.InstanceTypes(class)
		if err == nil {
			return types
		}
		select {
		case <-w.changed:
		case <-deadline:
			w.t.Fatalf("class %s is not ready: %v", class, err)
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

func ids(instances []capacity.Instance) []string {
	var out []string
	for _, i := range instances {
		out = append(out, i.ID)
	}
	return out
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
