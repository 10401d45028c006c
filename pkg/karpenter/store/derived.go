package store

import (
	"cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/derived"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
)

// Derived returns the pools and classes that are derived from Provisioners and profiles' arguments.
func (s *Store) Derived() *derived.Objects { return s.derived }

func (s *Store) provisionerChanged(before, after *legacy.Provisioner) {
	name := cmp.Or(after, before).Name
	s.derived.DeriveProvisioner(name)
	s.status.changed(karpenter.Provisioners, name) // its own status may have been changed, too
}

// templateChanged derives the pools and classes of all Provisioners that refer to the template again.
func (s *Store) templateChanged(before, after *legacy.AWSNodeTemplate) {
	name := ""
	if after != nil {
		name = after.Name
		s.status.changed(karpenter.NodeTemplates, name)
	} else {
		name = before.Name
	}
	for _, o := range s.provisioners.GetStore().List() {
		if p := o.(*legacy.Provisioner); refersToTemplate(p, name) {
			s.derived.DeriveProvisioner(p.Name)
		}
	}
}

func refersToTemplate(p *legacy.Provisioner, name string) bool {
	return p.Spec.Provider == nil && p.Spec.ProviderRef != nil && p.Spec.ProviderRef.Name == name
}

// provisioner and template return the object with that name, or nil. The object must not be changed.
func (s *Store) provisioner(name string) *legacy.Provisioner {
	if o, ok, _ := s.provisioners.GetStore().GetByKey(name); ok {
		return o.(*legacy.Provisioner)
	}
	return nil
}

func (s *Store) template(name string) *legacy.AWSNodeTemplate {
	if o, ok, _ := s.templates.GetStore().GetByKey(name); ok {
		return o.(*legacy.AWSNodeTemplate)
	}
	return nil
}

func (s *Store) hasClaims(pool string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, k := range s.known {
		if k.claim.Pool == pool {
			return true
		}
	}
	return false
}
