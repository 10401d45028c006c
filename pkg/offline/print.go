package offline

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// hoursPerMonth is the number that AWS's own calculators use.
const hoursPerMonth = 730

// Table writes the plan for people: a line for each kind of node or, if wide, for each node; the pods on existing nodes; the refused
// pods with the reasons; the total.
func (r *Report) Table(w io.Writer, wide bool) error {
	p := &printer{w: w}
	switch {
	case len(r.Nodes) == 0:
	case wide:
		p.nodes(r)
	default:
		p.kinds(r)
	}
	p.existing(r)
	p.refused(r)
	p.sum(r, wide)
	return p.err
}

// Explain writes why the pod is placed where it is.
func (r *Report) Explain(w io.Writer) error {
	p := &printer{w: w}
	p.printf("Pod %s/%s:\n", r.Explanation.Namespace, r.Explanation.Name)
	for _, line := range r.Explanation.Lines {
		p.printf("- %s\n", line)
	}
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// table writes rows in columns. The first row is the heading.
func (p *printer) table(rows [][]string) {
	t := tabwriter.NewWriter(p.w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t")); err != nil && p.err == nil {
			p.err = err
		}
	}
	if err := t.Flush(); err != nil && p.err == nil {
		p.err = err
	}
	p.printf("\n")
}

// kinds writes one row for all nodes with the same pool, instance type, zone and capacity type.
func (p *printer) kinds(r *Report) {
	type kind struct{ pool, instanceType, zone, capacityType, commitment string }
	type sum struct {
		nodes, pods        int
		price, cpu, memory float64
	}
	sums := map[kind]*sum{}
	var order []kind
	for i := range r.Nodes {
		n := &r.Nodes[i]
		k := kind{n.Pool, n.InstanceType, zoneOf(n), n.CapacityType, n.Commitment}
		s := sums[k]
		if s == nil {
			s = &sum{}
			sums[k] = s
			order = append(order, k)
		}
		s.nodes++
		s.pods += len(n.Pods)
		s.price += n.PricePerHour
		s.cpu += n.CPUUse
		s.memory += n.MemoryUse
	}
	slices.SortStableFunc(order, func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(sums[b].price, sums[a].price), cmp.Compare(a.instanceType, b.instanceType), cmp.Compare(a.zone, b.zone), cmp.Compare(a.commitment, b.commitment))
	})
	rows := [][]string{{"POOL", "TYPE", "ZONE", "CAPACITY", "NODES", "PODS", "$/H", "CPU", "MEMORY"}}
	for _, k := range order {
		s := sums[k]
		rows = append(rows, []string{k.pool, k.instanceType, k.zone, capacityOf(k.capacityType, k.commitment), fmt.Sprint(s.nodes), fmt.Sprint(s.pods), dollars(s.price),
			percent(s.cpu / float64(s.nodes)), percent(s.memory / float64(s.nodes))})
	}
	p.table(rows)
}

// capacityOf returns a capacity type, with the commitment that pays for it.
func capacityOf(capacityType, commitment string) string {
	if commitment == "" {
		return capacityType
	}
	return capacityType + " (" + commitment + ")"
}

// nodes writes one row for each node.
func (p *printer) nodes(r *Report) {
	rows := [][]string{{"POOL", "TYPE", "ZONES", "CAPACITY", "$/H", "CPU", "MEMORY", "OR ELSE", "PODS"}}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		rows = append(rows, []string{n.Pool, n.InstanceType, strings.Join(n.Zones, ","), capacityOf(n.CapacityType, n.Commitment), dollars(n.PricePerHour), percent(n.CPUUse), percent(n.MemoryUse),
			others(n.Alternatives), workloads(n.Pods, n.classes)})
	}
	p.table(rows)
}

// others names the next cheapest types and how many more there are.
func others(all []Alternative) string {
	const shown = 2
	var out []string
	for _, a := range all[:min(shown, len(all))] {
		out = append(out, a.InstanceType)
	}
	if more := len(all) - shown; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return cmp.Or(strings.Join(out, ", "), "none")
}

