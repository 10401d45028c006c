package integration

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// The commands of docs/why.md, README.md and docs/guard.md on a real API server, beside the running scheduler.
func TestToolOnALiveCluster(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	tool, err := cluster.Build(e.ctx, cluster.Binary{Package: "./cmd/dovetail", Name: "dovetail"})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := e.c.AdminKubeconfig()
	run := func(line string, wantExit int, wants ...string) string {
		t.Helper()
		var out bytes.Buffer
		cmd := exec.CommandContext(e.ctx, tool, append(strings.Fields(line), "--kubeconfig", kubeconfig)...)
		cmd.Stdout, cmd.Stderr = &out, &out
		exit := 0
		if err := cmd.Run(); err != nil {
			var failed *exec.ExitError
			if !errors.As(err, &failed) {
				t.Fatal(err)
			}
			exit = failed.ExitCode()
		}
		if exit != wantExit {
			t.Errorf("dovetail %s: exit %d, want %d", line, exit, wantExit)
		}
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("dovetail %s: %q is missing in\n%s", line, want, out.String())
			}
		}
		return out.String()
	}

	run("top", 0, "0 nodes")
	run("plan --from-cluster", 1, "no NodePool or Provisioner in the input: the cluster has none")

	e.apply(nodeClass, nodePool)
	e.pods("web", 2, "500m", "512Mi")
	node := e.running("web", 2)[0].Spec.NodeName
	e.pods("gpu", 1, "500m", "512Mi", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"tier": "none"} })
	e.eventOf("gpu-0", "FailedProvisioning")

	// The scheduler's own reason, the planner's, and what alone helps.
	run("why pod gpu-0", 0, "no node can be launched for it", "the pod asks for tier in (none), a label that the pool's nodes don't have",
		"the pod doesn't ask for tier=none (spec.nodeSelector): ", "FailedProvisioning")
	run("why pod web-0", 0, "has a node: ", "/h)")
	run("why node "+node, 0, "NodeClaim "+e.claimOf(node).Name, "2 pods")
	run("why nodepool default", 0, "NodePool default launches nodes for pods", "1 node, $")
	run("top", 0, "1 node: $", "Their pods cost at least $", "2 pods with a node, 1 without", node)
	run("plan --from-cluster --without "+node, 3, "Without "+node, "pods would have to run elsewhere", "default/gpu-0")

	// Users with fewer rights get one error that names everything they may not list.
	run("top --as nobody", 1, "listing ", "nodes", "nodepools", "you may not list them, and nothing can be said without them")

	run("retry", 0, "nothing was changed")
	run("retry nodepool default", 0, "NodePool default: its launches are not paused: nothing was changed")
	if got := e.poolNamed("default").Annotations["dovetail.sh/retry"]; got != "" {
		t.Errorf("the annotation of a pool that isn't paused is %q", got)
	}
	run("retry nodepool none", 1, "NodePool none: there is none of that name")
	run("retry --as nobody", 1, "nodepools: you may not list them")
	run("retry nodepool default --as nobody", 1, "NodePool default: you may not get it")

	// Where launches are paused, no name is needed. Karpenter's own controllers never write this condition.
	e.apply(strings.Replace(nodePool, "{name: default}", "{name: paused}", 1))
	e.sched.Stop() // it would take the condition away
	paused := []byte(`{"status":{"conditions":[{"type":"dovetail.sh/LaunchesPaused","status":"True","reason":"InstancesFail","message":"launches are paused since noon","lastTransitionTime":"2026-11-27T10:00:00Z"}]}}`)
	if err := e.api.Status().Patch(e.ctx, &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "paused"}}, client.RawPatch(types.MergePatchType, paused)); err != nil {
		t.Fatal(err)
	}
	run("retry nodepool paused --dry-run", 0, "would set annotation dovetail.sh/retry")
	if got := e.poolNamed("paused").Annotations["dovetail.sh/retry"]; got != "" {
		t.Errorf("a dry run has set the annotation to %q", got)
	}
	out := run("retry nodepool/paused", 0, "NodePool paused: set annotation dovetail.sh/retry to \"", "it was not set")
	got := e.poolNamed("paused").Annotations["dovetail.sh/retry"]
	if got == "" || !strings.Contains(out, got) {
		t.Errorf("the annotation is %q after:\n%s", got, out)
	}
	run("retry", 0, "NodePool paused: set annotation", "it was \""+got+"\"", "paused so far: launches are paused since noon")
	run("why nodepool paused", 0, "has paused launches: launches are paused since noon", "To do: mend the cause; then: dovetail retry")
}

func (e *env) poolNamed(name string) *karpv1.NodePool {
	e.Helper()
	np := &karpv1.NodePool{}
	if err := e.api.Get(e.ctx, client.ObjectKey{Name: name}, np); err != nil {
		e.Fatal(err)
	}
	return np
}
