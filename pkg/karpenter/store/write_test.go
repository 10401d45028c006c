package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestCreateRefuses(t *testing.T) {
	invalid := testPool("invalid", func(np *karpv1.NodePool) { np.Spec.Template.Spec.Requirements[0].Operator = "Like" })
	leaving := testPool("leaving", func(np *karpv1.NodePool) {
		np.DeletionTimestamp, np.Finalizers = &metav1.Time{Time: start}, []string{"x/y"}
	})
	w := newWorld(t, newFakeAPI(testPool("default"), invalid, leaving, testClass("default"))).ready()
	for name, tc := range map[string]struct {
		claim *capacity.Claim
		want  string
	}{
		"no such pool":     {testClaim("c", func(c *capacity.Claim) { c.Pool = "nowhere" }), "NodePool nowhere"},
		"an invalid pool":  {testClaim("c", func(c *capacity.Claim) { c.Pool = "invalid" }), "spec.template.spec.requirements[0].operator"},
		"a pool that goes": {testClaim("c", func(c *capacity.Claim) { c.Pool = "leaving" }), "being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.Create(w.ctx, tc.claim)
			if !errors.Is(err, ErrPoolUnusable) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	if n := len(w.Claims()); n != 0 {
		t.Errorf("%d claims were created", n)
	}
}

func TestCreateWhoseAnswerWasLostIsRepeated(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"))).ready()
	first, err := w.Create(w.ctx, testClaim("default-abc"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.Create(w.ctx, testClaim("default-abc"))
	if err != nil || again.UID != first.UID {
		t.Errorf("the same intent again: %v, %v", again, err)
	}
	_, err = w.Create(w.ctx, testClaim("default-abc", func(c *capacity.Claim) { c.LaunchBatch.Token = "another" }))
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("another intent under the same name: %v, want already exists", err)
	}
}

// TestAClaimThatGoesWhileItIsCreated: the watch may deliver a claim and its deletion before the answer to the create request. The
// answer must not add the claim again, because no event would ever remove it.
func TestAClaimThatGoesWhileItIsCreated(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"))).ready()
	created := make(chan struct{})
	w.api.afterCreate = func(o client.Object) {
		nc := o.DeepCopyObject().(*karpv1.NodeClaim)
		nc.Finalizers = nil
		for _, err := range []error{w.api.Update(w.ctx, nc), w.api.Delete(w.ctx, nc)} {
			if err != nil {
				t.Error(err)
			}
		}
		w.eventually("the watch has seen it go", func() bool {
			w.mu.RLock()
			defer w.mu.RUnlock()
			return w.creating["default-abc"]
		})
		close(created)
	}
	if _, err := w.Create(w.ctx, testClaim("default-abc")); err != nil {
		t.Fatal(err)
	}
	<-created
	if n := len(w.Claims()); n != 0 {
		t.Errorf("%d claims are known that don't exist", n)
	}
}

func TestRecordLaunchedOnAClaimThatOthersWrite(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"))).ready()
	if _, err := w.Create(w.ctx, testClaim("default-abc")); err != nil {
		t.Fatal(err)
	}
	// Another controller sets a condition between our reading and our writing, once.
	var once sync.Once
	w.api.beforeStatus = func(o client.Object) {
		once.Do(func() {
			nc := &karpv1.NodeClaim{}
			if err := w.api.Get(w.ctx, client.ObjectKeyFromObject(o), nc); err != nil {
				t.Error(err)
			}
			nc.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
			if err := w.api.Status().Update(w.ctx, nc); err != nil {
				t.Error(err)
			}
		})
	}
	if err := w.RecordLaunched(w.ctx, &capacity.Claim{Name: "default-abc"}, testInstance, nil, capacity.Resources{corev1.ResourceCPU: 1000}, nil); err != nil {
		t.Fatal(err)
	}
	nc := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: "default-abc"}, nc); err != nil {
		t.Fatal(err)
	}
	got := conditions(nc)
	if got["Launched"] != "True" || got["Registered"] != "True" || nc.Status.ProviderID != testInstance.ProviderID {
		t.Errorf("conditions %v, provider ID %q: one of the writers was overwritten", got, nc.Status.ProviderID)
	}
}

// A launch is two writes, because the API separates metadata and status, and the Node's name is a third. The first answer does not
// contain the image.
func TestLaunchIsThreeWrites(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"))).ready()
	if _, err := w.Create(w.ctx, testClaim("default-abc")); err != nil {
		t.Fatal(err)
	}
	answer := testInstance
	answer.ImageID, answer.NodeName, answer.Annotations = "", "", map[string]string{"example.com/profile": "p"}
	for range 2 {
		if err := w.RecordLaunched(w.ctx, &capacity.Claim{Name: "default-abc"}, answer, nil, capacity.Resources{corev1.ResourceCPU: 1000}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.RecordNode(w.ctx, "default-abc", testInstance); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"default-abc", "default-abc/status", "default-abc/status"}, w.api.patches); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	nc := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: "default-abc"}, nc); err != nil || nc.Annotations["example.com/profile"] != "p" {
		t.Errorf("annotations %v, error %v", nc.Annotations, err)
	}
	if c := w.Claim("default-abc"); c.ImageID != "ami-1" || c.NodeName != testInstance.NodeName || !c.Launched {
		t.Errorf("recorded %+v", c)
	}
}

func TestRecordLaunchFailed(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"))).ready()
	if _, err := w.Create(w.ctx, testClaim("default-abc")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ reason, message, want string }{
		{"InsufficientCapacity", "none of 3 offers", "False InsufficientCapacity: none of 3 offers"},
		{"what happened?", strings.Repeat("ä", 900), "False LaunchFailed: " + strings.Repeat("ä", 450) + "..."},
	} {
		if err := w.RecordLaunchFailed(w.ctx, &capacity.Claim{Name: "default-abc"}, tc.reason, tc.message); err != nil {
			t.Fatal(err)
		}
		nc := &karpv1.NodeClaim{}
		if err := w.api.Get(w.ctx, client.ObjectKey{Name: "default-abc"}, nc); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, conditions(nc)["Launched"]); diff != "" {
			t.Errorf("Launched (-want +got):\n%s", diff)
		}
	}
}

func TestWritesGiveUpWithTheirContext(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"))).ready()
	if _, err := w.Create(w.ctx, testClaim("default-abc")); err != nil {
		t.Fatal(err)
	}
	w.api.beforeStatus = func(client.Object) {}
	w.api.hang = true
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	for name, f := range map[string]func() error{
		"RecordLaunchFailed": func() error { return w.RecordLaunchFailed(ctx, &capacity.Claim{Name: "default-abc"}, "X", "y") },
		"RecordNode":         func() error { return w.RecordNode(ctx, "default-abc", testInstance) },
		"SetNodeClassStatus": func() error {
			return w.SetNodeClassStatus(ctx, nodeclass.Resolved("default", 1, ec2nc.EC2NodeClassStatus{}))
		},
	} {
		if err := f(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want the context's end", name, err)
		}
	}
}
