package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
)

// maxMessage limits the length of a refusal's message in bytes, and maxReason the length of one pool's part of it. maxPaused limits the text about a
// pool's paused launches, which is longer: it says since when, what lifts the pause, for what, and the cause.
const (
	maxMessage = 900
	maxReason  = 250
	maxPaused  = 420
)

// refusal returns why pods of a batch are not in the plan.
func (r *run) refusal(u *podBatch, rest []holder) capacity.Refusal {
	out := capacity.Refusal{Class: u.Class}
	for _, h := range rest {
		if h.owner == "" {
			out.Pods = append(out.Pods, h.pod)
		}
	}
	var parts []string
	if u.gang != nil && r.excluded[u.gang.Key] {
		out.Retryable = true
		parts = append(parts, fmt.Sprintf("not all of the %d pods that its group needs can be placed", u.gang.Missing))
	}
	var filtered []string // pools in which the real filters refuse every candidate
	var first *capacity.Forbidden
	at, elsewhere := len(parts), false
	for _, p := range r.catalog.Pools {
		if !p.Serves(u.Scheduler()) {
			continue // for other schedulers only
		}
		reason, retry, by := r.verdict(u, p)
		most := maxReason
		if by != nil && by.Paused {
			reason, retry, by, most = by.Reason, true, nil, maxPaused
		}
		if p.Paused != "" { // whatever the reason, the pause may have left fewer offerings than usual
			reason, retry, by, most = shorten(p.Paused, maxPaused)+"; other offerings: "+reason, true, nil, maxPaused+100
		}
		reason = shorten(reason, most)
		out.Reasons = append(out.Reasons, capacity.PoolReason{Pool: p.Name, Reason: reason})
		out.Retryable = out.Retryable || retry
		if by != nil {
			filtered = append(filtered, p.Name)
			first = cmp.Or(first, by)
			continue
		}
		elsewhere = elsewhere || retry
		parts = append(parts, p.Name+": "+reason)
	}
	if first != nil {
		parts = slices.Insert(parts, at, r.byFilters(u, first, filtered, !elsewhere))
	}
	switch {
	case len(r.catalog.Pools) == 0:
		parts = append(parts, "there is no node pool")
	case len(out.Reasons) == 0:
		parts = append(parts, fmt.Sprintf("none of %d node pools is for pods of scheduler %s", len(r.catalog.Pools), u.Scheduler()))
	}
	out.Message = shorten(strings.Join(parts, "; "), maxMessage)
	return out
}

// shorten cuts text at the end of a word.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := strings.LastIndexByte(s[:most-3], ' ')
	if cut < most/2 {
		cut = most - 3
	}
	return strings.ToValidUTF8(s[:cut], "") + " ..."
}

// reason returns the first constraint that no offering of the pool meets, and whether that may pass by itself.
func (r *run) reason(u *podBatch, p *catalog.PoolOffers) (reason string, retry bool) {
	reason, retry, _ = r.verdict(u, p)
	return reason, retry
}

// verdict returns the first constraint that no offering of the pool meets, and whether that may pass by itself (retry). If the scheduler's filters
// refuse all candidates that meet the other constraints, by is one of these refusals.
func (r *run) verdict(u *podBatch, p *catalog.PoolOffers) (reason string, retry bool, by *capacity.Forbidden) {
	if p.Unready != "" {
		return p.Unready, true, nil
	}
	if p.Replicas != nil {
		return fmt.Sprintf("it is a static pool of %d nodes, and none are launched for pods", *p.Replicas), false, nil
	}
	a := catalog.Asks{Terms: u.Terms, Tolerations: u.Tolerations, Preferred: true}
	if t := a.Tolerates(p.Taints); t != nil {
		return fmt.Sprintf("taint %s is not tolerated", taintText(t)), false, nil
	}
	if len(p.Types) == 0 {
		return "the region has no instance type that its node class's images and zones allow", false, nil
	}
	if len(p.Allowed) == 0 { // types that the class can't run, such as those with GPUs where no image has their drivers, aren't among Types
		return fmt.Sprintf("its requirements exclude all %d instance types that its node class's images and zones allow", len(p.Types)), false, nil
	}
	var candidates []int
	for _, v := range p.LabelChoices {
		for b := v.First; b < v.Last; b++ {
			candidates = append(candidates, b)
		}
	}
	if len(candidates) == 0 {
		return fmt.Sprintf("none of %d instance types is available in the zones and capacity types it allows", len(p.Allowed)), true, nil
	}
	if candidates, reason = r.byTerms(u, p, candidates); len(candidates) == 0 {
		return reason, false, nil
	}
	if why, ok := u.banned[p]; ok {
		return why, true, nil // to be tried again without a change of pods or pools: minValues may be met when offerings are available again
	}
	if candidates, reason = r.byRoom(u, candidates); len(candidates) == 0 {
		return reason, false, nil
	}
	if candidates, reason, by = r.byCandidates(u, p, candidates); len(candidates) == 0 {
		// A volume, a claim or another pod may change the filter's answer, and no event of a pool reports that.
		return reason, by != nil, by
	}
	if reason = r.byLimits(p, candidates); reason != "" {
		return reason, true, nil
	}
	return r.byTopology(u, candidates), true, nil
}

