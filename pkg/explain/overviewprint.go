package explain

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Write writes the overview for people: money first, then what waits, then the nodes.
func (o *Overview) Write(w io.Writer) error {
	var b strings.Builder
	for _, line := range o.Money() {
		b.WriteString(line + "\n")
	}
	for _, why := range o.HeldBack {
		fmt.Fprintf(&b, "Launches are held back: %s\n", why)
	}
	if rows := o.WaitingRows(); len(rows) > 1 {
		b.WriteByte('\n')
		table(&b, rows)
	}
	if rows := o.NodeRows(); len(rows) > 1 {
		b.WriteByte('\n')
		table(&b, rows)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func table(b *strings.Builder, rows [][]string) {
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(t, strings.Join(row, "\t")) // a strings.Builder refuses nothing
	}
	_ = t.Flush() // likewise
}

// Money returns what the nodes cost beside the bound, and how many pods run and wait.
func (o *Overview) Money() []string {
	line := fmt.Sprintf("%s: %s/h at list price", plural(len(o.Nodes), "node"), dollars(o.PerHour))
	if o.Unpriced > 0 {
		line += fmt.Sprintf(" (the prices of %d are unknown)", o.Unpriced)
	}
	out := []string{line}
	if o.Bound > 0 {
		out = append(out, fmt.Sprintf("%s of pools: %s/h. Their pods cost at least %s/h on new nodes, however they are packed: this is %.0f %% above it",
			plural(o.Managed, "node"), dollars(o.ManagedPerHour), dollars(o.Bound), 100*max(o.ManagedPerHour/o.Bound-1, 0)))
	}
	waiting := 0
	for _, w := range o.Waiting {
		waiting += w.Pods
	}
	return append(out, fmt.Sprintf("%s with a node, %d without", plural(o.Running, "pod"), waiting))
}

// WaitingRows returns the table of pods that wait, with its heading.
func (o *Overview) WaitingRows() [][]string {
	rows := [][]string{{"WAITING", "OLDEST", "FOR EXAMPLE", "REASON"}}
	for _, w := range o.Waiting {
		rows = append(rows, []string{fmt.Sprint(w.Pods), Age(w.Oldest), w.First, w.Reason})
	}
	return rows
}

// NodeRows returns the table of nodes, with its heading. Amounts are what is requested, reserved for pods that are planned there, and free.
func (o *Overview) NodeRows() [][]string {
	rows := [][]string{{"NODE", "POOL", "TYPE", "CAPACITY", "ZONE", "STATE", "AGE", "$/H", "PODS", "CPU", "RESERVED", "FREE", "MEMORY", "RESERVED", "FREE"}}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		price := "?"
		if n.Priced {
			price = fmt.Sprintf("%.4f", n.Price)
		}
		age := "-"
		if !n.Created.IsZero() {
			age = Age(n.Age)
		}
		row := []string{n.Name, orDash(n.Pool), orDash(n.Type), orDash(n.CapacityType), orDash(n.Zone), n.State, age, price, fmt.Sprint(n.Pods)}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			free := *resource.NewMilliQuantity(n.Free(name), resource.DecimalSI)
			row = append(row, Amount(name, n.Requested[name]), Amount(name, n.Reserved[name]), Amount(name, free))
		}
		rows = append(rows, row)
	}
	return rows
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
