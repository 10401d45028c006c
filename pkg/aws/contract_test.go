package aws

import (
	"bytes"
	"compress/gzip"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// The tests in this file run the provider against the simulator, over HTTP, with the unmodified SDK.

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

// An instance with termination protection fails the request for all. The others end all the same.
func TestProtectedInstanceKeepsNoOtherAlive(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 5, offer("m5.large", "a", "on-demand"))))
	if err != nil {
		t.Fatal(err)
	}
	protected := res.Instances[2].ID
	w.sim.Before("TerminateInstances", func(r *sim.Request) *sim.Fault {
		for key, values := range r.Form {
			if strings.HasPrefix(key, "InstanceId") && slices.Contains(values, protected) {
				return &sim.Fault{Code: "OperationNotPermitted", Message: "The instance may not be terminated. Modify its 'disableApiTermination' instance attribute and try again."}
			}
		}
		return nil
	})
	var wg sync.WaitGroup
	for _, i := range res.Instances {
		wg.Go(func() {
			if err := w.Terminate(w.ctx, i.ID); (err != nil) != (i.ID == protected) {
				t.Errorf("terminating %s: %v", i.ID, err)
			}
		})
	}
	wg.Wait()
	if live := w.sim.Live(); len(live) != 1 || live[0].ID != protected {
		t.Errorf("%d instances live on, want %s", len(live), protected)
	}
}

// Where the permission to terminate is missing, a batch isn't halved to the end; where some instances of it are another owner's, the others end.
func TestTerminateWithoutPermission(t *testing.T) {
	const many = 16
	for _, tt := range []struct {
		name    string
		refused []int // which instances; nil: all
		calls   int   // at most
	}{
		{name: "of none", calls: 5},
		{name: "of one in each half", refused: []int{3, 12}, calls: 30},
		{name: "of neighbours", refused: []int{4, 5}, calls: 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.SetNodeClass(nodeClass())
			w.types("default")
			res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", many, offer("m5.large", "a", "on-demand"))))
			if err != nil {
				t.Fatal(err)
			}
			var ids, refused []string
			for i := range res.Instances {
				ids = append(ids, res.Instances[i].ID)
			}
			for _, i := range tt.refused {
				refused = append(refused, ids[i])
			}
			if len(refused) == 0 {
				refused = ids
			}
			calls := 0
			w.sim.Before("TerminateInstances", func(r *sim.Request) *sim.Fault {
				calls++
				for key, values := range r.Form {
					if strings.HasPrefix(key, "InstanceId") && slices.ContainsFunc(values, func(id string) bool { return slices.Contains(refused, id) }) {
						return &sim.Fault{Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation."}
					}
				}
				return nil
			})
			answers := w.terminateAll(w.ctx, ids)
			for _, id := range ids {
				if a, ok := answers[id]; !ok || (a.Err != nil) != slices.Contains(refused, id) {
					t.Errorf("terminating %s: %v, answered: %v", id, a.Err, ok)
				}
			}
			if calls > tt.calls {
				t.Errorf("%d calls, want %d at most", calls, tt.calls)
			}
			if live := w.sim.Live(); len(live) != len(refused) {
				t.Errorf("%d instances live on, want %d", len(live), len(refused))
			}
		})
	}
}

// A record that lacks what every request has is stale. It must not end the process, which would read it again.
func TestRecordedRequestOfNothing(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	batch := newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))
	batch.Request = packed.Bytes()
	if _, err := w.Launch(w.ctx, batch); !errors.Is(err, capacity.ErrRequestStale) {
		t.Errorf("launching it: %v", err)
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
