package simulate

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// quota is an out-of-tree plugin that counts pods in PreFilter and has no AddPod.
type quota struct{ limit int }

func (q *quota) Name() string                                 { return "Quota" }
func (q *quota) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
func (q *quota) PreFilter(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	pods := 0
	for _, n := range nodes {
		pods += len(n.GetPods())
	}
	if pods >= q.limit {
		return nil, fwk.NewStatus(fwk.Unschedulable, "quota exhausted")
	}
	return nil, nil
}

func withQuota(limit int, deny ...string) clusterOption {
	return func(cfg *clusterConfig) {
		cfg.deny = deny
		cfg.registry = frameworkruntime.Registry{"Quota": func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
			return &quota{limit}, nil
		}}
		plugins := *cfg.profile.Plugins
		plugins.MultiPoint.Enabled = append([]schedulerapi.Plugin{{Name: "Quota"}}, plugins.MultiPoint.Enabled...)
		cfg.profile.Plugins = &plugins
	}
}

func TestOutOfTreePlugins(t *testing.T) {
	steps := repeat(4, step(pod("web", "web").Obj(), "a"))
	tests := []struct {
		name   string
		option clusterOption
		want   []string
	}{
		{"one that counts pods is asked again after each placement", withQuota(3), []string{"3 Quota: quota exhausted"}},
		{"one that is denied isn't asked", withQuota(3, "Quota"), nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, []runtime.Object{node("a", "z1").Obj()}, tc.option)
			if diff := cmp.Diff(tc.want, c.verify(capacity.Trial{Steps: steps})); diff != "" {
				t.Errorf("rejections (-want +got):\n%s", diff)
			}
		})
	}
}

// counter is an out-of-tree plugin like CapacityScheduling of scheduler-plugins: it counts pods in Reserve, and in PreFilter checks
// what it has counted. AddPod only changes the answer for preemption.
type counter struct {
	limit  int
	counts map[types.UID]string // node by pod
	sour   string               // a node on which Reserve fails
}

func (c *counter) Name() string                                 { return "Counter" }
func (c *counter) PreFilterExtensions() fwk.PreFilterExtensions { return c }
func (c *counter) AddPod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}
func (c *counter) RemovePod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}
func (c *counter) PreFilter(context.Context, fwk.CycleState, *corev1.Pod, []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if len(c.counts) >= c.limit {
		return nil, fwk.NewStatus(fwk.Unschedulable, "quota exhausted")
	}
	return nil, nil
}
func (c *counter) Reserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	c.counts[pod.UID] = node
	if node == c.sour {
		return fwk.NewStatus(fwk.Unschedulable, "not here")
	}
	return nil
}
func (c *counter) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	delete(c.counts, pod.UID)
}

// A pod that is being bound counts, although the plugins' informers don't know yet.
func TestPluginsThatCountKnowPodsBeingBound(t *testing.T) {
	web := pod("web", "web").UID("web").Obj()
	binding := pod("binding", "binding").UID("binding").Obj()
	var made []*counter
	c := newCluster(t, []runtime.Object{node("a", "z1").Obj(), binding}, countingTo(3, &made))
	assumed := binding.DeepCopy()
	assumed.Spec.NodeName = "a"
	if err := c.sched.Cache.AssumePod(klog.FromContext(c.ctx), assumed); err != nil {
		t.Fatal(err)
	}
	c.refresh()
	want := []string{"2 Counter: quota exhausted", "3 Counter: quota exhausted"}
	for range 2 { // nothing is left of a trial
		if diff := cmp.Diff(want, c.verify(capacity.Trial{Steps: repeat(4, step(web, "a"))})); diff != "" {
			t.Errorf("rejections (-want +got):\n%s", diff)
		}
	}
}

// countingTo adds a plugin that admits so many pods, and none on node b; made are its instances.
func countingTo(limit int, made *[]*counter) clusterOption {
	return func(cfg *clusterConfig) {
		cfg.registry = frameworkruntime.Registry{"Counter": func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
			*made = append(*made, &counter{limit: limit, sour: "b", counts: map[types.UID]string{}})
			return (*made)[len(*made)-1], nil
		}}
		plugins := *cfg.profile.Plugins
		plugins.MultiPoint.Enabled = append([]schedulerapi.Plugin{{Name: "Counter"}}, plugins.MultiPoint.Enabled...)
		cfg.profile.Plugins = &plugins
	}
}

func TestPluginsThatCountInReserve(t *testing.T) {
	web := pod("web", "web").UID("web").Obj()
	promised := func(n int) []capacity.Step { return repeat(n, step(web, "a")) }
	for _, tc := range []struct {
		name  string
		trial capacity.Trial
		want  []string
	}{
		{"they hear of each placement", capacity.Trial{Steps: repeat(5, step(web, "a"))}, []string{"3 Counter: quota exhausted", "4 Counter: quota exhausted"}},
		{"and of those promised before", capacity.Trial{Promised: promised(2), Steps: repeat(2, step(web, "a"))}, []string{"1 Counter: quota exhausted"}},
		{"more was promised than they allow now", capacity.Trial{Promised: promised(4), Steps: repeat(1, step(web, "a"))}, []string{"0 Counter: quota exhausted"}},
		{
			"who fails to reserve counts nothing", capacity.Trial{Steps: append(repeat(2, step(web, "b")), repeat(3, step(web, "a"))...)},
			[]string{"0 Counter: not here", "1 Counter: not here"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var made []*counter
			c := newCluster(t, []runtime.Object{node("a", "z1").Obj(), node("b", "z1").Obj()}, countingTo(3, &made))
			for range 2 { // nothing is left of a trial
				if diff := cmp.Diff(tc.want, c.verify(tc.trial)); diff != "" {
					t.Errorf("rejections (-want +got):\n%s", diff)
				}
			}
			if len(made) != 2 {
				t.Fatalf("%d plugins were made, want the scheduler's and the simulation's", len(made))
			}
			for i, one := range made {
				if len(one.counts) > 0 {
					t.Errorf("plugin %d still counts %v", i, one.counts)
				}
			}
		})
	}
}
