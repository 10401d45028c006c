package ec2

import (
	"fmt"
	"maps"
	"slices"
)

// Copies returns n instances like a live one, for Restore: each has an ID, an address and a name of its own. They don't exist before Restore
// has been called with them; until then, nothing else may be launched. The caller may change their tags.
func (s *Sim) Copies(id string, n int) (out []Saved, err error) {
	s.with(func(w *world) { out, err = w.copies(id, n) })
	return out, err
}

func (w *world) copies(id string, n int) ([]Saved, error) {
	in := w.byID[id]
	if in == nil || !in.live() {
		return nil, fmt.Errorf("copying instance %s: it doesn't live", id)
	}
	if free := in.subnet.free(); free < n {
		return nil, fmt.Errorf("copying instance %s: its subnet has %d free addresses, want %d", id, free, n)
	}
	out := make([]Saved, n)
	for i := range out {
		one := Saved{Instance: in.snapshot(), UserData: slices.Clone(in.userData)}
		one.ID = w.id("i")
		addr := in.subnet.take()
		one.PrivateIP, one.PrivateDNSName, one.Tags = addr.String(), w.dnsName(one.ID, addr), maps.Clone(one.Tags)
		delete(in.subnet.used, addr) // Restore keeps it
		out[i] = one
	}
	return out, nil
}