func taintText(t *corev1.Taint) string {
	if t.Value != "" {
		return t.Key + "=" + t.Value + ":" + string(t.Effect)
	}
	return t.Key + ":" + string(t.Effect)
}

// byTerms keeps the candidates that match a node term. The reason is about the term of which the most requirements can be met.
func (r *run) byTerms(u *podBatch, p *catalog.PoolOffers, candidates []int) (left []int, reason string) {
	if len(u.Terms) == 0 {
		return candidates, ""
	}
	furthest := -1
	seen := map[int]bool{}
	for _, term := range u.Terms {
		rest := candidates
		for i, req := range term.Sorted() {
			var next []int
			for _, b := range rest {
				if (capacity.Requirements{req.Key: req}).MatchFunc(func(key string) (string, bool) { return r.catalog.Label(b, key) }) {
					next = append(next, b)
				}
			}
			if len(next) == 0 && i > furthest {
				furthest, reason = i, r.termReason(p, req, rest, i > 0)
			}
			if rest = next; len(rest) == 0 {
				break // nothing is left that could lack another label
			}
		}
		for _, b := range rest {
			if !seen[b] {
				seen[b] = true
				left = append(left, b)
			}
		}
	}
	if len(u.Terms) > 1 {
		reason += fmt.Sprintf(" (best of %d alternatives)", len(u.Terms))
	}
	return left, reason
}

func (r *run) termReason(p *catalog.PoolOffers, req capacity.Requirement, candidates []int, more bool) string {
	if pool, one := req.Single(); one && req.Key == capacity.LabelNodePool {
		return "the pod asks for pool " + pool
	}
	known := false
	for _, b := range candidates {
		_, ok := r.catalog.Label(b, req.Key)
		known = known || ok
	}
	if own, is := p.Requirements[req.Key]; is && !known && !p.TypeLabel(req.Key) && !capacity.OfferLabel(req.Key) {
		return fmt.Sprintf("the pod asks for %s, which the requirement of the pool excludes: %s", req, own)
	} else if !known && !p.TypeLabel(req.Key) && !capacity.OfferLabel(req.Key) {
		return fmt.Sprintf("the pod asks for %s, a label that the pool's nodes don't have%s", req, suggestLabel(req.Key, r.catalog.Keys(p, candidates)))
	}
	left := ""
	if more {
		left = " left"
	}
	there := ""
	if req.Key == corev1.LabelTopologyZone {
		there = r.zonesOf(candidates)
	}
	return fmt.Sprintf("none of %d instance types%s has %s%s", r.countTypes(candidates), left, req, there)
}

// zonesOf names the zones of candidates: a zone that there isn't is often a mistake in its name.
func (r *run) zonesOf(candidates []int) string {
	zones := map[string]bool{}
	for _, b := range candidates {
		if zone, ok := r.catalog.Label(b, corev1.LabelTopologyZone); ok {
			zones[zone] = true
		}
	}
	if len(zones) == 0 {
		return ""
	}
	return " (possible: " + strings.Join(slices.Sorted(maps.Keys(zones)), ", ") + ")"
}

func (r *run) countTypes(candidates []int) int {
	types := map[*capacity.InstanceType]bool{}
	for _, b := range candidates {
		types[r.catalog.TypeOf(b)] = true
	}
	return len(types)
}

