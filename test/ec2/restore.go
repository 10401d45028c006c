package ec2

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
)

// State is what another simulator can go on with: instances that are pending or running, and launch templates.
type State struct {
	Instances []Saved `json:"instances"`
	// Templates are the requests that created them.
	Templates []url.Values `json:"templates"`
}

// Saved is an instance with what its software was started with.
type Saved struct {
	Instance
	UserData []byte `json:"userData,omitempty"`
}

// Save returns what Restore needs.
func (s *Sim) Save() State {
	out := State{}
	s.with(func(w *world) {
		for _, in := range w.instances {
			if in.live() {
				out.Instances = append(out.Instances, Saved{Instance: in.snapshot(), UserData: slices.Clone(in.userData)})
			}
		}
		for _, t := range w.templates {
			out.Templates = append(out.Templates, t.request)
		}
	})
	return out
}

// Restore goes on with what another simulator has saved. Instances are launched now and boot; they keep their IDs, addresses and tags. Both simulators have
// the same subnets, images and types if their configurations are the same. What can't be here is an error that names it, and no instance is restored then.
func (s *Sim) Restore(saved State) (err error) {
	s.with(func(w *world) { err = w.restore(saved) })
	return err
}

func (w *world) restore(saved State) error {
	instances := make([]*instance, 0, len(saved.Instances))
	for _, one := range saved.Instances {
		in, err := w.restored(one)
		if err != nil {
			return fmt.Errorf("restoring instance %s: %w", one.ID, err)
		}
		instances = append(instances, in)
	}
	for _, form := range saved.Templates {
		if _, err := w.createLaunchTemplate(&Request{Service: "ec2", Action: "CreateLaunchTemplate", Form: form, params: parseParams(form)}); err != nil {
			return fmt.Errorf("restoring launch template %s: %w", form.Get("LaunchTemplateName"), err)
		}
	}
	for _, in := range instances {
		in.order = len(w.instances)
		in.subnet.keep(in.addr)
		w.instances = append(w.instances, in)
		w.byID[in.ID] = in
		w.journal.change(w.now, in, "", pending, "")
		w.run(in)
	}
	return nil
}

func (w *world) restored(saved Saved) (*instance, error) {
	if w.byID[saved.ID] != nil {
		return nil, errors.New("it exists already")
	}
	in := &instance{Instance: saved.Instance, userData: saved.UserData, visible: w.now, typ: w.cfg.Catalog.Type(saved.Type), fleetRsv: w.id("r")}
	in.State, in.Launched = pending, w.now
	if in.typ == nil {
		return nil, fmt.Errorf("there is no instance type %s", saved.Type)
	}
	if w.image(saved.ImageID) == nil {
		return nil, fmt.Errorf("there is no image %s", saved.ImageID)
	}
	for _, subnet := range w.network.subnets {
		if subnet.id == saved.SubnetID {
			in.subnet = subnet
		}
	}
	if in.subnet == nil {
		return nil, fmt.Errorf("there is no subnet %s", saved.SubnetID)
	}
	addr, err := netip.ParseAddr(saved.PrivateIP)
	if err != nil {
		return nil, fmt.Errorf("private address: %w", err)
	}
	if in.addr = addr; in.subnet.used[addr] {
		return nil, fmt.Errorf("address %s is taken", addr)
	}
	for i := range in.Volumes {
		in.Volumes[i].id = w.id("vol")
	}
	for i := range in.Interfaces {
		in.Interfaces[i].id = w.id("eni")
	}
	in.rootGiB = rootGiB(in.Volumes)
	return in, nil
}
