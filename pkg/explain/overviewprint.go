package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Write writes the overview for people: money first, then what waits, then the nodes.
func (o *Overview) Write(w io.Writer) error { return o.WriteWithin(w, 0) }

// WriteWithin is Write for so many columns; 0: any number. What is too wide is wrapped, and columns of the table of nodes are left out: what is free stays
// longest.
func (o *Overview) WriteWithin(w io.Writer, width int) error {
	var b strings.Builder
	for _, line := range o.Money() {
		b.WriteString(wrapped(line, width) + "\n")
	}
	if len(o.Limits) > 0 {
		b.WriteString(wrapped("Limit of all pools: "+strings.Join(o.Limits, ", ")+" (limits of ProvisionArgs)", width) + "\n")
	}
	if len(o.Commitments) > 0 {
		b.WriteString(wrapped("Commitments used: "+strings.Join(o.Commitments, ", ")+" (commitments of ProvisionArgs)", width) + "\n")
	}
	for _, why := range o.HeldBack {
		b.WriteString(wrapped("Launches are held back: "+why, width) + "\n")
	}
	if rows := o.WaitingRows(); len(rows) > 1 {
		b.WriteByte('\n')
		table(&b, rows)
	}
	if rows := o.NodeRows(); len(rows) > 1 {
		b.WriteByte('\n')
		table(&b, within(rows, width))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrapped breaks a line at blanks.
func wrapped(line string, width int) string {
	if width <= 0 {
		return line
	}
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(line) {
		n := utf8.RuneCountInString(word)
		switch {
		case i > 0 && at+1+n > width:
			b.WriteString("\n  ")
			at = 2
		case i > 0:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// tableGap is what table puts between two columns.
const tableGap = 3

// lessNeeded are columns of NodeRows in the order in which a narrow table does without them, by their headings from the left.
// Columns of one heading go together: one RESERVED that is left would seem to be that of the other resource.
var lessNeeded = []string{"ZONE", "RESERVED", "CAPACITY", "AGE", "POOL", "PODS", "TYPE", "STATE"}

// within returns the table with shorter names and fewer columns, until it has the width.
func within(rows [][]string, width int) [][]string {
	wide := func() (sum int) {
		for col := range rows[0] {
			most := 0
			for _, row := range rows {
				most = max(most, utf8.RuneCountInString(row[col]))
			}
			sum += most + tableGap
		}
		return sum - tableGap
	}
	if width <= 0 || wide() <= width {
		return rows
	}
	for _, row := range rows { // a node is often called after its private DNS name
		row[0], _, _ = strings.Cut(row[0], ".")
	}
	for _, heading := range lessNeeded {
		if wide() <= width {
			break
		}
		for col := slices.Index(rows[0], heading); col >= 0; col = slices.Index(rows[0], heading) {
			for i := range rows {
				rows[i] = slices.Delete(rows[i], col, col+1)
			}
		}
	}
	return rows
}

func table(b *strings.Builder, rows [][]string) {
	t := tabwriter.NewWriter(b, 0, 0, tableGap, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(t, strings.Join(row, "\t")) // a strings.Builder refuses nothing
	}
	_ = t.Flush() // likewise
}

// Money returns what the nodes cost beside the bound, and how many pods run and wait.
func (o *Overview) Money() []string {
	launching := 0
	for i := range o.Nodes {
		if o.Nodes[i].State == stateLaunching {
			launching++
		}
	}
	line := fmt.Sprintf("%s: %s/h at list price", withClaims(len(o.Nodes)-launching, launching, ""), dollars(o.PerHour))
	if o.Unpriced > 0 {
		line += fmt.Sprintf(" (the prices of %d are unknown)", o.Unpriced)
	}
	out := []string{line}
	switch {
	case o.Bound > 0:
		out = append(out, o.Least.text())
	case o.NoBound != "":
		out = append(out, "What the pods would cost at least isn't known, because "+o.NoBound)
	}
	waiting := 0
	for _, w := range o.Waiting {
		waiting += w.Pods
	}
	pods := fmt.Sprintf("%s with a node, %d without", plural(o.Running, "pod"), waiting)
	if o.NoSuchNode > 0 {
		pods += fmt.Sprintf(", %d on nodes that aren't there", o.NoSuchNode)
	}
	return append(out, pods)
}

// text says what the pods cost at least.
func (l *Least) text() string {
	out := fmt.Sprintf("%s: %s/h. Their pods cost at least %s/h on new nodes, however they are packed", withClaims(l.Managed-l.ManagedClaims, l.ManagedClaims, " of pools"), dollars(l.ManagedPerHour), dollars(l.Bound))
	if !l.BoundAt.IsZero() {
		out = "At " + l.BoundAt.Format(time.TimeOnly) + ", " + out
	}
	if l.BoundOnSpot {
		out += ", on spot where pools allow it"
	}
	if above, ok := l.Above(); ok {
		out += fmt.Sprintf(": this is %.0f %% above it", above)
	} else {
		out += ", without " + l.NotCounted
	}
	return out + ". Disruption budgets and PodDisruptionBudgets, which may forbid moves, are not considered"
}

// withClaims counts nodes, and NodeClaims that have none yet.
func withClaims(nodes, claims int, of string) string {
	out := plural(nodes, "node") + of
	if claims > 0 {
		out += fmt.Sprintf(" and %s without one", plural(claims, "NodeClaim"))
	}
	return out
}

// WaitingRows returns the table of pods that wait, with its heading.
func (o *Overview) WaitingRows() [][]string {
	rows := [][]string{{"WAITING", "OLDEST", "FOR EXAMPLE", "REASON"}}
	for _, w := range o.Waiting {
		rows = append(rows, []string{fmt.Sprint(w.Pods), Age(w.Oldest), w.First, w.Reason})
	}
	return rows
}

// NodeRows returns the table of nodes, with its heading. Amounts are what is requested, reserved for pods that are planned there or kept for DaemonSets, and
// free.
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
		reserved := n.Reserved.DeepCopy()
		Add(reserved, n.Kept)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			free := "-" // not known before the instance type is
			if _, known := n.Allocatable[name]; known {
				free = Amount(name, *resource.NewMilliQuantity(n.Free(name), resource.DecimalSI))
			}
			row = append(row, Amount(name, n.Requested[name]), Amount(name, reserved[name]), free)
		}
		rows = append(rows, row)
	}
	return rows
}

// few names the first of many.
func few(all []string) string {
	const shown = 5
	if more := len(all) - shown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), more)
	}
	return strings.Join(all, ", ")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
