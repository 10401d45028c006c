package disruption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/budgets"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/nodepods"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// provedAfter is how long a pod has to be Ready on a new node until more such nodes are launched for drifted ones.
	provedAfter = 2 * time.Minute
	// canaryMost is how long a canary has for that, from its launch: longer than a node may take to register and to be initialized.
	canaryMost = 45 * time.Minute
	// canaryPause is how long nothing is launched after a canary has failed; it doubles each time, up to canaryPauseMost.
	canaryPause     = 5 * time.Minute
	canaryPauseMost = 4 * time.Hour
	// canarySeen is how long the cache may take to show a claim that was just written, canaryRest how long a pool waits after a canary that got
	// no instance, for insufficient capacity, say.
	canarySeen = 30 * time.Second
	canaryRest = time.Minute
	// driftsAgain: a node that drifts sooner than this after its launch, with the same template, is not replaced: each replacement would drift, too.
	driftsAgain = 10 * time.Minute
)

// rollOuts says which drifted nodes may be replaced, and whether new nodes of their pools have proved to work. Only the goroutine that makes
// the passes uses it. What it has to know after a restart is in an annotation of the NodePool (karpenter.RollOut, with the states).
type rollOuts struct {
	objects  client.Client // reads from a cache
	kind     *cloudprovider.NodeClassKind
	bound    nodepods.Reader
	recorder events.EventRecorder
	clock    clock.Clock
	dryRun   bool
	pools    map[string]*rollOut // by the name of the pool
}

// rollOut is what is known of a pool.
type rollOut struct {
	karpenter.RollOut
	uid types.UID
	// class is the name of the node class, key identifies the class's part of the template; err is why the template isn't known.
	class, key string
	err        error
	// any: a node of the pool has drifted. drifted: such nodes are to be replaced, or the nodes of another pool have drifted because of the class that
	// both pools use. young are claims launched from the template that are not initialized. again are claims that have drifted within driftsAgain.
	any, drifted bool
	young        []string
	again        map[types.UID]bool
	// instances are the canaries whose instance was seen. A canary without an instance has proved nothing; until rest no other one is launched.
	instances map[string]bool
	rest      time.Time
}

// unproved reports whether it isn't known yet if new nodes work, though nodes are to be replaced.
func (r *rollOut) unproved() bool { return r.drifted && !r.Proved }

// of returns the roll-out of a pool; nil: none.
func (r *rollOuts) of(pool string) *rollOut { return r.pools[pool] }

// templates returns what nodes of each pool are launched from now.
func (r *rollOuts) templates() map[string]string {
	out := make(map[string]string, len(r.pools))
	for name, p := range r.pools {
		out[name] = p.Template
	}
	return out
}

