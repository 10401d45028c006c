package capacity

import (
	"cmp"
	"slices"
	"strings"
)

// InstanceOwners says which instance is whose claim's. It is the only place that decides it: the launch, its repetition after a restart, the
// termination of a claim that was never seen launched and the garbage collection of instances ask here, at different times and
// with different views of the cluster, and have to come to the same answer. If they didn't, a claim would lose its instance to
// another one, or an instance would run with no claim to terminate it.
//
//  1. A claim has the instance that is recorded on it, and no other.
//  2. An instance that is tagged with the name of a claim without instance is that claim's.
//  3. The instances of a launch batch, sorted by id, are those of its claims, sorted by name, place by place. Places count from the
//     recorded launch batch, with the claims that have gone or have their instance: whatever was recorded before a crash, the rest
//     gets what it would have got without the crash. A claim that is being deleted keeps its place: its instance has to be
//     drained with it.
//  4. What is left goes to the launch batch's claims that still have none, live ones before those that are being deleted.
//
// A claim takes part in the launch batch that is recorded on it; every claim of a launch batch bears the record before its call is made.
type InstanceOwners struct {
	recorded map[string]bool     // instance ids that are recorded on claims
	waiting  map[string]*Claim   // by name: claims that have no instance on record
	batches  map[string][]*Claim // by token: those of them that take part in the launch batch
}

// InstanceOwnersOf reads Name, ProviderID, Deleting and LaunchBatch of claims, which it doesn't change.
func InstanceOwnersOf(claims []*Claim) *InstanceOwners {
	o := &InstanceOwners{recorded: map[string]bool{}, waiting: map[string]*Claim{}, batches: map[string][]*Claim{}}
	for _, c := range claims {
		if c.ProviderID != "" {
			o.recorded[InstanceID(c.ProviderID)] = true
			continue
		}
		o.waiting[c.Name] = c
		if c.LaunchBatch != nil && c.LaunchBatch.Token != "" {
			o.batches[c.LaunchBatch.Token] = append(o.batches[c.LaunchBatch.Token], c)
		}
	}
	return o
}

// Owned says that the instance is recorded on a claim.
func (o *InstanceOwners) Owned(inst *Instance) bool { return o.recorded[inst.ID] }

// Waits says that the claim of that name has no instance on record.
func (o *InstanceOwners) Waits(claim string) bool { return o.waiting[claim] != nil }

// LiveWait says that a claim of the launch batch that is not being deleted still waits for its instance. As long as it does, instances
// may not have shown yet, and only the launch itself hands them out.
func (o *InstanceOwners) LiveWait(token string) bool {
	return slices.ContainsFunc(o.batches[token], func(c *Claim) bool { return !c.Deleting })
}

// Awaited says that some claim may still get the instance, though none owns it yet.
func (o *InstanceOwners) Awaited(inst *Instance) bool {
	return !o.Owned(inst) && (o.waiting[inst.Claim] != nil || len(o.batches[inst.LaunchBatch]) > 0)
}

// Assign hands out instances of the launch batch (or, with a zero LaunchBatch, instances that are tagged with their claims' names): of is by the
// claim's name, over is what no claim is to have. Instances that are owned are in neither.
func (o *InstanceOwners) Assign(w *LaunchBatch, instances []Instance) (of map[string]Instance, over []Instance) {
	of = map[string]Instance{}
	insts := slices.SortedFunc(slices.Values(instances), func(a, b Instance) int { return cmp.Compare(a.ID, b.ID) })
	names := slices.Sorted(slices.Values(w.Claims))
	claims := slices.SortedFunc(slices.Values(o.batches[w.Token]), func(a, b *Claim) int { return cmp.Compare(a.Name, b.Name) })
	done := make([]bool, len(insts))
	give := func(i int, c *Claim) {
		if _, has := of[c.Name]; !has && !done[i] {
			of[c.Name], done[i] = insts[i], true
		}
	}
	for i := range insts {
		done[i] = o.Owned(&insts[i])
		if c := o.waiting[insts[i].Claim]; c != nil {
			give(i, c)
		}
	}
	for i := range insts {
		if insts[i].Claim != "" || i >= len(names) {
			continue
		}
		if c := o.waiting[names[i]]; c != nil && slices.Contains(claims, c) {
			give(i, c)
		}
	}
	for _, deleting := range []bool{false, true} {
		for _, c := range claims {
			if next := slices.Index(done, false); next >= 0 && c.Deleting == deleting {
				give(next, c)
			}
		}
	}
	for i, inst := range insts {
		if !done[i] {
			over = append(over, inst)
		}
	}
	return of, over
}

// InstanceID is the last part of a provider ID: aws:///zone/i-0123.
func InstanceID(providerID string) string {
	return providerID[strings.LastIndexByte(providerID, '/')+1:]
}
