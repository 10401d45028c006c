package capacity

import (
	"cmp"
	"slices"
	"strings"
)

// InstanceOwners decides which instance belongs to which claim. Nothing else decides it: the launch, its repetition after a restart, the
// termination of a claim that was never seen launched, and the garbage collection of instances ask here, at different times and with
// different views of the cluster, and must get the same answer. Otherwise a claim would lose its instance to another claim, or an
// instance would run without a claim to terminate it.
//
//  1. A claim has the instance that is recorded on it, and no other.
//  2. An instance that is tagged with the name of a claim without an instance belongs to that claim.
//  3. The instances of a launch batch, sorted by id, belong to its claims, sorted by name, position by position. The positions are those in
//     LaunchBatch.Claims, including claims that are gone or have their instance: so, whichever instances were recorded before a crash, the
//     other claims get the instances that they would have got without the crash. A claim that is being deleted keeps its position,
//     because its instance has to be drained with it.
//  4. Remaining instances go to the launch batch's claims that still have none, live ones before those that are being deleted.
//
// A claim belongs to the launch batch that is recorded on it; every claim of a launch batch has the record before its call is made.
type InstanceOwners struct {
	recorded map[string]bool     // instance ids recorded on claims
	waiting  map[string]*Claim   // claims without a recorded instance, by name
	batches  map[string][]*Claim // claims without a recorded instance that are in a launch batch, by its token
}

// InstanceOwnersOf uses the Name, ProviderID, Deleting and LaunchBatch of claims, and doesn't change them.
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

// Owned reports whether the instance is recorded on a claim.
func (o *InstanceOwners) Owned(inst *Instance) bool { return o.recorded[inst.ID] }

// Waits reports whether the claim of that name exists and has no recorded instance.
func (o *InstanceOwners) Waits(claim string) bool { return o.waiting[claim] != nil }

// LiveWait reports whether a claim of the launch batch that is not being deleted still waits for its instance. As long as one does, the cloud may
// not show all instances yet, so only the launch itself assigns them.
func (o *InstanceOwners) LiveWait(token string) bool {
	return slices.ContainsFunc(o.batches[token], func(c *Claim) bool { return !c.Deleting })
}

// Awaited reports whether a claim may still get the instance, which no claim owns yet.
func (o *InstanceOwners) Awaited(inst *Instance) bool {
	return !o.Owned(inst) && (o.waiting[inst.Claim] != nil || len(o.batches[inst.LaunchBatch]) > 0)
}

// Assign assigns instances of the launch batch to its claims (or, with a zero LaunchBatch, instances that are tagged with their claims' names).
// Of the results, "of" has the instances by the names of their claims, "over" those without a claim. Instances that are recorded on a claim are in
// neither.
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

// InstanceID returns the last part of a provider ID such as aws:///zone/i-0123.
func InstanceID(providerID string) string {
	return providerID[strings.LastIndexByte(providerID, '/')+1:]
}
