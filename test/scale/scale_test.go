package main

import (
	"context"
	"flag"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/load"
	"github.com/dovetail-scheduler/dovetail/test/scrape"
)

func TestFlags(t *testing.T) {
	read := func(args ...string) (*settings, error) {
		flags := flag.NewFlagSet("scale", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		return readFlags(flags, args)
	}
	set, err := read("-nodes", "500,100", "-parts", memory, "-memory-nodes", "2000")
	if err != nil || !slices.Equal(set.nodes, []int{100, 500}) || set.nodes.String() != "100,500" {
		t.Errorf("%+v, %v", set, err)
	}
	if parts, err := set.chosen(); err != nil || len(parts) != 1 || parts[0].perSec != 100 || parts[0].leaders {
		t.Errorf("%+v, %v", parts, err)
	}
	for _, wrong := range [][]string{{"-nodes", "2"}, {"-memory-nodes", "many"}, {"-parts", "other"}, {"-steady", "1s"}, {"-pods-per-node", "16"}, {"-burst", "0"}, {"-rate", "101"}} {
		if _, err := read(wrong...); err == nil || !strings.Contains(err.Error(), wrong[0]) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

func TestMissing(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		bound, lost, created int
		want                 string
	}{
		{"all are bound", 1000, 0, 1000, ""},
		{"one was deleted while it waited", 999, 1, 1000, "1 of 1000 pods ended without having been bound"},
		{"some wait", 970, 0, 1000, "970 of 1000 pods are bound in the end"},
	} {
		if got := missing(tc.bound, tc.lost, tc.created); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// The pods that wait longest are bound only after the time in which they came.
func TestSlowPodsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait() // informers end
		defer stop()
		seen, err := load.Watch(ctx, api, func(p *corev1.Pod) string { return p.Labels[labelFor] })
		if err != nil {
			t.Fatal(err)
		}
		pods := api.CoreV1().Pods(metav1.NamespaceDefault)
		come := func(names ...string) span {
			begun := time.Now()
			for _, name := range names {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{labelFor: forLoad}}}
				if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
			<-time.After(time.Second)
			return span{begun, time.Now()}
		}
		bind := func(name string) {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				pod.Spec.NodeName = "node"
				_, err = pods.Update(ctx, pod, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Error(err)
			}
		}
		at := &point{before: come("slow", "slower")}
		at.during = come("slowest")
		time.AfterFunc(8*time.Second, func() { bind("slow") })
		time.AfterFunc(18*time.Second, func() { bind("slower") })
		time.AfterFunc(39*time.Second, func() { bind("slowest") })
		never := func() error { return nil }
		if err := at.settle(ctx, seen, 3, never); err != nil {
			t.Error(err)
		}
		for name, tc := range map[string]struct {
			of   []load.Binding
			q    float64
			want float64
		}{"before, p0": {at.steady, 0, 10}, "before, p99": {at.steady, 0.99, 20}, "during": {at.bursting, 0.5, 40}} {
			if got := quantile(tc.of, tc.q); got != tc.want {
				t.Errorf("%s: %g s, want %g", name, got, tc.want)
			}
		}

		at.before = come("deleted")
		if err := pods.Delete(ctx, "deleted", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		begun := time.Now()
		if err := at.settle(ctx, seen, 4, never); err == nil || err.Error() != "1 of 4 pods ended without having been bound" {
			t.Errorf("a pod was deleted while it waited: %v", err)
		}
		if took := time.Since(begun); took > 0 || !math.IsInf(quantile(at.steady, 0.5), 1) {
			t.Errorf("after %s the pod that was deleted counts %g s", took, quantile(at.steady, 0.5))
		}
	})
}

func TestNeedless(t *testing.T) {
	for _, tc := range []struct {
		machines, used int
		wrong          bool
	}{{0, 0, false}, {3, 3, false}, {5, 3, false}, {6, 3, true}, {110, 100, false}, {111, 100, true}} {
		if got := needless(tc.machines, tc.used); (got != "") != tc.wrong {
			t.Errorf("%d instances for pods on %d nodes: %q", tc.machines, tc.used, got)
		}
	}
}

// A copy is of its own instance and name, and leaves the model as it was.
func TestCopiedInstanceIsTagged(t *testing.T) {
	m := model{claim: karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "filled-abc"}}}
	in := ec2.Saved{Instance: ec2.Instance{Tags: map[string]string{"karpenter.sh/nodeclaim": "filled-abc", "Name": "other"}}}
	m.tag(&in, "filled-00004")
	if in.Tags["karpenter.sh/nodeclaim"] != "filled-00004" || in.Tags["Name"] != "other" {
		t.Errorf("tags: %v", in.Tags)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", Labels: map[string]string{"l": "1"}, OwnerReferences: []metav1.OwnerReference{{Name: "filled-abc"}}}}
	meta := fresh(node, "b")
	meta.Labels["l"], meta.OwnerReferences[0].Name = "2", "filled-00004"
	if meta.Name != "b" || meta.UID != "" || node.Labels["l"] != "1" || node.OwnerReferences[0].Name != "filled-abc" {
		t.Errorf("%+v is a copy of %+v", meta, node)
	}
}

func TestReport(t *testing.T) {
	at := func(nodes int, memory float64, latency time.Duration) *point {
		begin := time.Unix(1000, 0)
		bound := []load.Binding{{Seen: begin, Bound: begin.Add(latency)}}
		none := &scrape.Histogram{}
		return &point{nodes: nodes, pods: 10 * nodes, started: time.Second, startCPU: time.Second, heap: memory, resident: memory, peak: memory, steady: bound, bursting: bound,
			attempts: none, planning: none, verifying: none, evaluations: none, burst: time.Second}
	}
	p := &part{name: apiServer, points: []*point{at(1000, 100<<20, 10*time.Millisecond), at(4000, 1600<<20, 10*time.Millisecond), {nodes: 8000}}, changes: []leaderChange{{how: "killed", first: 17 * time.Second}}}
	if e := exponent(p.points[0], p.points[1], func(p *point) float64 { return p.heap }); math.Abs(e-2) > 1e-9 {
		t.Errorf("the exponent is %g", e)
	}
	var out strings.Builder
	report(&out, []*part{p, {name: memory}}, 1)
	for _, want := range []string{"grows faster: heap in use then (2.00, want at most 1)", "leader killed: first pod bound after 17.0 s", "1600 MiB",
		"scale: api-server nodes 4000 p50Millis 10.0", "killedSeconds 17.0 memory failed problems 1\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "grows faster: pod seen") || strings.Contains(out.String(), "8000") {
		t.Errorf("the report has too much:\n%s", out.String())
	}
}
