package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

func selecting(t testing.TB, selector string) func(map[string]string) bool {
	t.Helper()
	s, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	return func(of map[string]string) bool { return s.Matches(labels.Set(of)) }
}

// If only the definition of NodeClaims is installed, the pools and classes of the arguments are the only ones.
func TestPoolsOfArguments(t *testing.T) {
	api := newFakeAPI()
	for _, k := range kinds {
		api.missing[k.Kind+"List"] = k.Kind != karpenter.NodeClaims.Kind
	}
	w := newWorld(t, api)
	pools, classes := readInlined(t, []karpenter.Inline{inlined(t, "main", inlinePool+`}}}`)}, []karpenter.Inline{inlined(t, "main", inlineClass)})
	if err := w.derived.SetProfiles([]karpenter.Profile{{Scheduler: "ours", Pools: pools, Classes: classes}}); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.eventually("synced", w.Synced)
	if p := w.Problem(); p != nil {
		t.Errorf("problem %q", p)
	}
	p := w.pool("args_main")
	if p == nil || p.Unready != "" || p.NodeClass != "args_main" || len(p.Schedulers) != 0 || p.Labels[karpv1.NodePoolLabelKey] != "args_main" {
		t.Fatalf("pool %+v", p)
	}
	var list karpv1.NodePoolList
	if err := w.Client().List(w.ctx, &list); err != nil || len(list.Items) != 1 {
		t.Errorf("pools %v, %v", list.Items, err)
	}
	var claims karpv1.NodeClaimList
	if err := w.Client().List(w.ctx, &claims); err != nil {
		t.Error(err)
	}
	w.resolveAll("args_main")
	if nc := w.class("args_main"); !nc.StatusConditions().Root().IsTrue() {
		t.Errorf("status %+v", nc.GetConditions())
	}
	c, err := w.Create(w.ctx, testClaim("args-main-abc", func(c *capacity.Claim) { c.Pool, c.NodeClass, c.Labels = "args_main", "args_main", nil }))
	if err != nil {
		t.Fatal(err)
	}
	nc := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: c.Name}, nc); err != nil {
		t.Fatal(err)
	}
	if len(nc.OwnerReferences) > 0 {
		t.Errorf("the claim is owned by %v, and there is no such object", nc.OwnerReferences)
	}
}

func TestStatusOfPoolsOfArguments(t *testing.T) {
	w := newWorld(t, newFakeAPI())
	pools, classes := readInlined(t, []karpenter.Inline{inlined(t, "main", inlinePool+`}}}`)}, []karpenter.Inline{inlined(t, "main", inlineClass)})
	if err := w.derived.SetProfiles([]karpenter.Profile{{Scheduler: "ours", Pools: pools, Classes: classes}}); err != nil {
		t.Fatal(err)
	}
	w.leading()
	np := &karpv1.NodePool{}
	root := func() string {
		if err := w.Client().Get(w.ctx, client.ObjectKey{Name: "args_main"}, np); err != nil {
			t.Fatal(err)
		}
		return messagesOf(np)["NodeClassReady"]
	}
	w.eventually("it waits for its class", func() bool {
		return root() == "False NodeClassReadinessUnknown: EC2NodeClass args_main has not been resolved yet"
	})
	w.resolveAll("args_main")
	w.eventually("it is ready", func() bool { return root() == "" && np.StatusConditions().Root().IsTrue() })
	if len(w.api.patches) > 0 {
		t.Errorf("written to the API: %v", w.api.patches)
	}
}

// When a pool is removed from the arguments, its nodes stay until they are empty.
func TestPoolTakenOutOfTheArguments(t *testing.T) {
	left := karpenters("one")
	left.Labels[karpv1.NodePoolLabelKey], left.OwnerReferences = "args_main", nil
	w := newWorld(t, newFakeAPI(left)).leading()
	p := w.pool("args_main")
	if want := "nodePools main: the profiles' arguments no longer contain this pool"; p == nil || p.Unready != want {
		t.Fatalf("pool %+v, want it unready: %s", p, want)
	}
	np := &karpv1.NodePool{}
	if err := w.Client().Get(w.ctx, client.ObjectKey{Name: "args_main"}, np); err != nil {
		t.Fatal(err)
	}
	if d := np.Spec.Disruption; d.ConsolidationPolicy != "WhenEmpty" || d.ConsolidateAfter.Duration == nil || *d.ConsolidateAfter.Duration != 0 {
		t.Errorf("disruption %+v", d)
	}
	w.edit(left, func() { left.Finalizers = nil })
	if err := w.api.Delete(w.ctx, left); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is forgotten with its last claim", func() bool { return w.pool("args_main") == nil })
}

