package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// withGangs enables scheduler-plugins' Coscheduling beside our plugins.
func withGangs(s *setting) {
	s.config = func(cfg cluster.Config) { cfg.EnableGangs() }
}

func (e *env) groups(min int, names ...string) {
	e.Helper()
	for _, name := range names {
		e.apply(fmt.Sprintf("{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: %s, namespace: default}, spec: {minMember: %d}}", name, min))
	}
}

// someBound waits until any n pods of the application are bound.
func (e *env) someBound(app string, n int) {
	e.Helper()
	_, err := cluster.Until(e.wait(), e.api, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) {
		bound := 0
		for _, p := range pods {
			if p.Spec.NodeName != "" {
				bound++
			}
		}
		return bound >= n, fmt.Sprintf("%d pods of %s to be bound (%d are)", n, app, bound), nil
	}, labelled{app})
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) installGroups() {
	e.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		e.Fatal(err)
	}
	crd, err := os.ReadFile(filepath.Join(root, "manifests", "crds", "scheduling.x-k8s.io_podgroups.yaml"))
	if err != nil {
		e.Fatal(err)
	}
	e.apply(string(crd))
}

func inGroup(name string) podOpt {
	return func(p *corev1.Pod) { p.Labels["scheduling.x-k8s.io/pod-group"] = name }
}

// Workers and their leader request different amounts and start together. A gang that can't start launches nothing.
func TestGangStartsTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { withGangs(s); s.idle = true })
	e.installGroups()
	e.apply(nodeClass, nodePool)
	e.groups(5, "train")
	e.groups(3, "short", "huge")
	e.run()
	e.pods("leader", 1, "500m", "1Gi", inGroup("train"))
	e.pods("worker", 4, "2", "4Gi", inGroup("train"))
	e.pods("short", 2, "1", "1Gi", inGroup("short"))
	e.pods("small", 2, "1", "1Gi", inGroup("huge"))
	e.pods("large", 1, "5000", "1Gi", inGroup("huge"))
	e.bound("leader", 1)
	e.bound("worker", 4)
	e.settled(len(e.claims()))
	before := e.launches()
	for _, pod := range []string{"short-0", "small-0", "large-0"} {
		e.eventOf(pod, "FailedProvisioning")
	}
	if n := e.launches(); n != before {
		t.Errorf("%d machines were launched for gangs that can't start", n-before)
	}
	// With its third member, the incomplete gang is complete.
	e.pods("late", 1, "1", "1Gi", inGroup("short"))
	e.bound("late", 1)
	e.bound("short", 2)
	for _, app := range []string{"small", "large"} {
		for _, p := range e.podsOf(app) {
			if p.Spec.NodeName != "" {
				t.Errorf("pod %s of a gang that can't start is bound to %s", p.Name, p.Spec.NodeName)
			}
		}
	}
}

// Several gangs, and a limit that has capacity for one of them: one starts, and no node runs for half of another.
func TestGangsThatCompeteForALimit(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { withGangs(s); s.idle = true })
	e.installGroups()
	small := strings.Replace(nodePool, "      requirements:\n", oneNode, 1)
	e.apply(nodeClass, strings.Replace(small, "  disruption:", "  limits: {nodes: \"3\"}\n  disruption:", 1))
	e.groups(2, "a", "b", "c")
	for _, g := range []string{"a", "b", "c"} {
		e.pods("gang-"+g, 2, "2500m", "1Gi", inGroup(g), func(p *corev1.Pod) { p.Labels["app"] = "gang" })
	}
	e.run()
	e.someBound("gang", 2)
	e.settled(2)
	if n := e.launches(); n != 2 {
		t.Errorf("%d launches for the one gang that may start", n)
	}
	byGang := map[string]int{}
	for _, p := range e.podsOf("gang") {
		if p.Spec.NodeName != "" {
			byGang[p.Labels["scheduling.x-k8s.io/pod-group"]]++
		}
	}
	if len(byGang) != 1 {
		t.Errorf("bound pods per gang: %v, want one gang whole", byGang)
	}
}

// Capacity runs out when half of the gang's instances are launched: they are terminated.
func TestGangThatCantBeHadLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		withGangs(s)
		s.idle = true
		s.sim.Speed = 1 // the launched instances are still booting when the plan is given up
	})
	e.installGroups()
	e.apply(nodeClass, strings.Replace(nodePool, "      requirements:\n", "      requirements:\n        - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}\n", 1))
	e.groups(4, "train")
	for _, z := range zones {
		n := 0
		if z == zones[0] {
			n = 2
		}
		e.sim.SetCapacity("m5.large", z, "on-demand", n)
	}
	e.pods("worker", 4, "1200m", "1Gi", inGroup("train"))
	e.run()
	e.eventOf("worker-0", "FailedProvisioning")
	e.settled(0)
	for _, p := range e.podsOf("worker") {
		if p.Spec.NodeName != "" {
			t.Errorf("pod %s is bound to %s though its gang can't start", p.Name, p.Spec.NodeName)
		}
	}
	log, err := e.sched.Log()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log, `"Planned"`); n > 30 {
		t.Errorf("planned %d times for one gang that can't be had", n)
	}
}

// A running gang has lost a member: the pod that replaces it needs no quorum of its own.
func TestGangGetsAMemberBack(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { withGangs(s); s.idle = true })
	e.installGroups()
	e.apply(nodeClass, nodePool)
	e.groups(3, "train")
	e.run()
	e.pods("worker", 3, "2", "4Gi", inGroup("train"), quick)
	lost := e.running("worker", 3)[0]
	e.create(fullNode("other", zones[0], "0"))
	if err := e.api.Delete(e.ctx, lost); err != nil {
		t.Fatal(err)
	}
	e.ending("worker", 2)
	e.pods("again", 1, "3", "6Gi", inGroup("train"))
	e.bound("again", 1)
}
