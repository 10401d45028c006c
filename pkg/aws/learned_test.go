package aws

import (
	"errors"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/reported"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const mi = int64(1) << 20

func ofMemory(bytes int64) capacity.Resources { return capacity.Resources{"memory": bytes} }

// plainImage returns the class's image for amd64 instances without devices.
func plainImage(st ec2nc.EC2NodeClassStatus) string {
	for _, a := range st.AMIs {
		if a.Requirements[0].Values[0] == "amd64" && a.Requirements[1].Operator == "DoesNotExist" {
			return a.ID
		}
	}
	return ""
}

func TestMemoryIsLearned(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	memory := func() (total, free int64) {
		m := typeOf(w.types("default"), "m5.large")
		return m.Capacity["memory"] / mi, m.Allocatable["memory"] / mi
	}
	image := plainImage(w.status("default", isReady("True")))
	for _, tt := range []struct {
		name        string
		image       string
		seen        int64
		total, free int64
	}{
		{"a guess", "", 0, 7577, 6903},
		{"another image's node says nothing", "ami-other", 7000 * mi, 7577, 6903},
		{"the first node", image, 7700*mi + 4096, 7684, 7010},
		{"a few pages less are no news", image, 7700 * mi, 7684, 7010},
		{"a smaller one", image, 7699*mi + 7, 7683, 7009},
		{"a larger one does not count", image, 7800 * mi, 7683, 7009},
	} {
		version := w.Version()
		n := cloudprovider.RegisteredNode{NodeClass: "default", InstanceType: "m5.large", ImageID: tt.image, Capacity: ofMemory(tt.seen)}
		w.ObserveNode(n)
		before := w.types("default")
		total, free := memory()
		if total != tt.total || free != tt.free {
			t.Errorf("%s: capacity %d, allocatable %d MiB, want %d, %d", tt.name, total, free, tt.total, tt.free)
		}
		if w.ObserveNode(n); version != w.Version() {
			if again, _ := w.InstanceTypes("default"); &again[0] != &before[0] {
				t.Errorf("%s: told twice, built twice", tt.name)
			}
		}
	}
}

// What was learned is recorded on the object, and a later process reads it from there.
func TestWhatIsDiscoveredIsKept(t *testing.T) {
	kept := make(chan string, 10)
	w := newWorld(t)
	w.OnLearned(func(class, value string) error {
		if class != "default" {
			t.Errorf("kept for class %s", class)
		}
		kept <- value
		return nil
	})
	w.SetNodeClass(nodeClass())
	image := plainImage(w.status("default", isReady("True")))
	w.ObserveNode(cloudprovider.RegisteredNode{NodeClass: "default", Name: "i-1", InstanceID: "i-1", InstanceType: "m5.large", ImageID: image, Capacity: ofMemory(7700 * mi)})
	w.ObserveNode(cloudprovider.RegisteredNode{NodeClass: "default", InstanceType: "c5.large", ImageID: "ami-of-yesterday", Capacity: ofMemory(1)})
	var value string
	select {
	case value = <-kept:
	case <-time.After(60 * time.Second):
		t.Fatal("nothing is kept")
	}
	if diff := cmp.Diff(`{"nodeName":"instance-id","memory":{"`+image+`":{"m5.large":8074035200}}}`, value); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	later := w.later(time.Hour)
	later.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Annotations = map[string]string{objects.AnnotationLearned: value} }))
	if m := later.classes.reported.Now().Memory(reported.Key{InstanceType: "m5.large", Image: image}); m != 7700*mi {
		t.Errorf("memory %d MiB, want what was learned", m/mi)
	}
	if f := later.classes.get("default").form(bootstrap.AL2023); f != bootstrap.NameID {
		t.Errorf("names are %q", f)
	}
}

func TestWhatIsDiscoveredAndCannotBeRead(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Annotations = map[string]string{objects.AnnotationLearned: "{"} }))
	if m := typeOf(w.types("default"), "m5.large").Capacity["memory"]; m != 7577*mi {
		t.Errorf("memory %d MiB, want the guess", m/mi)
	}
}