// workloads counts pods by workload.
func workloads(pods []PodName, classes []*capacity.Class) string {
	counts := map[string]int{}
	for i, pod := range pods {
		counts[classes[i].Workload(capacity.PodRef{Namespace: pod.Namespace, Name: pod.Name})]++
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name]; n > 1 {
			name = fmt.Sprintf("%s (%d)", name, n)
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

func (p *printer) existing(r *Report) {
	if len(r.Existing) == 0 {
		return
	}
	rows := [][]string{{"EXISTING NODE", "PODS"}}
	for _, n := range r.Existing {
		rows = append(rows, []string{n.Name, workloads(n.Pods, n.classes)})
	}
	p.table(rows)
}

// refused writes one row for all pods that are refused for the same reason.
func (p *printer) refused(r *Report) {
	if len(r.Refused) == 0 {
		return
	}
	first, count := map[string]string{}, map[string]int{}
	var order []string
	for _, one := range r.Refused {
		if count[one.Reason]++; count[one.Reason] == 1 {
			first[one.Reason] = one.Namespace + "/" + one.Name
			order = append(order, one.Reason)
		}
	}
	rows := [][]string{{"REFUSED", "REASON"}}
	for _, reason := range order {
		who := first[reason]
		if more := count[reason] - 1; more > 0 {
			who += fmt.Sprintf(" and %d more", more)
		}
		rows = append(rows, []string{who, reason})
	}
	p.table(rows)
}

func (p *printer) sum(r *Report, wide bool) {
	placed := 0
	for i := range r.Nodes {
		placed += len(r.Nodes[i].Pods)
	}
	there := 0
	for i := range r.Existing {
		there += len(r.Existing[i].Pods)
	}
	p.printf("%s to launch for %s: $%s/h, $%.0f a month", plural(len(r.Nodes), "node"), plural(placed, "pod"), dollars(r.TotalPerHour), r.TotalPerHour*hoursPerMonth)
	if there > 0 {
		p.printf("; %s on existing nodes", plural(there, "pod"))
	}
	if n := len(r.Refused); n > 0 {
		p.printf("; %s refused", plural(n, "pod"))
	}
	p.printf("\n")
	p.commitments(r)
	p.without(r)
	for _, b := range r.ZoneBalance {
		counts := capacity.ZoneCounts{"": b.Unknown}
		maps.Copy(counts, b.Nodes)
		p.printf("Zones of pool %s, with these nodes: %s (%s)\n", b.Pool, counts.Text(), capacity.BalancedText(b.Tolerance))
	}
	for _, l := range r.Limits {
		sum := l.Used.DeepCopy()
		sum.Add(l.Planned)
		p.printf("Limit of all pools: %s %s of %s, nodes to launch included (limits of ProvisionArgs)\n", l.Resource, sum.String(), l.Limit.String())
	}
	if r.Reserved > 0 {
		p.printf("%s for instances that are being launched already\n", waitFor(r.Reserved))
	}
	for _, e := range r.Elsewhere {
		p.printf("%s for scheduler %s, for which nothing is launched\n", waitFor(e.Pods), e.Scheduler)
	}
	if r.LowerBoundPerHour > 0 {
		format := "No plan for these pods costs less than $%s/h (linear program): this one is at most %.1f %% above that\n"
		if r.nodesExist {
			format = "No new nodes for the pods that get one cost less than $%s/h (linear program): these are at most %.1f %% above that; with other pods on existing nodes, less may be enough\n"
		}
		p.printf(format, dollars(r.LowerBoundPerHour), 100*(r.TotalPerHour/r.LowerBoundPerHour-1))
	}
	if r.Verified {
		p.printf("Planned in %.0f ms, verified by the scheduler's filters in %.0f ms\n", r.PlanMillis, r.VerifyMillis)
	} else {
		p.printf("Planned in %.0f ms, not verified\n", r.PlanMillis)
	}
	if wide {
		for _, what := range r.Assumed {
			p.printf("Assumed: %s\n", what)
		}
	}
}

func waitFor(n int) string {
	if n == 1 {
		return "1 more pod waits"
	}
	return fmt.Sprintf("%d more pods wait", n)
}

// commitments writes how much of each commitment is used, and what the plan costs beside.
func (p *printer) commitments(r *Report) {
	for _, m := range r.Commitments {
		p.printf("Commitment %s: $%.2f/h of $%.2f/h used before, $%.2f/h by this plan\n", m.Name, m.UsedPerHour, m.DollarsPerHour, m.PlannedPerHour)
	}
	if beyond := r.BeyondCommitmentsPerHour; beyond != nil {
		p.printf("Beyond commitments the plan costs $%s/h, $%.0f a month\n", dollars(*beyond), *beyond*hoursPerMonth)
	}
}

// without writes what the nodes that were taken away cost, beside what is bought in their place. Where a pod fits nowhere, or a price isn't known, nothing
// is said about what is saved.
func (p *printer) without(r *Report) {
	w := r.Without
	if w == nil {
		return
	}
	moved, others := w.displaced()
	bought := "no node has to be bought"
	if w.InsteadPerHour != 0 {
		bought = fmt.Sprintf("nodes for $%s/h are bought instead", dollars(w.InsteadPerHour))
	}
	if w.InsteadPerHour < 0 {
		bought = fmt.Sprintf("nodes for $%s/h less are bought", dollars(-w.InsteadPerHour))
	}
	elsewhere := plural(w.Moved, "pod") + " would have to run elsewhere"
	cost := "at $" + dollars(w.PerHour) + "/h"
	switch {
	case w.Unpriced > 0 && w.Unpriced < len(w.Nodes):
		cost += fmt.Sprintf(" and %d whose %s known", w.Unpriced, agrees(w.Unpriced, "price isn't", "prices aren't"))
	case w.Unpriced > 0:
		cost = fmt.Sprintf("whose %s known", agrees(w.Unpriced, "price isn't", "prices aren't"))
	}
	p.printf("Without %s, %s: %s", strings.Join(w.Nodes, ", "), cost, elsewhere)
	switch {
	case len(w.Refused) > 0:
		if len(moved) > 0 {
			p.printf("; %d of them %s: %s", len(moved), agrees(len(moved), "fits nowhere", "fit nowhere"), names(moved))
		}
		if len(others) > 0 {
			p.printf("; %s that would have a node now %s: %s", plural(len(others), "pod"), agrees(len(others), "fits nowhere then", "fit nowhere then"), names(others))
		}
	case w.Unpriced > 0:
		p.printf(", and %s", bought)
	default:
		p.printf(", %s, and the cluster costs %s", bought, difference(w.PerHour-w.InsteadPerHour))
	}
	if len(w.Lost) > 0 {
		p.printf("; %s without a controller would be lost: %s", plural(len(w.Lost), "pod"), names(w.Lost))
	}
	p.printf("\n")
	for _, why := range w.Against {
		p.printf("Against it: %s\n", why)
	}
}

// difference says in words how much less the cluster costs, in $/h.
func difference(saved float64) string {
	switch {
	case dollars(math.Abs(saved)) == dollars(0):
		return "as much as now"
	case saved > 0:
		return "$" + dollars(saved) + "/h less"
	}
	return "$" + dollars(-saved) + "/h more"
}

// displaced returns the pods that fit nowhere because the nodes are gone: those that ran there, and the others.
func (w *Without) displaced() (moved, others []PodName) {
	for _, d := range w.Refused {
		if d.Moved {
			moved = append(moved, d.PodName)
		} else {
			others = append(others, d.PodName)
		}
	}
	return moved, others
}

func names(of []PodName) string {
	var out []string
	for _, pod := range of {
		out = append(out, pod.Namespace+"/"+pod.Name)
	}
	return strings.Join(out, ", ")
}

// agrees returns the form of a verb for a number.
func agrees(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// zoneOf returns the node's zone, or how many zones it may be launched in.
func zoneOf(n *Node) string {
	if len(n.Zones) == 1 {
		return n.Zone
	}
	return fmt.Sprintf("any of %d", len(n.Zones))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func dollars(v float64) string { return fmt.Sprintf("%.4f", v) }

func percent(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
