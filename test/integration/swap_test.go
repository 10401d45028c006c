package integration

import (
	"context"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// olderBinary is a scheduler of the version before. Without one, this tree is built with the names of before.
var olderBinary = flag.String("older-binary", "", "a dovetail-scheduler that writes the old names, to be replaced in TestBinariesAreSwappedMidFlight")

// older builds a scheduler that writes and knows only the names of before.
func older(t *testing.T) string {
	t.Helper()
	if *olderBinary != "" {
		return *olderBinary
	}
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	put := func(file, text string) string {
		out := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(out, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return out
	}
	change := func(file string, from, to map[string]string) {
		path := filepath.Join(root, filepath.FromSlash(file))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := string(text)
		for key := range from {
			if !strings.Contains(changed, from[key]) {
				t.Fatalf("%s has no %s", file, from[key])
			}
			changed = strings.ReplaceAll(changed, from[key], to[key])
		}
		replace[path] = put(file, changed)
	}
	now, before := map[string]string{}, map[string]string{}
	for old, name := range objects.Renamed() {
		now[name], before[name] = `"`+name+`"`, `"`+old+`"`
	}
	change("pkg/objects/names.go", now, before)
	table := map[string]string{"": "var renamed = "}
	change("pkg/objects/renamed.go", table, map[string]string{"": "var renamed = map[string]string{}\n\nvar _ = "})
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "dovetail-scheduler-before")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", put("overlay.json", string(overlay)), "-ldflags", cluster.LinkFlags(), "-o", binary, "./cmd/scheduler")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building a scheduler with the names of before: %v\n%s", err, out)
	}
	return binary
}

// ownNames are the names under dovetail.sh that objects bear, each with the number of objects: claims, pools, classes and Nodes.
func (e *env) ownNames() map[string]int {
	e.Helper()
	out := map[string]int{}
	for _, list := range []client.ObjectList{&karpv1.NodeClaimList{}, &karpv1.NodePoolList{}, &ec2nc.EC2NodeClassList{}, &corev1.NodeList{}} {
		if err := e.api.List(e.ctx, list); err != nil {
			e.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			for name := range o.(client.Object).GetAnnotations() {
				if strings.HasPrefix(name, objects.Prefix) {
					out[name]++
				}
			}
			return nil
		}); err != nil {
			e.Fatal(err)
		}
	}
	return out
}

func (e *env) tags(name string) (n int) {
	for _, in := range e.sim.Instances() {
		if in.Tags[name] != "" {
			n++
		}
	}
	return n
}

