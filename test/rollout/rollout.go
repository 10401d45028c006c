package main

import (
	"context"
	"fmt"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// scarce is the instance type of the first pool, plenty those of the others.
const scarce, plenty = "c6i.xlarge", "m6i.xlarge,r6i.xlarge"

// A pool of n nodes whose budget is b nodes at a time needs no longer than
//
//	noticing + canary + ceil((n-1)/b) * batch
//
// until it is rolled out, where
//
//   - noticing is the time until the edit has reached all claims, and a first pass was made, which are looked for every ten seconds; if the first node was
//     tried in the pool without capacity, another minute until another pool's turn;
//   - the canary, the first new node, has to boot, to get a pod, and to hold it Ready for two minutes;
//   - a batch has to wait for the pass that plans it (10 s, and a second in which changes are gathered), for its nodes to boot (2 s in the median, 4 s
//     for 95 %, at most some 10 s for the slowest of a batch at this speed), for its pods to end (their grace period is 5 s), to be bound and to start, and for the
//     old instances to be shut down (40/20 s), because they count towards the budget until they are gone. That is half a minute. Two cores
//     share it among all pools, so it may take twice as long.
const (
	noticing = 2 * time.Minute
	canary   = 2*time.Minute + batch
	batch    = time.Minute
	// backOff is how long the product leaves a node alone whose replacement could not be launched (15 minutes), and after that forgets at the
	// latest that an offering had no capacity (3 minutes).
	backOff = 18 * time.Minute
)

// rolling is a cluster of pools of one class, each with a Deployment with one pod per node.
type rolling struct {
	*system
	pools, nodes, budget int
	// old are the claims from before the edit, by UID, with their pool.
	old map[types.UID]string
	// launched are the instances that were launched before it, ended the claims that had been deleted.
	launched, ended int
	begun           time.Time
}

func pool(i int) string { return fmt.Sprintf("pool-%d", i) }
func app(i int) string  { return fmt.Sprintf("app-%d", i) }

// bound is how long the roll-out of a pool may take.
func (r *rolling) bound() time.Duration {
	batches := (r.nodes - 1 + r.budget - 1) / r.budget
	return noticing + canary + time.Duration(batches)*batch
}

func (r *rolling) want() map[string]int {
	out := map[string]int{}
	for i := range r.pools {
		out[app(i)] = r.nodes
	}
	return out
}

// rollOut does all of it.
func rollOut(ctx context.Context, s *system) error {
	r := &rolling{system: s, pools: s.set.pools, nodes: s.set.nodes, budget: (s.set.nodes + 9) / 10, old: map[types.UID]string{}}
	if err := r.fill(ctx); err != nil {
		return err
	}
	standalone.Say("%d nodes are there; the class is edited, and %s has no capacity: at most %s", r.pools*r.nodes, pool(0), r.bound())
	if err := r.edit(ctx); err != nil {
		return err
	}
	if err := r.rolledOut(ctx, 1, r.bound()); err != nil {
		return err
	}
	standalone.Say("%d pools are rolled out after %s", r.pools-1, time.Since(r.begun).Round(time.Second))
	if err := r.judged(ctx, 1); err != nil {
		return err
	}
	if err := r.behave(ctx); err != nil {
		return err
	}
	standalone.Say("the capacity comes back: at most %s", backOff+r.bound())
	s.EC2.SetCapacity(scarce, ec2.Any, ec2.Any, ec2.Unlimited)
	if err := r.rolledOut(ctx, 0, backOff+r.bound()); err != nil {
		return err
	}
	return r.judged(ctx, 0)
}

// fill creates the cluster.
func (r *rolling) fill(ctx context.Context) error {
	if err := r.Create(ctx, chaos.Class("default")); err != nil {
		return err
	}
	for i := range r.pools {
		kind := plenty
		if i == 0 {
			kind = scarce
		}
		np := chaos.Pool(pool(i), "default", corev1.LabelInstanceTypeStable+"="+kind)
		np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "10%"}}
		d := chaos.Deployment(r.nodes, chaos.Template(app(i), "2", "2Gi", chaos.OnePerNode, func(t *corev1.PodTemplateSpec) {
			t.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: np.Name}
		}))
		if err := r.Create(ctx, np, d); err != nil {
			return err
		}
	}
	if err := r.StartScheduler(ctx); err != nil {
		return err
	}
	done, err := r.until(ctx, "all run on new nodes", filling, func(l look) string {
		if why := l.allRun(r.want()); why != "" {
			return why
		}
		for i := range l.claims {
			r.old[l.claims[i].UID] = l.claims[i].Labels[karpv1.NodePoolLabelKey]
		}
		return r.consistent(l)
	})
	if err == nil && !done {
		return fmt.Errorf("the cluster isn't filled")
	}
	return err
}

// edit takes the capacity of the first pool away, and edits the class.
func (r *rolling) edit(ctx context.Context) error {
	j, err := r.judge(ctx, karpv1.DisruptionReasonDrifted)
	if err != nil {
		return err
	}
	r.launched, r.ended = len(r.EC2.Instances()), j.Ended
	r.EC2.SetCapacity(scarce, ec2.Any, ec2.Any, 0)
	class := &ec2nc.EC2NodeClass{}
	class.Name = "default"
	r.begun = time.Now()
	return r.patch(ctx, class, `{"spec":{"userData":"#!/bin/sh\ntrue"}}`)
}

