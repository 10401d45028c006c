package integration

import (
	"fmt"
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/outside"
	"github.com/dovetail-scheduler/dovetail/test/record"
)

// make rollout, small: all nodes of three pools drift, and one pool has no capacity. The others are rolled out, each of their pods moves once, and
// the third stays as it is. Meanwhile edits of how pools behave drift nothing: no claim for a change of its pool, and no new one at all.
func TestRollOut(t *testing.T) {
	t.Parallel()
	const pools, nodes, scarce = 3, 3, "c6i.xlarge"
	e := start(t, nil)
	replicaSets(t, e.c.AdminConfig(), 200)
	recorder, err := record.Start(e.ctx, e.api, &corev1.PodList{}, &corev1.NodeList{}, &karpv1.NodeClaimList{}, &karpv1.NodePoolList{})
	if err != nil {
		t.Fatal(err)
	}
	e.apply(nodeClass)
	name := func(i int) string { return fmt.Sprintf("pool-%d", i) }
	for i := range pools {
		kind := "m6i.xlarge"
		if i == 0 {
			kind = scarce
		}
		e.apply(strings.NewReplacer("{name: default}\nspec:\n  template", "{name: "+name(i)+"}\nspec:\n  template", "values: [c, m, r]}",
			"values: [c, m, r]}\n        - {key: node.kubernetes.io/instance-type, operator: In, values: ["+kind+"]}",
			"consolidateAfter: Never}", `consolidateAfter: Never, budgets: [{nodes: "2"}]}`).Replace(nodePool))
		rs := replicas(name(i), nodes, "2", "1Gi").(*appsv1.ReplicaSet)
		rs.Spec.Template.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: name(i)}
		rs.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: rs.Spec.Selector.MatchLabels}}}}}
		e.create(rs)
	}
	e.runOn(pools*nodes, pools*nodes)
	old, launched := map[string]bool{}, len(e.sim.Instances())
	for _, c := range e.claims() {
		old[c.Name] = true
	}
	e.sim.SetCapacity(scarce, ec2.Any, ec2.Any, 0)
	e.patch(&ec2nc.EC2NodeClass{}, "default", `{"spec":{"userData":"#!/bin/sh\ntrue"}}`)
	e.newClaims(old, 1)
	for i := range pools {
		e.patch(&karpv1.NodePool{}, name(i), `{"spec":{"weight":7,"limits":{"cpu":"1000"},"disruption":{"consolidateAfter":"10m","budgets":[{"nodes":"2"},{"nodes":"50%"}]}}}`)
	}
	e.newClaims(old, (pools-1)*nodes)
	e.rest(pools*nodes, old, nodes)
	events, err := recorder.Events(e.wait())
	if err != nil {
		t.Fatal(err)
	}
	j := outside.NewJudge(karpv1.DisruptionReasonDrifted)
	for _, event := range events {
		j.Take(event)
		if c, ok := event.Object.(*karpv1.NodeClaim); ok {
			for _, d := range c.Status.Conditions {
				if d.Type == karpv1.ConditionTypeDrifted && d.Status == metav1.ConditionTrue && (!old[c.Name] || d.Reason != "NodeClassDrift") {
					t.Errorf("at revision %d claim %s, which is old: %v, has drifted: %s", event.Revision, c.Name, old[c.Name], d.Reason)
				}
			}
		}
	}
	for _, w := range j.Wrong {
		t.Error(w)
	}
	for i := range pools {
		want := 2 * nodes
		if i == 0 {
			want = nodes
		}
		if n := j.Pods(name(i)); n != want {
			t.Errorf("%s has had %d pods, want %d", name(i), n, want)
		}
	}
	// One per replaced node, and no more than that: nothing was given up.
	if n := len(e.sim.Instances()) - launched; n != j.Ended || n != (pools-1)*nodes {
		t.Errorf("%d machines were launched for %d claims that ended", n, j.Ended)
	}
}

// newClaims waits until there are so many claims in service that are not old.
func (e *env) newClaims(old map[string]bool, n int) {
	e.Helper()
	if _, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		have := 0
		for _, c := range claims {
			if !old[c.Name] && initialized(c) {
				have++
			}
		}
		return have >= n, fmt.Sprintf("%d new nodes, not %d", n, have), nil
	}); err != nil {
		e.Fatal(err)
	}
}

// rest waits until so many pods run, and so many of the old claims are left.
func (e *env) rest(pods int, old map[string]bool, left int) {
	e.Helper()
	if _, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		have := 0
		for _, c := range claims {
			if old[c.Name] {
				have++
			}
		}
		return have == left, fmt.Sprintf("%d old nodes, not %d", left, have), nil
	}); err != nil {
		e.Fatal(err)
	}
	e.allRun(pods)
}