// A scheduler of the version before dies while it launches, and this one takes over what it has left: claims, tags and launches under
// the old names. Nothing is launched twice or lost, and no object keeps an old name.
func TestBinariesAreSwappedMidFlight(t *testing.T) {
	binary := older(t)
	for _, tc := range []struct {
		name string
		// kill has the older scheduler killed at its moment.
		kill func(e *env, k *killed)
		// launched says that the older one has launched all instances.
		launched bool
		pod      podOpt
	}{
		{name: "claims made, fleet not called", kill: func(e *env, k *killed) {
			e.sim.Before("CreateFleet", func(*ec2.Request) *ec2.Fault {
				if !k.first() {
					return nil
				}
				return &ec2.Fault{Call: k.now, Drop: true}
			})
		}},
		{name: "fleet called, answer not recorded", launched: true, kill: func(e *env, k *killed) {
			e.sim.After("CreateFleet", func(*ec2.Request, *ec2.Answer) *ec2.Fault {
				if !k.first() {
					return nil
				}
				return &ec2.Fault{Call: k.now, Drop: true}
			})
		}},
		{name: "fleet recorded, no Node", launched: true, kill: func(e *env, k *killed) {
			e.sim.Before("DescribeInstances", func(*ec2.Request) *ec2.Fault {
				if !k.first() || len(e.sim.Live()) == 0 {
					return nil
				}
				return &ec2.Fault{Call: k.now, Drop: true}
			})
		}},
		// Bare pods are bound when their nodes have registered: there is time between the Node and the bind.
		{name: "Node made, pods not bound", launched: true, pod: func(p *corev1.Pod) { p.OwnerReferences = nil }, kill: func(e *env, k *killed) {
			go func() {
				if _, err := cluster.Until(e.ctx, e.api, &corev1.NodeList{}, func(nodes []*corev1.Node) (bool, string, error) {
					return len(nodes) > 0, "a node", nil
				}); err == nil {
					k.now()
				}
			}()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const pods = 20
			e := start(t, func(s *setting) { s.mortal, s.idle = true, true })
			e.options.Binary = binary
			e.run()
			k := e.killer()
			tc.kill(e, k)
			e.apply(nodeClass, nodePool)
			opts := []podOpt{anti}
			if tc.pod != nil {
				opts = append(opts, tc.pod)
			}
			e.pods("web", pods, "1", "1Gi", opts...)
			select {
			case <-k.done:
			case <-e.wait().Done():
				t.Fatal("the moment to kill the scheduler never came")
			}
			left, launched := e.ownNames(), len(e.sim.Instances())
			for old, now := range objects.Renamed() {
				if left[old] == 0 || left[now] != 0 {
					t.Errorf("the older scheduler has left %v, want %s and no %s", left, old, now)
				}
			}
			if tc.launched != (launched == pods) || launched != e.tags("dovetail.sh/wave") {
				t.Errorf("the older scheduler has launched %d instances, %d with its tag", launched, e.tags("dovetail.sh/wave"))
			}
			claims := e.claims()

			if err := e.sched.SetBinary(e.ctx, ""); err != nil {
				t.Fatal(err)
			}
			k.afterwards(pods)

			if d := e.launches() - pods; d != 0 {
				t.Errorf("%d instances too many were launched", d)
			}
			// Claims are the same: none was given up because its record could not be read.
			names := func(claims []*karpv1.NodeClaim) []string {
				out := map[string]bool{}
				for _, c := range claims {
					out[c.Name] = true
				}
				return slices.Sorted(maps.Keys(out))
			}
			if had, have := names(claims), names(e.claims()); !slices.Equal(had, have) {
				t.Errorf("claims before %v, after %v", had, have)
			}
			// What was recorded is launched as it was recorded, the tag included.
			if n := e.tags("dovetail.sh/wave"); n != pods {
				t.Errorf("%d instances have the tag of their recorded request, want %d", n, pods)
			}
			var now map[string]int
			if err := wait.PollUntilContextCancel(e.wait(), 100*time.Millisecond, true, func(context.Context) (bool, error) {
				now = e.ownNames()
				for old := range objects.Renamed() {
					if now[old] > 0 {
						return false, nil
					}
				}
				return true, nil
			}); err != nil {
				t.Errorf("objects keep old names: %v", now)
			}
			for _, name := range []string{objects.AnnotationLaunchBatch, objects.AnnotationPlannedPods, objects.AnnotationLargestCapacity} {
				if now[name] != pods {
					t.Errorf("%d objects have %s, want %d", now[name], name, pods)
				}
			}
			// The nodes work on: they are ended as any other.
			e.patch(&karpv1.NodePool{}, "default", `{"spec":{"disruption":{"consolidateAfter":"0s","budgets":[{"nodes":"100%"}]}}}`)
			for _, p := range e.podsOf("web") {
				if err := e.api.Delete(e.ctx, &p); err != nil {
					t.Fatal(err)
				}
			}
			if err := wait.PollUntilContextCancel(e.wait(), 200*time.Millisecond, true, func(context.Context) (bool, error) {
				return len(e.sim.Live()) == 0 && len(e.claims()) == 0, nil
			}); err != nil {
				t.Errorf("%d instances and %d claims are left", len(e.sim.Live()), len(e.claims()))
			}
		})
	}
}
