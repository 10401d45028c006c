package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Marks of histories whose pool consolidates, counted among the faults.
const (
	consolidates         = "consolidation"
	consolidatesBalanced = "consolidation: Balanced"
	consolidatesAtOnce   = "consolidation: restart-cost 0s"
	consolidatesAged     = "consolidation: nodes older than an hour"
)

// soleApp has a disruption budget that allows no eviction.
const soleApp = "sole"

// consolidating is what differs in a history whose pool consolidates, which is every second one. It is drawn from a stream of its own, so that
// everything else in the history of a seed is as it would be without.
type consolidating struct {
	on bool
	// policy, and whether moving pods costs nothing.
	policy karpv1.ConsolidationPolicy
	free   bool
	// age is how long the cluster is left alone before the storm, so that its nodes leave their first hour.
	age    time.Duration
	budget *karpv1.Budget
	// more is by how much larger the workloads are at first, cuts are when they become smaller, after the beginning of the storm.
	more int
	cuts []time.Duration
	rng  *rand.Rand
}

func drawConsolidating(r *rand.Rand) *consolidating {
	c := &consolidating{rng: r, on: r.IntN(2) == 0, policy: karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, free: r.IntN(4) != 0}
	if r.IntN(4) == 0 {
		c.policy = karpv1.ConsolidationPolicyBalanced
	}
	if !c.free {
		c.age = time.Hour + time.Duration(r.IntN(10))*time.Minute
	}
	switch r.IntN(4) {
	case 0:
		c.budget = &karpv1.Budget{Nodes: "1", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonUnderutilized}}
	case 1:
		c.budget = &karpv1.Budget{Nodes: "34%", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonUnderutilized, karpv1.DisruptionReasonDrifted}}
	}
	c.more = 4 + r.IntN(10)
	for at := time.Duration(0); at < stormMin; {
		at += time.Duration(60+r.IntN(240)) * time.Second
		c.cuts = append(c.cuts, at)
	}
	return c
}

// wait returns how long the cluster is left alone.
func (c *consolidating) wait() time.Duration {
	if !c.on {
		return 0
	}
	return c.age
}

// shape changes the pool.
func (c *consolidating) shape(pool *karpv1.NodePool, f *faults) {
	if !c.on {
		return
	}
	f.injected(consolidates)
	pool.Spec.Disruption.ConsolidationPolicy = c.policy
	if c.policy == karpv1.ConsolidationPolicyBalanced {
		f.injected(consolidatesBalanced)
	}
	if c.free {
		f.injected(consolidatesAtOnce)
		pool.Annotations = map[string]string{restartCost: "0s"}
	} else {
		f.injected(consolidatesAged)
	}
	if c.budget != nil {
		pool.Spec.Disruption.Budgets = append(pool.Spec.Disruption.Budgets, *c.budget)
	}
}

// grow makes the workloads larger, so that there is something to consolidate when they shrink, and adds some that limit it.
func (c *consolidating) grow(apps []*app) []*app {
	if !c.on {
		return apps
	}
	for _, a := range apps {
		if !a.bare && !a.guarded && a.name != impossible && a.name != gpuApp {
			a.replicas += c.rng.IntN(c.more)
		}
	}
	if c.rng.IntN(3) == 0 {
		apps = append(apps, c.small(apps[0], "keep", &app{guarded: true}))
	}
	if c.rng.IntN(3) == 0 {
		apps = append(apps, c.small(apps[0], soleApp, &app{}))
	}
	if c.rng.IntN(3) == 0 {
		apps = append(apps, c.small(apps[0], "stand", &app{bare: true}))
	}
	return apps
}

// small returns an app of one or two pods shaped like another's.
func (c *consolidating) small(like *app, name string, a *app) *app {
	a.name, a.replicas = name, 1+c.rng.IntN(2)
	a.shape = func(p *corev1.Pod) {
		like.shape(p)
		if a.guarded {
			p.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
		}
	}
	return a
}

// prepareConsolidation creates the disruption budget that allows no eviction at all, lets the cluster grow old, and plans the cuts.
func (h *history) prepareConsolidation() error {
	c := h.consolidating
	if !c.on {
		return nil
	}
	for _, a := range h.apps {
		if a.name == soleApp {
			if err := h.objects.Create(h.ctx, &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: a.name},
				Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0)),
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: a.name}}},
			}); err != nil {
				return fmt.Errorf("creating the budget of %s: %w", a.name, err)
			}
		}
	}
	if c.age > 0 {
		h.note("the cluster is left alone for %s", c.age)
	}
	for _, at := range c.cuts {
		h.later(c.age+at, h.cut)
	}
	return nil
}

// cut makes all workloads smaller by up to two thirds.
func (h *history) cut() {
	for _, a := range h.apps {
		if a.bare || a.guarded || a.name == impossible || a.owner == nil || a.replicas < 2 {
			continue
		}
		a.replicas -= h.consolidating.rng.IntN(1 + 2*a.replicas/3)
		h.scale(a)
	}
	h.note("all scale in")
}

// scale writes an app's number of replicas into its ReplicaSet.
func (h *history) scale(a *app) {
	if a.owner == nil {
		return
	}
	rs := a.owner.DeepCopy()
	if h.objects.Get(h.ctx, keyOf(rs), rs) == nil {
		rs.Spec.Replicas = ptr.To(int32(a.replicas))
		_ = h.objects.Update(h.ctx, rs)
	}
}