// byCandidates keeps the candidates that neither host ports of DaemonSets' pods nor earlier refusals (Options.Forbidden) rule out. by is one of
// these refusals; nil: only ports rule candidates out.
func (r *run) byCandidates(u *podBatch, p *catalog.PoolOffers, candidates []int) (left []int, reason string, by *capacity.Forbidden) {
	taken := r.daemons.PortsTaken(u.HostPorts, len(r.catalog.Candidates))
	refused := r.forbidden[u.Key][p.Name]
	for _, b := range candidates {
		if taken.Has(b) {
			reason = "the host port that the pod requests is taken by a DaemonSet's pod"
			continue
		}
		if i := slices.IndexFunc(refused, func(f *capacity.Forbidden) bool { return f.RulesOut(&r.catalog.Candidates[b].Offer) }); i >= 0 {
			by = refused[i]
			continue
		}
		left = append(left, b)
	}
	if by != nil {
		reason = "refused by a filter of the scheduler: " + by.Text()
	}
	return left, reason, by
}

// byRoom keeps the candidates with capacity for one pod.
func (r *run) byRoom(u *podBatch, candidates []int) (left []int, reason string) {
	most := make([]int64, r.dims.Len())
	for _, b := range candidates {
		room := r.catalog.RoomOf(b)
		for d := range most {
			most[d] = max(most[d], room[d])
		}
		if packing.Fits(room, u.need, 1) > 0 {
			left = append(left, b)
		}
	}
	var parts []string
	for d, n := range u.need {
		if n > most[d] {
			parts = append(parts, fmt.Sprintf("%s requested, %s at most", r.dims.Text(d, n), r.dims.AmountLike(d, most[d], n)))
		}
	}
	if len(parts) == 0 {
		for d, n := range u.need {
			if n > 0 && r.dims.Name(d) != string(corev1.ResourcePods) {
				parts = append(parts, r.dims.Text(d, n))
			}
		}
		parts = []string{strings.Join(parts, ", ") + " together"}
	}
	return left, fmt.Sprintf("none of %d instance types has capacity for it: %s", r.countTypes(candidates), strings.Join(parts, ", "))
}

// byLimits returns which limit, of the pool or of all pools, every candidate would exceed, or "".
func (r *run) byLimits(p *catalog.PoolOffers, candidates []int) string {
	reason := ""
	for _, b := range candidates {
		over := ""
		for _, use := range r.catalog.Uses(b) {
			if use.Amount > r.budgets[use.Budget] {
				over = r.limitReason(p, use.Budget)
			}
		}
		if over == "" {
			return ""
		}
		if reason == "" {
			reason = over
		}
	}
	return reason
}

func (r *run) limitReason(p *catalog.PoolOffers, budget int) string {
	for name, b := range p.LimitBudgets {
		if b == budget {
			limit := capacity.Resources{name: p.Limits[name]}.List()[name]
			left := capacity.Resources{name: max(0, r.budgets[b])}.List()[name]
			return fmt.Sprintf("limit of %s %s reached: %s left", name, limit.String(), left.String())
		}
	}
	if reason := r.totalReason(budget); reason != "" {
		return reason
	}
	return "the capacity reservation is used up"
}

// byTopology returns the constraint among pods that none of the candidates satisfies, as counted at the end of the plan.
func (r *run) byTopology(u *podBatch, candidates []int) string {
	for i := range u.Owned {
		o := &u.Owned[i]
		if !o.Hard() {
			continue
		}
		if !o.Group.Host && slices.ContainsFunc(candidates, func(b int) bool { return u.Satisfies(o, r.siteBought(b)) }) {
			continue
		}
		if !o.Group.Host && !slices.ContainsFunc(candidates, func(b int) bool { _, ok := r.catalog.Label(b, o.Group.Key); return ok }) {
			switch o.Effect {
			case topology.Spreads:
				return fmt.Sprintf("topology spread over %s needs a label that none of the pool's possible nodes has", o.Group.Key)
			case topology.Attracts:
				return fmt.Sprintf("pod affinity over %s needs a label that none of the pool's possible nodes has", o.Group.Key)
			}
		}
		if why := o.Kind.Refusal(o, &u.Batch); why != "" {
			return why
		}
	}
	for _, g := range u.Blocked {
		if !g.Host && !u.Owns(g) {
			return fmt.Sprintf("anti-affinity of other pods over %s excludes every domain", g.Key)
		}
	}
	return noReason
}

// noReason is used when each single constraint can be met, but not all of them together.
const noReason = "its constraints on other pods can't all be met"
