package aws

import (
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/validation"
)

// olderRequest is a recorded request as the version before recorded it.
func olderRequest(t *testing.T, request []byte) []byte {
	t.Helper()
	in, err := unpack(request)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range in.TagSpecifications {
		for i := range s.Tags {
			if awssdk.ToString(s.Tags[i].Key) == "dovetail.sh/launch-batch" {
				s.Tags[i].Key = awssdk.String("dovetail.sh/wave")
			}
		}
	}
	if request, err = pack(in); err != nil {
		t.Fatal(err)
	}
	return request
}

// A launch that an older version recorded, and perhaps made, is the same launch for this one: repeated it has the same instances, and
// they are found by their tag. That is so for what it has not sent, too.
func TestLaunchOfAnOlderVersion(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	fleets := w.forms("CreateFleet")
	v := w.prepared(newBatch("token-1", "on-demand", 3, offer("m5.large", "a", "on-demand")))
	v.Request = olderRequest(t, v.Request)
	first, found := w.launchedOnce(v)
	if len(first.Instances) != 3 {
		t.Errorf("%d instances were launched", len(first.Instances))
	}
	for _, i := range found {
		tags := w.instance(i.ID).Tags
		if _, both := tags["dovetail.sh/launch-batch"]; both || tags["dovetail.sh/wave"] != "token-1" || i.LaunchBatch != "token-1" {
			t.Errorf("launch batch %q, tags %v", i.LaunchBatch, tags)
		}
	}
	if all, err := w.List(w.ctx); err != nil || len(all) != 3 || all[0].LaunchBatch != "token-1" {
		t.Errorf("List gives %+v and %v", all, err)
	}
	for _, form := range fleets() {
		for k, v := range form {
			if v[0] == "dovetail.sh/launch-batch" {
				t.Errorf("the request was changed: %s is %s", k, v[0])
			}
		}
	}
	if found, err := w.FindBatch(w.ctx, "token-2"); err != nil || len(found) != 0 {
		t.Errorf("a launch batch that nobody launched: %v, %v", found, err)
	}
}

// Neither of the names is for a class to set.
func TestTheTagOfLaunchBatchesIsNotForUsers(t *testing.T) {
	for _, key := range []string{"dovetail.sh/launch-batch", "dovetail.sh/wave"} {
		nc := nodeClass()
		nc.Spec.Tags = map[string]string{key: "x"}
		if err := validation.Own(nc, nil, ownership.Owner{Cluster: "films"}); err == nil {
			t.Errorf("the tag %s is allowed", key)
		}
	}
}
