package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// bill is the closing table.
type bill struct {
	pods     int
	bound    int
	waits    []time.Duration // from pending to bound, shortest first
	peak     []machineRow
	perHour  float64 // at the peak
	planned  float64 // $/h of the plan that knows all pods at once
	least    float64 // $/h: no packing of the pods on new nodes costs less; 0: not known
	spent    float64 // $, measured by the simulator's clock
	launches int
	empty    int // nodes without a pod at the peak
	leaked   int
}

// machineRow counts the nodes of one instance type in one zone.
type machineRow struct {
	instanceType, zone string
	nodes, pods        int
	perHour            float64
}

// machineRows groups live instances by type and zone, and counts the workloads' pods on them.
func machineRows(live []ec2.Instance, nodes []*corev1.Node, pods []*corev1.Pod) []machineRow {
	byProvider := map[string]string{}
	for _, n := range nodes {
		byProvider[n.Spec.ProviderID] = n.Name
	}
	podsOn := map[string]int{}
	for _, p := range pods {
		podsOn[p.Spec.NodeName]++
	}
	rows := map[[2]string]*machineRow{}
	for _, in := range live {
		key := [2]string{in.Type, in.Zone}
		if rows[key] == nil {
			rows[key] = &machineRow{instanceType: in.Type, zone: in.Zone}
		}
		r := rows[key]
		r.nodes++
		r.perHour += in.Price
		if name := byProvider[providerID(in)]; name != "" {
			r.pods += podsOn[name]
		}
	}
	var sorted []machineRow
	for _, r := range rows {
		sorted = append(sorted, *r)
	}
	slices.SortFunc(sorted, func(a, b machineRow) int {
		return strings.Compare(a.instanceType+"/"+a.zone, b.instanceType+"/"+b.zone)
	})
	return sorted
}

// quantile returns a quantile of sorted durations, or zero if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (b bill) write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  TYPE\tZONE\tNODES\tPODS\t$/H")
	nodes, pods := 0, 0
	for _, r := range b.peak {
		fmt.Fprintf(w, "  %s\t%s\t%d\t%d\t%.3f\n", r.instanceType, r.zone, r.nodes, r.pods, r.perHour)
		nodes, pods = nodes+r.nodes, pods+r.pods
	}
	fmt.Fprintf(w, "  all at the peak\t\t%d\t%d\t%.3f\n", nodes, pods, b.perHour)
	fmt.Fprintf(w, "  one plan that knows all pods at once\t\t\t\t%.3f\n", b.planned)
	if b.least > 0 {
		fmt.Fprintf(w, "  lower bound: no nodes for these pods cost less\t\t\t\t%.3f\n", b.least)
	}
	w.Flush()
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  pods that were bound\t%d of %d\n", b.bound, b.pods)
	fmt.Fprintf(w, "  pending to bound\tp50 %s, p99 %s\n", round(quantile(b.waits, 0.5)), round(quantile(b.waits, 0.99)))
	fmt.Fprintf(w, "  instances launched\t%d\n", b.launches)
	fmt.Fprintf(w, "  nodes without a pod at the peak\t%d\n", b.empty)
	fmt.Fprintf(w, "  spent\t$%.4f\n", b.spent)
	fmt.Fprintf(w, "  leaked instances\t%d\n", b.leaked)
	w.Flush()
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
