package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/record"
)

// Evidence is everything that is known about a world after its run.
type Evidence struct {
	// Events of Pods, Nodes, NodeClaims, NodePools, DaemonSets, Jobs, and the objects that volumes need.
	Events []record.Event
	// Instances are all instances ever launched.
	Instances []ec2.Instance
	Region    string
	Zones     []string
	// Limits are the instance types that may have run out of capacity.
	Limits map[string]bool
	// Overhead is how much of a machine's memory the scheduler may take to be the system's before it has seen one.
	Overhead kubelet.Overhead
	// Misfits are applications that no instance type can run.
	Misfits map[string]bool
	// Gangs is how many pods of a group must run for any of them to run, by the group's name.
	Gangs map[string]int
	// Unsettled is what was still missing when the world's time was over.
	Unsettled string
	// Spare is how many instances may have been launched for no pod, because a CapacityBuffer asked for them. Lacking is what the buffer lacked in
	// the end.
	Spare   int
	Lacking string
	// Consolidation and Repair are what happened after that; nil: nothing.
	Consolidation *Consolidation
	Repair        *Repair
}

// Report is the result. Its lists hold the faults, one line each.
type Report struct {
	// Pods counts those that were bound, without DaemonSet pods; Planned those of them for which a NodeClaim has, or had, a slot.
	// AsPlanned, Replanned, Displaced and Short are parts of Planned; Joined, with slots recorded after the NodeClaim was created, is a part
	// of AsPlanned.
	Pods, Planned, AsPlanned, Joined, Replanned, Displaced, Short int
	// Daemons counts bound DaemonSet pods, Claims the NodeClaims created, Nodes the Nodes made from them, GivenBack those of them that
	// were deleted before any pod was bound to them, TooSmall those that have too little memory for the pods that they were launched for. Binds counts the checked binds, Late those of them that are only right in another
	// order than that of the writes.
	Daemons, Claims, Nodes, GivenBack, TooSmall, Binds, Late int
	// Refused counts pods that were not bound and that nothing could host.
	Refused int

	// Ended counts nodes that ended to save money, Evicted the pods that were evicted from them.
	Ended, Evicted int

	// Off lists planned pods that are not on a slot. The other lists are explained in the package comment.
	Off      []string
	Empty    []string
	Idle     []string
	Beyond   []string
	Wrong    []string
	Stranded []string
	// Disrupted lists what was wrong when nodes ended.
	Disrupted []string
	// Odd lists other faults.
	Odd []string
	// Unsettled is as in Evidence; Stranded lists the pods that matter in it.
	Unsettled string
}

// Judge checks the evidence. An error means that the evidence can't be read.
func Judge(ctx context.Context, e *Evidence) (*Report, error) {
	h, err := read(e.Events)
	if err != nil {
		return nil, err
	}
	r := &Report{Unsettled: e.Unsettled}
	h.judgePlacements(r)
	h.judgeNodes(r, e)
	h.judgeGangs(r, e.Gangs)
	if err := h.judgeBinds(ctx, r); err != nil {
		return nil, err
	}
	if err := h.judgeUnbound(ctx, r, e); err != nil {
		return nil, err
	}
	if e.Consolidation != nil {
		if err := JudgeConsolidation(ctx, e.Consolidation, r); err != nil {
			return nil, err
		}
	}
	if e.Repair != nil {
		e.Repair.judge(r)
	}
	if e.Lacking != "" {
		r.Odd = append(r.Odd, e.Lacking)
	}
	return r, nil
}

// Fidelity returns the share of planned pods that are as planned, without those that were replanned, displaced or short of memory; 1 if there are none.
func (r *Report) Fidelity() float64 {
	of := r.Planned - r.Replanned - r.Displaced - r.Short
	if of == 0 {
		return 1
	}
	return float64(r.AsPlanned) / float64(of)
}

// Problems returns all faults but Off, which is judged as a share.
func (r *Report) Problems() []string {
	var out []string
	for _, p := range []struct {
		what  string
		lines []string
	}{
		{"empty node", r.Empty}, {"idle node", r.Idle}, {"node beyond the plan", r.Beyond}, {"wrong bind", r.Wrong}, {"stranded pod", r.Stranded}, {"disruption", r.Disrupted}, {"odd", r.Odd},
	} {
		for _, line := range p.lines {
			out = append(out, p.what+": "+line)
		}
	}
	return out
}

// Add adds another report's numbers and lists.
func (r *Report) Add(o *Report) {
	for _, n := range []struct {
		to *int
		n  int
	}{
		{&r.Pods, o.Pods}, {&r.Planned, o.Planned}, {&r.AsPlanned, o.AsPlanned}, {&r.Joined, o.Joined}, {&r.Replanned, o.Replanned}, {&r.Displaced, o.Displaced}, {&r.Short, o.Short}, {&r.Daemons, o.Daemons},
		{&r.Claims, o.Claims}, {&r.Nodes, o.Nodes}, {&r.GivenBack, o.GivenBack}, {&r.TooSmall, o.TooSmall}, {&r.Binds, o.Binds}, {&r.Late, o.Late}, {&r.Refused, o.Refused}, {&r.Ended, o.Ended}, {&r.Evicted, o.Evicted},
	} {
		*n.to += n.n
	}
	for _, l := range []struct {
		to    *[]string
		lines []string
	}{{&r.Off, o.Off}, {&r.Empty, o.Empty}, {&r.Idle, o.Idle}, {&r.Beyond, o.Beyond}, {&r.Wrong, o.Wrong}, {&r.Stranded, o.Stranded}, {&r.Disrupted, o.Disrupted}, {&r.Odd, o.Odd}} {
		*l.to = append(slices.Clip(*l.to), l.lines...)
	}
}

// String returns the report in one line.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d pods on %d nodes (%d given back, %d too small): %d planned, %.2f%% as planned (%d joined), %d replanned, %d displaced, %d short of memory, %d found room; %d daemons, %d refused, %d binds checked (%d late); %d nodes emptied, %d pods evicted",
		r.Pods, r.Nodes, r.GivenBack, r.TooSmall, r.Planned, 100*r.Fidelity(), r.Joined, r.Replanned, r.Displaced, r.Short, r.Pods-r.Planned, r.Daemons, r.Refused, r.Binds, r.Late, r.Ended, r.Evicted)
	for _, l := range []struct {
		what  string
		lines []string
	}{{"off", r.Off}, {"empty", r.Empty}, {"idle", r.Idle}, {"beyond plan", r.Beyond}, {"wrong", r.Wrong}, {"stranded", r.Stranded}, {"disrupted", r.Disrupted}, {"odd", r.Odd}} {
		if len(l.lines) > 0 {
			fmt.Fprintf(&b, ", %d %s", len(l.lines), strings.ToUpper(l.what))
		}
	}
	return b.String()
}