// A burst of nodes is recorded in one write, and a failed write is repeated later.
func TestWhatIsDiscoveredIsKeptNowAndThen(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	p, err := New(Config{Region: "us-west-2", ClusterName: "films", Clock: c}, sdk.NewClients(awsConfigForTests(), clock.RealClock{}))
	if err != nil {
		t.Fatal(err)
	}
	calls, fail := 0, true
	p.OnLearned(func(string, string) error {
		calls++
		if fail {
			return errors.New("no API server")
		}
		return nil
	})
	nc := nodeClass()
	p.SetNodeClass(nc)
	k := p.classes.get(nc.Name)
	k.resolved.Store(&resolved{class: nc, images: []image{{id: "ami-1"}}})
	var next time.Time
	keep := func() time.Duration { return p.keepLearned(t.Context(), k, &next) }
	if d := keep(); d != 0 || calls != 0 {
		t.Errorf("nothing learned: again in %v, %d calls", d, calls)
	}
	see := func(memory int64) {
		p.ObserveNode(cloudprovider.RegisteredNode{NodeClass: nc.Name, InstanceType: "m5.large", ImageID: "ami-1", Capacity: ofMemory(memory * mi)})
	}
	for i, step := range []struct {
		do    func()
		again time.Duration
		calls int
	}{
		{func() { see(7700) }, learnedPause, 1},                  // fails
		{func() { c.Step(4 * time.Second) }, 6 * time.Second, 1}, // not yet
		{func() { c.Step(6 * time.Second); fail = false }, 0, 2}, // works
		{func() {}, 0, 2}, // nothing new
		{func() { see(7690); see(7680) }, learnedPause, 2}, // too soon
		{func() { c.Step(learnedPause) }, 0, 3},            // both at once
		{func() { c.Step(learnedPause); see(7690) }, 0, 3}, // not smaller
	} {
		step.do()
		if d := keep(); d != step.again || calls != step.calls {
			t.Errorf("step %d: again in %v, %d calls; want %v, %d", i, d, calls, step.again, step.calls)
		}
	}
}

// What a script tells a kubelet is known from the nodes that it has started. Other types of the class are expected to keep as much beyond what is
// computed, the class's record tells it to the next process, and an edit of the class starts again.
func TestWhatKubeletsKeepIsLearned(t *testing.T) {
	records := make(chan string, 10)
	w := newWorld(t)
	w.OnLearned(func(_, value string) error { records <- value; return nil })
	class := func(script string, generation int64) *ec2nc.EC2NodeClass {
		return nodeClass(func(nc *ec2nc.EC2NodeClass) {
			nc.Spec.AMIFamily, nc.Spec.AMISelectorTerms = ptr.To("Custom"), []ec2nc.AMISelectorTerm{{Tags: map[string]string{"team": "platform"}}}
			nc.Spec.UserData, nc.Generation = ptr.To("#!/bin/bash\nkubeadm join "+script+"\n"), generation
			nc.Annotations = map[string]string{objects.AnnotationNodeName: string(bootstrap.NamePrivateDNS)}
		})
	}
	shown := func(of *world, name string) capacity.Resources {
		a := typeOf(of.types("default"), name).Allocatable
		return capacity.Resources{"cpu": a["cpu"], "memory": a["memory"] / mi, "pods": a["pods"]}
	}
	w.SetNodeClass(class("a", 1))
	before := shown(w, "m5.large")
	image := typeOf(w.types("default"), "m5.large").Image
	w.ObserveNode(cloudprovider.RegisteredNode{NodeClass: "default", NodeClassHash: w.classes.resolved("default").hash, InstanceType: "m5.large", ImageID: image,
		Capacity: capacity.Resources{"cpu": 2000, "memory": 7700 * mi, "pods": 110}, Allocatable: capacity.Resources{"cpu": 1500, "memory": 6000 * mi, "pods": 110}})
	want := capacity.Resources{"cpu": 1500, "memory": 5984, "pods": 110} // a margin of 16 MiB
	if diff := cmp.Diff(want, shown(w, "m5.large")); diff != "" {
		t.Errorf("allocatable (-want +got):\n%s", diff)
	}
	if cpu := shown(w, "c5.large")["cpu"]; cpu != 1500 {
		t.Errorf("%dm CPU are planned on the other type, want 1500m: 430m beyond the image's 70m", cpu)
	}
	record := ""
	for !strings.Contains(record, `"kept"`) {
		select {
		case record = <-records:
		case <-time.After(60 * time.Second):
			t.Fatalf("what kubelets keep is not recorded, only %s", record)
		}
	}
	other := newWorld(t)
	again := class("a", 1)
	again.Annotations[objects.AnnotationLearned] = record
	other.SetNodeClass(again)
	if diff := cmp.Diff(want, shown(other, "m5.large")); diff != "" {
		t.Errorf("allocatable, after another process has read the record (-want +got):\n%s", diff)
	}
	w.SetNodeClass(class("b", 2))
	for deadline := time.After(60 * time.Second); shown(w, "m5.large")["cpu"] != before["cpu"]; { // the memory is the image's
		select {
		case <-w.changed:
		case <-deadline:
			t.Fatalf("with another script: %v, before: %v", shown(w, "m5.large"), before)
		}
	}
}