// observe takes over what has happened since the last pass:
//
//  1. Find out what nodes of each pool are launched from now. If that has changed, nothing is known of new nodes.
//  2. Find the drifted nodes, and those that drift again.
//  3. Where there are any, find out whether the new nodes work.
//  4. Record that on the pools.
func (r *rollOuts) observe(ctx context.Context, s *cluster, now time.Time) (errs []error) {
	next := make(map[string]*rollOut, len(s.pools))
	for _, np := range s.pools {
		next[np.Name] = r.template(ctx, np, now)
	}
	r.pools = next
	classes := map[string]bool{} // node classes whose change made nodes drift
	for _, m := range s.candidates {
		if m.pool == nil {
			continue
		}
		p := next[m.pool.Name]
		since, reason := driftOf(m.claim)
		switch {
		case reason != "":
			if p.driftsAgain(m.claim, since) {
				p.again[m.claim.UID] = true
				break
			}
			p.any = true
			if paused(m) || !budgets.Any(m.pool.Spec.Disruption.Budgets, r.clock, karpv1.DisruptionReasonDrifted) {
				break
			}
			p.drifted = true
			if reason != cloudprovider.NodePoolDrifted && reason != cloudprovider.RequirementsDrifted {
				classes[p.class] = true
			}
		case p.launched(m) && m.claim.DeletionTimestamp == nil && condition(m.claim, karpv1.ConditionTypeInitialized) == nil && now.Sub(m.claim.CreationTimestamp.Time) < canaryMost:
			p.young = append(p.young, m.claim.Name)
			if m.pool.Spec.Replicas != nil && p.Launched.Before(m.claim.CreationTimestamp.Time) { // a spare, which is the canary of a static pool
				p.Canaries, p.Launched = append(p.Canaries, m.claim.Name), m.claim.CreationTimestamp.UTC()
			}
		}
	}
	for _, np := range s.pools {
		p := next[np.Name]
		p.drifted = p.drifted || classes[p.class]
		if p.unproved() && p.err == nil {
			errs = append(errs, r.judge(ctx, s, np, p, now))
		}
		p.Again = r.names(s, p)
		if err := r.record(ctx, np, p); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// template returns the pool's roll-out with what nodes are launched from now. What depends on the nodes is not set yet.
func (r *rollOuts) template(ctx context.Context, np *karpv1.NodePool, now time.Time) *rollOut {
	p := &rollOut{uid: np.UID, again: map[types.UID]bool{}, instances: map[string]bool{}}
	before := r.pools[np.Name]
	if before != nil && before.uid == np.UID {
		p.RollOut, p.class, p.key, p.instances, p.rest = before.RollOut, before.class, before.key, before.instances, before.rest
	} else if record, ok := karpenter.RollOutOf(np); ok {
		p.RollOut = record
	}
	pool, class, key, err := r.read(ctx, np)
	if err != nil {
		p.err = err
		return p
	}
	p.class, p.key = class, key
	if template := pool + "/" + key; template != p.Template {
		p.RollOut = karpenter.RollOut{Template: template, Since: now.UTC().Truncate(time.Second)}
	}
	return p
}

// read returns what nodes of a pool are launched from: the pool's part of it, the name of its node class, and that class's part.
func (r *rollOuts) read(ctx context.Context, np *karpv1.NodePool) (pool, class, key string, err error) {
	if why := karpenter.Malformed(np); why != "" {
		return "", "", "", errors.New("it can't be read: " + why)
	}
	var nc status.Object
	if ref := np.Spec.Template.Spec.NodeClassRef; ref != nil && r.kind != nil && ref.GroupKind() == r.kind.GroupKind() {
		class, nc = ref.Name, r.kind.New()
		if err := r.objects.Get(ctx, client.ObjectKey{Name: ref.Name}, nc); err != nil {
			return "", "", "", fmt.Errorf("its %s %s can't be read: %w", r.kind.Kind, ref.Name, err)
		}
	}
	pool, key, err = karpenter.Template(np, nc, r.kind)
	return pool, class, key, err
}

// driftOf returns since when and why a claim's node is drifted; "": it isn't.
func driftOf(claim *karpv1.NodeClaim) (since time.Time, reason cloudprovider.DriftReason) {
	if c := condition(claim, karpv1.ConditionTypeDrifted); c != nil {
		return c.LastTransitionTime.Time, cloudprovider.DriftReason(c.Reason)
	}
	return time.Time{}, ""
}

// launched reports whether a node was launched from the present template.
func (r *rollOut) launched(m *candidate) bool {
	return !m.claim.CreationTimestamp.Time.Before(r.Since)
}

// driftsAgain reports whether a node has drifted soon after it was launched, from the same template.
func (r *rollOut) driftsAgain(claim *karpv1.NodeClaim, since time.Time) bool {
	created := claim.CreationTimestamp.Time
	return !created.Before(r.Since) && since.Sub(created) < driftsAgain
}

// judge finds out whether new nodes of a pool work:
//
//  1. One that is initialized, and has held a pod Ready for two minutes, proves that they do, whatever it was launched for.
//  2. A canary that has ended before, or takes too long, has failed. Nothing more is launched for a while.
func (r *rollOuts) judge(ctx context.Context, s *cluster, np *karpv1.NodePool, p *rollOut, now time.Time) error {
	for _, m := range s.candidates {
		if m.pool != np || !p.launched(m) {
			continue
		}
		works, err := r.serves(m, now)
		if err != nil {
			return err
		}
		if works {
			p.RollOut = karpenter.RollOut{Template: p.Template, Since: p.Since, Proved: true}
			klog.FromContext(ctx).V(2).Info("A new node works: drifted nodes are replaced as the budgets allow", "nodePool", np.Name, "nodeClaim", m.claim.Name)
			return nil
		}
	}
	return r.fail(ctx, s, np, p, now)
}

// fail has a pool's roll-out pause if one of its canaries has failed.
func (r *rollOuts) fail(ctx context.Context, s *cluster, np *karpv1.NodePool, p *rollOut, now time.Time) error {
	why := ""
	for _, name := range slices.Clone(p.Canaries) {
		m := s.byName[name]
		if m != nil && condition(m.claim, karpv1.ConditionTypeLaunched) != nil {
			p.instances[name] = true
		}
		switch gone := m == nil || m.claim.DeletionTimestamp != nil; {
		case m == nil && now.Sub(p.Launched) < canarySeen: // the cache may be behind
		case gone && !p.instances[name]:
			p.Canaries, p.rest = slices.DeleteFunc(p.Canaries, func(other string) bool { return other == name }), now.Add(canaryRest)
		case gone:
			why = fmt.Sprintf("NodeClaim %s, the first that is not drifted, ended before a pod had been Ready on its node for %s", name, provedAfter)
		case now.Sub(p.Launched) > canaryMost:
			why = fmt.Sprintf("no pod has been Ready for %s within %s on the node of NodeClaim %s, the first that is not drifted", provedAfter, canaryMost, name)
		}
	}
	if why == "" {
		return nil
	}
	p.Failed++
	clear(p.instances)
	p.Canaries, p.Why, p.Until = nil, why, now.Add(min(canaryPause<<min(p.Failed-1, 10), canaryPauseMost)).UTC().Truncate(time.Second)
	r.recorder.Eventf(np, nil, corev1.EventTypeWarning, reasonRollOutPaused, "Disrupt", "No drifted node is replaced before %s: %s", p.Until.Format(time.RFC3339), why)
	klog.FromContext(ctx).Info("A roll-out pauses", "nodePool", np.Name, "failed", p.Failed, "until", p.Until, "reason", why)
	return nil
}

// ended takes note that a node was ended. A canary that ended because it was empty, or to save money, has not failed the first time: if new nodes
// work is as unknown as before. The next one has failed: perhaps no pod can run there, and nodes would be drained and launched without end.
func (r *rollOuts) ended(d *decision, now time.Time) {
	if d.pool == nil || d.reason != string(karpv1.DisruptionReasonEmpty) && d.reason != string(consolidation.Underutilized) {
		return
	}
	p := r.of(d.pool.Name)
	if p == nil || p.Forgiven || !slices.Contains(p.Canaries, d.claim.Name) {
		return
	}
	p.Forgiven = true
	p.Canaries, p.rest = slices.DeleteFunc(slices.Clone(p.Canaries), func(other string) bool { return other == d.claim.Name }), now.Add(canaryRest)
	delete(p.instances, d.claim.Name)
}

// serves reports whether a node is initialized and one of its pods has been Ready for long enough. Pods of DaemonSets don't count. The node of a
// static pool is launched for no pod: that it has been initialized for so long is enough.
func (r *rollOuts) serves(m *candidate, now time.Time) (bool, error) {
	_, drifted := driftOf(m.claim)
	up := condition(m.claim, karpv1.ConditionTypeInitialized)
	if m.node == nil || m.claim.DeletionTimestamp != nil || drifted != "" || up == nil || karpenter.PoolDrift(m.pool, m.claim) != "" {
		return false, nil
	}
	if m.pool.Spec.Replicas != nil {
		return now.Sub(up.LastTransitionTime.Time) >= provedAfter, nil
	}
	bound, err := r.bound.Cached(m.node.Name)
	return err == nil && slices.ContainsFunc(bound, func(p *corev1.Pod) bool {
		since := readySince(p)
		return !pods.Daemon(p) && !pods.Mirror(p) && metav1.GetControllerOfNoCopy(p) != nil && !since.IsZero() && now.Sub(since) >= provedAfter
	}), err
}

// readySince returns since when a pod has been Ready; zero: it isn't.
func readySince(p *corev1.Pod) time.Time {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// names returns the names of the claims that drift again, sorted.
func (r *rollOuts) names(s *cluster, p *rollOut) (out []string) {
	for uid := range p.again {
		if m := s.byUID[string(uid)]; m.claim.DeletionTimestamp == nil {
			out = append(out, m.claim.Name)
		}
	}
	slices.Sort(out)
	return out
}

// reserved records the nodes that were launched for a move, where it isn't known yet whether they work.
func (r *rollOuts) reserved(ctx context.Context, s *cluster, due *consolidation.Due, now time.Time) error {
	changed := map[string]bool{}
	for _, n := range due.New {
		claim, ok := due.Claims[n.ID]
		if !ok || n.Pool == nil {
			continue
		}
		if p := r.of(n.Pool.Name); p != nil && p.unproved() {
			p.Canaries, p.Launched = append(p.Canaries, claim), now.UTC().Truncate(time.Second)
			changed[n.Pool.Name] = true
			klog.FromContext(ctx).V(2).Info("The first node of a roll-out is launched", "nodePool", n.Pool.Name, "nodeClaim", claim)
		}
	}
	for _, np := range s.pools {
		if changed[np.Name] {
			if err := r.record(ctx, np, r.of(np.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// record writes on the pool how far a roll-out has come, as long as nodes are drifted. A derived pool is no object: it has that in memory only.
func (r *rollOuts) record(ctx context.Context, np *karpv1.NodePool, p *rollOut) error {
	had, there := np.Annotations[objects.AnnotationRollOut]
	var value *string
	if p.any || p.drifted || len(p.again) > 0 {
		raw, err := json.Marshal(&p.RollOut)
		if err != nil {
			return fmt.Errorf("recording the roll-out of NodePool %s: %w", np.Name, err)
		}
		text := string(raw)
		value = &text
	}
	if r.dryRun || karpenter.Derived(np.Name) || value == nil && !there || value != nil && there && had == *value || p.err != nil {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": np.UID, "annotations": map[string]*string{objects.AnnotationRollOut: value}}})
	if err != nil {
		return fmt.Errorf("recording the roll-out of NodePool %s: %w", np.Name, err)
	}
	obj := &karpv1.NodePool{}
	obj.Name = np.Name
	if err := r.objects.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body)); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("recording the roll-out of NodePool %s: %w", np.Name, err)
	}
	return nil
}

// policy says in a pool's policy whether new nodes of it may be launched for drifted ones.
func (r *rollOuts) policy(pool string, policy *consolidation.Policy, now time.Time) {
	p := r.of(pool)
	if p == nil || !p.unproved() || r.dryRun {
		return
	}
	if p.err != nil {
		policy.Canary, policy.Held = "NodePool/"+pool, fmt.Sprintf("what nodes of pool %s are launched from isn't known: %v", pool, p.err)
		return
	}
	policy.Canary = "NodePool/" + pool
	if now.Before(p.rest) {
		policy.Held = "the last node of pool " + pool + " could not be launched"
		return
	}
	together := map[string]*rollOut{pool: p}
	if p.class != "" && !r.provedClass(p) {
		policy.Canary = "NodeClass/" + p.class
		for name, other := range r.pools {
			if other.class == p.class && other.unproved() {
				together[name] = other
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(together)) {
		if policy.Held = together[name].busy(name, now); policy.Held != "" {
			return
		}
	}
}

// provedClass reports whether a new node of another pool of the same class works. Then only the pool's own part of the template is unproved.
func (r *rollOuts) provedClass(p *rollOut) bool {
	for _, other := range r.pools {
		if other.class == p.class && other.key == p.key && other.Proved {
			return true
		}
	}
	return false
}

// busy returns why no node of a pool may be launched for a drifted one now; empty: one may.
func (r *rollOut) busy(pool string, now time.Time) string {
	switch {
	case now.Before(r.Until):
		return fmt.Sprintf("no node like those of pool %s is launched before %s: %s", pool, r.Until.UTC().Format(time.RFC3339), r.Why)
	case len(r.Canaries) > 0:
		return fmt.Sprintf("NodeClaim %s of pool %s is the first of its kind: the other nodes wait until a pod has been Ready there for %s", r.Canaries[0], pool, provedAfter)
	case len(r.young) > 0:
		return fmt.Sprintf("NodeClaim %s of pool %s is the first of its kind, and isn't initialized yet", r.young[0], pool)
	}
	return ""
}

// probes reports whether a node may be launched to find out whether such nodes work.
func (r *rollOuts) probes(policies map[string]consolidation.Policy) bool {
	for name := range policies {
		if policy := policies[name]; policy.Canary != "" && policy.Held == "" {
			return true
		}
	}
	return false
}

// forced returns since when a node has to be replaced because it has drifted; false: it needn't.
func (r *rollOuts) forced(m *candidate) (since time.Time, yes bool) {
	since, reason := driftOf(m.claim)
	if reason == "" || m.pool == nil || m.pool.DeletionTimestamp != nil || m.pool.Spec.Replicas != nil || paused(m) ||
		strings.HasPrefix(m.pool.Name, karpenter.ProvisionerPrefix) { // Provisioners had no drift
		return time.Time{}, false
	}
	p := r.of(m.pool.Name)
	return since, p != nil && !p.again[m.claim.UID]
}

// errTemplate: a move is given up because the template that its new nodes come from has changed since the move was planned.
var errTemplate = errors.New("what its new nodes are launched from has changed")

// stale returns why a move for drifted nodes can't be made any more: the change was taken back, or there is another one.
func (r *rollOuts) stale(mv *move) error {
	for _, src := range mv.sources {
		if _, yes := r.forced(src.candidate); !yes {
			return fmt.Errorf("node %s isn't to be replaced any more: %w", src.node.Name, errTemplate)
		}
		if p := r.of(src.pool.Name); mv.templates[src.pool.Name] != p.Template {
			return fmt.Errorf("NodePool %s, or its node class: %w", src.pool.Name, errTemplate)
		}
	}
	for _, n := range mv.New {
		if n.Pool == nil {
			continue
		}
		if p := r.of(n.Pool.Name); p == nil || mv.templates[n.Pool.Name] != p.Template {
			return fmt.Errorf("NodePool %s, or its node class: %w", n.Pool.Name, errTemplate)
		}
	}
	return nil
}