// rolledOut waits until no node from before the edit is left in the pools from first on, and all is at rest.
func (r *rolling) rolledOut(ctx context.Context, first int, most time.Duration) error {
	done, err := r.until(ctx, "the pools are rolled out", most, func(l look) string {
		left := 0
		for i := range l.claims {
			if p, ok := r.old[l.claims[i].UID]; ok && (first == 0 || p != pool(0)) {
				left++
			}
		}
		if left > 0 {
			return fmt.Sprintf("%d of %d nodes are left", left, (r.pools-first)*r.nodes)
		}
		return ""
	})
	if err != nil || !done {
		return err
	}
	_, err = r.until(ctx, "all run again", settling, func(l look) string {
		if why := l.allRun(r.want()); why != "" || first > 0 { // a pool without capacity may have claims that come and go
			return why
		}
		return r.consistent(l)
	})
	return err
}

// judged judges what has happened, when the pools from first on are rolled out and the others had no capacity.
func (r *rolling) judged(ctx context.Context, first int) error {
	j, err := r.judge(ctx, karpv1.DisruptionReasonDrifted)
	if err != nil {
		return err
	}
	moved := 0
	for i := range r.pools {
		want := 2 * r.nodes
		if i < first {
			want = r.nodes
		}
		if n := j.Pods(app(i)); n != want {
			r.wrong("%s has had %d pods, want %d", app(i), n, want)
		}
		moved += j.Pods(app(i)) - r.nodes
	}
	ended, launched := j.Ended-r.ended, len(r.EC2.Instances())-r.launched
	if most := ended + r.pools*r.budget; launched > most {
		r.wrong("%d machines were launched for %d that were replaced, at most %d", launched, ended, most)
	}
	if want := (r.pools - first) * r.nodes; ended < want {
		r.wrong("%d claims were deleted, want %d", ended, want)
	}
	now, err := r.look(ctx)
	if err != nil {
		return err
	}
	kept := 0
	for i := range now.claims {
		if r.old[now.claims[i].UID] == pool(0) {
			kept++
		}
	}
	if first > 0 && kept != r.nodes {
		r.wrong("the pool without capacity has %d of its %d nodes", kept, r.nodes)
	}
	if first > 0 {
		standalone.Say("%d nodes replaced, %d pods moved, %d machines launched, %d evictions", ended, moved, launched, j.Evicted)
		return nil
	}
	for _, w := range j.Wrong {
		r.wrong("%s", w)
	}
	if j.Undecided > 0 {
		r.wrong("%d evictions could not be judged", j.Undecided)
	}
	fmt.Printf("rollout: nodes %d moved %d launched %d minutes %.1f\n", r.pools*r.nodes, moved, launched, time.Since(r.begun).Minutes())
	return nil
}

// behave edits, in the pools that are rolled out, the fields that say how a pool behaves: nothing drifts or moves.
func (r *rolling) behave(ctx context.Context) error {
	for _, edit := range []string{
		`{"spec":{"disruption":{"budgets":[{"nodes":"50%"}]}}}`,
		`{"spec":{"disruption":{"consolidateAfter":"10m"}}}`,
		`{"spec":{"weight":7}}`,
		`{"spec":{"limits":{"cpu":"100000"}}}`,
	} {
		for i := 1; i < r.pools; i++ {
			np := &karpv1.NodePool{}
			np.Name = pool(i)
			if err := r.patch(ctx, np, "%s", edit); err != nil {
				return err
			}
		}
	}
	before, err := r.look(ctx)
	if err != nil {
		return err
	}
	was := map[types.UID]bool{}
	for i := range before.claims {
		was[before.claims[i].UID] = before.claims[i].Labels[karpv1.NodePoolLabelKey] != pool(0)
	}
	standalone.Say("fields that must not drift are edited; nothing may happen for %s", r.set.hold)
	_, err = r.until(ctx, "nothing drifts", r.set.hold+time.Minute, r.still(was, time.Now().Add(r.set.hold)))
	return err
}

// still describes how long the claims still have to stay as they are.
func (r *rolling) still(was map[types.UID]bool, end time.Time) func(look) string {
	told := map[string]bool{}
	tell := func(what string) {
		if !told[what] {
			told[what] = true
			r.wrong("after edits that must not drift %s", what)
		}
	}
	return func(l look) string {
		there := map[types.UID]bool{}
		for i := range l.claims {
			c := &l.claims[i]
			there[c.UID] = true
			switch other := c.Labels[karpv1.NodePoolLabelKey] != pool(0); {
			case !other:
			case !was[c.UID]:
				tell("claim " + c.Name + " was launched")
			case c.DeletionTimestamp != nil:
				tell("claim " + c.Name + " is deleted")
			case c.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue():
				tell("claim " + c.Name + " has drifted")
			}
		}
		for uid, other := range was {
			if other && !there[uid] {
				tell(fmt.Sprintf("claim %s is gone", uid))
			}
		}
		if left := time.Until(end); left > 0 {
			return fmt.Sprintf("for another %s", left.Round(time.Second))
		}
		return ""
	}
}