// A NodeOverlay promises huge pages. The first node of a type is planned without the memory that they take, and the ones after it, when the
// kubelet has shown that it keeps this memory, are planned the same: it isn't subtracted twice.
func TestHugePagesCountOnce(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	const pages = 2048 * mi
	shown := func() (memory, huge int64) {
		typ := *typeOf(w.types("default"), "m5.large")
		typ.AddExtra(capacity.Resources{reported.HugePages2Mi: pages}) // as the overlay does
		return typ.Allocatable["memory"], typ.Allocatable[reported.HugePages2Mi]
	}
	plain := typeOf(w.types("default"), "m5.large")
	before, huge := shown()
	if want := plain.Allocatable["memory"] - pages; before != want || huge != pages {
		t.Fatalf("the first node is planned with %d MiB and %d MiB of huge pages, want %d and %d", before/mi, huge/mi, want/mi, pages/mi)
	}
	alloc := plain.Allocatable.Clone()
	alloc["memory"], alloc[reported.HugePages2Mi] = before, pages
	total := plain.Capacity.Clone()
	total[reported.HugePages2Mi] = pages
	w.ObserveNode(cloudprovider.RegisteredNode{NodeClass: "default", NodeClassHash: w.classes.resolved("default").hash, InstanceType: "m5.large", ImageID: plain.Image,
		Capacity: total, Allocatable: alloc})
	if after, huge := shown(); before-after > 17*mi || after > before || huge != pages { // a margin of 16 MiB
		t.Errorf("after the first node %d MiB and %d MiB of huge pages are planned, before it %d MiB", after/mi, huge/mi, before/mi)
	}
	if got := typeOf(w.types("default"), "m5.large").Allocatable[reported.HugePages2Mi]; got != pages {
		t.Errorf("without the overlay %d MiB of huge pages are planned, want those of the first node", got/mi)
	}
}

// Once a type has shown less memory than was assumed of it, types of the same image that nobody has seen count with what they have in any case: a pod that didn't
// fit would else get one machine after the other, each of a new type and too small. What other images' nodes show says nothing.
func TestUnseenTypesAfterOneThatWasTooSmall(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	image := plainImage(w.status("default", isReady("True")))
	see := func(image string, share float64) {
		w.ObserveNode(cloudprovider.RegisteredNode{NodeClass: "default", InstanceType: "m5.large", ImageID: image, Capacity: ofMemory(int64(share * 8192 * float64(mi)))})
	}
	free := func(name string) (all, certain int64) {
		m := typeOf(w.types("default"), name)
		if m == nil {
			t.Fatalf("there is no type %s", name)
		}
		return m.Allocatable["memory"], m.CertainMemory
	}
	all, certain := free("m5.xlarge")
	if certain <= 0 || certain >= all {
		t.Fatalf("of a type that nobody has seen %d bytes are certain of %d", certain, all)
	}
	other, _ := free("m6g.large") // arm64: another image
	unchanged := func(when string) {
		t.Helper()
		if got, _ := free("m5.xlarge"); got != all {
			t.Errorf("%s m5.xlarge has %d bytes for pods, want %d", when, got, all)
		}
	}
	see(image, 0.93)
	unchanged("after a node as large as was assumed")
	see("ami-other", 0.89)
	unchanged("after a small node of another image")
	see(image, 0.89)
	if got, sure := free("m5.xlarge"); got != certain || sure != certain {
		t.Errorf("after a smaller node m5.xlarge has %d bytes for pods, %d of them certain, want %d both", got, sure, certain)
	}
	if got, _ := free("m6g.large"); got != other {
		t.Errorf("types of another image have %d bytes for pods, want %d", got, other)
	}
	w.ObserveNode(cloudprovider.RegisteredNode{NodeClass: "default", InstanceType: "m5.xlarge", ImageID: image, Capacity: ofMemory(15500 * mi)})
	if got, sure := free("m5.xlarge"); got <= certain || sure != 0 {
		t.Errorf("once it was seen m5.xlarge has %d bytes for pods, %d of them certain", got, sure)
	}
}
