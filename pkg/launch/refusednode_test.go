package launch

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// byWebhook returns what a client gets when a webhook denies a request.
func byWebhook(code int32) error {
	return webhookerrors.ToStatusErr("nodes.example.com", &metav1.Status{Code: code, Message: "label team is missing"})
}

func TestRefusesNode(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"a webhook that gives no code":        {byWebhook(0), true},
		"a webhook that says forbidden":       {byWebhook(403), true},
		"a webhook that says unprocessable":   {byWebhook(422), true},
		"a policy, or validation":             {apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", field.ErrorList{}), true},
		"no permission":                       {apierrors.NewForbidden(nodes, "n", errors.New("no")), true},
		"wrapped":                             {fmt.Errorf("creating: %w", byWebhook(0)), true},
		"a webhook that can't be reached":     {apierrors.NewInternalError(errors.New("failed calling webhook")), false},
		"credentials that have just run out":  {apierrors.NewUnauthorized("expired"), false},
		"somebody else was faster":            {apierrors.NewConflict(nodes, "n", errors.New("changed")), false},
		"too much at once":                    {apierrors.NewTooManyRequests("later", 1), false},
		"the API server takes too long":       {apierrors.NewTimeoutError("slow", 1), false},
		"no connection":                       {errors.New("connection refused"), false},
		"an API server that is shutting down": {apierrors.NewServiceUnavailable("down"), false},
	} {
		if got := refusesNode(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// A Node that the API server refuses is retried before its instance is ended.
func TestARefusedNode(t *testing.T) {
	const machine = "aws:///z/i"
	ours := func(name, providerID string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labelPool: "pool"}}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	}
	for name, tc := range map[string]struct {
		refused time.Duration // for how long
		comes   *corev1.Node  // what a kubelet creates after half a minute
		deleted bool          // the claim is deleted after half a minute
		created bool
		failed  bool
		between [2]time.Duration // when it is over
	}{
		"for a moment":                               {refused: time.Second, created: true, between: [2]time.Duration{time.Second, 2 * time.Second}},
		"until a policy was changed":                 {refused: 100 * time.Second, created: true, between: [2]time.Duration{100 * time.Second, 110 * time.Second}},
		"for ever":                                   {refused: time.Hour, failed: true, between: [2]time.Duration{refusalPatience, refusalPatience}},
		"its kubelet may create it":                  {refused: time.Hour, comes: ours("n", machine), created: true, between: [2]time.Duration{30 * time.Second, 40 * time.Second}},
		"its kubelet creates one with another name":  {refused: time.Hour, comes: ours("m", machine), between: [2]time.Duration{30 * time.Second, 40 * time.Second}},
		"another machine comes under the same name":  {refused: time.Hour, comes: ours("n", "aws:///z/other"), failed: true, between: [2]time.Duration{refusalPatience, refusalPatience}},
		"its claim is deleted meanwhile by somebody": {refused: time.Hour, deleted: true, between: [2]time.Duration{30 * time.Second, 40 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.build()
				begun := time.Now()
				c := &capacity.Claim{Name: "c", UID: "c", CreatedAt: begun, Launched: true, ProviderID: machine}
				w.claims["c"] = c
				w.parts.claims.keep(c)
				tries := 0
				w.denies = func(*corev1.Node) error {
					if tries++; time.Since(begun) < tc.refused {
						return byWebhook(0)
					}
					return nil
				}
				time.AfterFunc(30*time.Second, func() {
					if tc.comes != nil {
						w.mu.Lock()
						w.nodes[tc.comes.Name] = tc.comes
						w.mu.Unlock()
						w.parts.Nodes.NodeCached(tc.comes)
					}
					if tc.deleted {
						w.mu.Lock()
						delete(w.claims, "c")
						w.mu.Unlock()
						w.parts.cleanup.forget("c")
					}
				})
				if created := w.parts.finisher.createNode(t.Context(), ledgerRequester{w.reservations}, c, ours("n", machine)); created != tc.created {
					t.Errorf("created %v, want %v", created, tc.created)
				}
				if took := time.Since(begun); took < tc.between[0] || took > tc.between[1] {
					t.Errorf("over after %s, want it between %s and %s", took, tc.between[0], tc.between[1])
				}
				if most := 20; tries > most {
					t.Errorf("tried %d times, which is more than %d", tries, most)
				}
				w.parts.calls.wg.Wait()
				w.mu.Lock()
				defer w.mu.Unlock()
				if _, there := w.claims["c"]; there == (tc.failed || tc.deleted) {
					t.Errorf("the claim is there: %v", there)
				}
				want := []string{`c NodeRefused Node n can't be created; retrying for 2m0s before the instance is terminated: admission webhook "nodes.example.com" denied the request: label team is missing`}
				if diff := cmp.Diff(want, w.notes); diff != "" {
					t.Errorf("what was said (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Refused Nodes block nothing: twice as many as there are parallel calls wait here, and another pod gets its node meanwhile. No
// replacements are bought before their time is over.
func TestRefusedNodesHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		most := 2 * cap(w.parts.calls.slots)
		refuse, refused := true, map[string]bool{}
		w.denies = func(n *corev1.Node) error {
			if len(refused) < most {
				refused[n.Name] = true
			}
			if refuse && refused[n.Name] {
				return byWebhook(403)
			}
			return nil
		}
		pods := 4 * most // four per node
		w.submit(pods)
		w.until("all Nodes are refused", func() bool { return len(refused) == most })
		<-time.After(30 * time.Second)
		w.submitPod(pods)
		begun := time.Now()
		w.until("the other pod is bound", func() bool { return len(w.bound) == 1 })
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the other pod was bound after %s", took)
		}
		<-time.After(time.Minute)
		w.mu.Lock()
		if len(w.instances) != most+1 {
			t.Errorf("%d machines are there, want %d", len(w.instances), most+1)
		}
		refuse = false
		w.mu.Unlock()
		begun = time.Now()
		w.until("all pods are bound", func() bool { return len(w.bound) == pods+1 })
		if took := time.Since(begun); took > maxRetry {
			t.Errorf("they were bound after %s", took)
		}
		w.stop()
	})
}

// The answer to a launch doesn't name the image; EC2 shows it later. A Node that is refused counts for that image all the same, and launches go on
// once a dry run finds it accepted.
func TestARefusedNodeOfAnImageThatTheLaunchDoesNotName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.budget = &spending.Config{}
		w.leads()
		c := &capacity.Claim{Name: "c", UID: "c", Pool: "pool", NodeClass: "class", CreatedAt: time.Now(), Purchase: &guard.Purchase{Round: "r"}}
		w.claims["c"] = c
		w.parts.claims.keep(c)
		of := func(image string) capacity.NodeOffer {
			return capacity.NodeOffer{Type: &capacity.InstanceType{Name: "small", Image: image}, Offer: capacity.Offer{Zone: "a"}}
		}
		w.spending.Buy(c, []capacity.NodeOffer{of("ami-1"), of("ami-2")}, nil)
		launched := capacity.Instance{ID: "i-1", ProviderID: "aws:///a/i-1", InstanceType: "small", Zone: "a", CapacityType: "on-demand", LaunchedAt: time.Now()}
		shown := launched
		shown.State, shown.NodeName, shown.ImageID = capacity.InstanceRunning, "n", "ami-1"
		w.instances["i-1"] = shown
		w.denies = func(*corev1.Node) error { return byWebhook(0) }
		w.parts.finisher.finish(t.Context(), ledgerRequester{w.reservations}, c, launched, nil)
		w.settled()

		stopped := func(image string) bool {
			why, _ := w.spending.Check(1, w.parts.claims.All).Refuses(&capacity.Pool{Name: "pool", NodeClass: "class"}, []capacity.NodeOffer{of(image)}, nil, nil, false, "")
			return why != ""
		}
		if !stopped("ami-1") || stopped("ami-2") {
			t.Errorf("launches of the image are paused: %v, those of another one: %v", stopped("ami-1"), stopped("ami-2"))
		}
		pass(time.Hour)
		w.parts.writer.RetryNodes(t.Context()) // which the API server accepts now
		if w.calls["TryNode"] == 0 {
			t.Error("it is never found out whether the Node is accepted")
		}
	})
}