func TestPoolsOfProfiles(t *testing.T) {
	teamA := testPool("a", func(np *karpv1.NodePool) { np.Labels = map[string]string{"team": "a"} })
	teamB := testPool("b", func(np *karpv1.NodePool) { np.Labels = map[string]string{"team": "b"} })
	old := provisioner(t, inline+`}`)
	old.Labels = map[string]string{"team": "a"}
	pools, classes := readInlined(t, []karpenter.Inline{inlined(t, "main", inlinePool+`}}}`)}, []karpenter.Inline{inlined(t, "main", inlineClass)})
	for _, tc := range []struct {
		name     string
		profiles []karpenter.Profile
		want     string
	}{
		{"no profiles", nil, "a: all; b: all; provisioner_old: all"},
		{"profiles that say nothing", []karpenter.Profile{{Scheduler: "x"}, {Scheduler: "y"}}, "a: all; b: all; provisioner_old: all"},
		{"one selects", []karpenter.Profile{{Scheduler: "x", Selects: selecting(t, "team=a")}, {Scheduler: "y"}}, "a: all; b: [y]; provisioner_old: all"},
		{"one takes on another scheduler's pods", []karpenter.Profile{{Scheduler: "x", Others: []string{"z"}, Selects: selecting(t, "team=a")}, {Scheduler: "y", Selects: selecting(t, "team=b")}},
			"a: [x z]; b: [y]; provisioner_old: [x z]"},
		{"each selects", []karpenter.Profile{{Scheduler: "x", Selects: selecting(t, "team=a")}, {Scheduler: "y", Selects: selecting(t, "team=b")}}, "a: [x]; b: [y]; provisioner_old: [x]"},
		{"none selects one", []karpenter.Profile{{Scheduler: "x", Selects: selecting(t, "team=a")}}, "a: all; b: NodePool b: no profile selects it (nodePoolSelector); provisioner_old: all"},
		{"one has its own", []karpenter.Profile{{Scheduler: "x", Pools: pools, Classes: classes, Selects: selecting(t, "team=nobody")}, {Scheduler: "y"}},
			"a: [y]; args_main: [x]; b: [y]; provisioner_old: [y]"},
		{"both have the same", []karpenter.Profile{{Scheduler: "x", Pools: pools, Classes: classes}, {Scheduler: "y", Pools: pools, Classes: classes}},
			"a: all; args_main: all; b: all; provisioner_old: all"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, newFakeAPI(teamA.DeepCopy(), teamB.DeepCopy(), testClass("default"), old.DeepCopy()))
			if err := w.derived.SetProfiles(tc.profiles); err != nil {
				t.Fatal(err)
			}
			w.ready()
			say := func() string {
				var out []string
				for _, p := range w.Pools(noTypes) {
					whom := "all"
					if p.Unready != "" {
						whom = p.Unready
					} else if len(p.Schedulers) > 0 {
						whom = fmt.Sprint(p.Schedulers)
					}
					out = append(out, p.Name+": "+whom)
				}
				slices.Sort(out)
				return strings.Join(out, "; ")
			}
			if diff := cmp.Diff(tc.want, say()); diff != "" {
				t.Errorf("pools (-want +got):\n%s", diff)
			}
		})
	}
}

// Labels of an object may change without a change of its generation.
func TestPoolChangesHands(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default")))
	if err := w.derived.SetProfiles([]karpenter.Profile{{Scheduler: "x", Selects: selecting(t, "team=a")}, {Scheduler: "y"}}); err != nil {
		t.Fatal(err)
	}
	w.ready()
	if got := w.pool("default").Schedulers; len(got) != 1 || got[0] != "y" {
		t.Errorf("pool of %v", got)
	}
	np := w.getPool("default")
	np.Labels = map[string]string{"team": "a"}
	if err := w.api.Update(w.ctx, np); err != nil {
		t.Fatal(err)
	}
	w.eventually("it serves both", func() bool { return len(w.pool("default").Schedulers) == 0 })
}

func TestProfilesThatContradictEachOther(t *testing.T) {
	w := newWorld(t, newFakeAPI())
	pools, classes := readInlined(t, []karpenter.Inline{inlined(t, "main", inlinePool+`}}}`)}, []karpenter.Inline{inlined(t, "main", inlineClass)})
	heavier, _ := readInlined(t, []karpenter.Inline{inlined(t, "main", inlinePool+`}}, weight: 3}`)}, []karpenter.Inline{inlined(t, "main", inlineClass)})
	err := w.derived.SetProfiles([]karpenter.Profile{{Scheduler: "x", Pools: pools, Classes: classes}, {Scheduler: "y", Pools: heavier, Classes: classes}})
	if want := `profiles "x" and "y" define nodePools "main" differently: give one of them another name`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
