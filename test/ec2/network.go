package ec2

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// network is the default VPC: 10.0.0.0/16 with one subnet per zone and a security group.
type network struct {
	vpc     string
	subnets []*subnet
	groups  []*group
}

type subnet struct {
	id, zone, zoneID string
	cidr             netip.Prefix
	tags             map[string]string
	// next is the address to try next, used are the addresses in use, freed those released, oldest first.
	next  netip.Addr
	used  map[netip.Addr]bool
	freed []netip.Addr
	lifo  bool
	// taken is the number of addresses that are used by something other than instances.
	taken int
}

type group struct {
	id, name, description string
	tags                  map[string]string
}

func newNetwork(w *world) network {
	n := network{vpc: w.id("vpc")}
	for i, zone := range w.cfg.Zones {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i * 32), 0}), 19)
		first := cidr.Addr()
		for range 4 {
			first = first.Next() // EC2 reserves the first four addresses and the last
		}
		n.subnets = append(n.subnets, &subnet{
			id: w.id("subnet"), zone: zone, zoneID: zoneID(w.cfg.Region, zone), cidr: cidr, next: first, used: map[netip.Addr]bool{}, lifo: w.cfg.ReuseAddresses,
			tags: map[string]string{
				"Name": w.cfg.Cluster + "/private-" + zone, "kubernetes.io/cluster/" + w.cfg.Cluster: "owned", "karpenter.sh/discovery": w.cfg.Cluster,
				"kubernetes.io/role/internal-elb": "1",
			},
		})
	}
	n.groups = []*group{{
		id: w.id("sg"), name: "eks-cluster-sg-" + w.cfg.Cluster, description: "EKS created security group applied to ENIs of nodes",
		tags: map[string]string{
			"Name": "eks-cluster-sg-" + w.cfg.Cluster, "kubernetes.io/cluster/" + w.cfg.Cluster: "owned", "karpenter.sh/discovery": w.cfg.Cluster,
			"aws:eks:cluster-name": w.cfg.Cluster,
		},
	}, {id: w.id("sg"), name: "default", description: "default VPC security group", tags: map[string]string{}}}
	return n
}

// AddSubnet adds a subnet with only these tags to the VPC and returns its ID.
func (s *Sim) AddSubnet(zone string, tags map[string]string) (id string) {
	s.with(func(w *world) {
		n := &w.network
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(len(n.subnets) * 32), 0}), 19)
		first := cidr.Addr()
		for range 4 {
			first = first.Next()
		}
		id = w.id("subnet")
		n.subnets = append(n.subnets, &subnet{
			id: id, zone: zone, zoneID: zoneID(w.cfg.Region, zone), cidr: cidr, next: first, used: map[netip.Addr]bool{}, lifo: w.cfg.ReuseAddresses,
			tags: maps.Clone(tags),
		})
	})
	return id
}

// AddGroup adds a security group with these tags to the VPC and returns its ID.
func (s *Sim) AddGroup(name string, tags map[string]string) (id string) {
	s.with(func(w *world) {
		id = w.id("sg")
		w.network.groups = append(w.network.groups, &group{id: id, name: name, description: name, tags: maps.Clone(tags)})
	})
	return id
}

// RemoveGroup deletes a security group that no instance has.
func (s *Sim) RemoveGroup(id string) {
	s.with(func(w *world) {
		w.network.groups = slices.DeleteFunc(w.network.groups, func(g *group) bool { return g.id == id })
	})
}

// zoneID returns a zone's ID, derived from its name: us-west-2a is usw2-az1.
func zoneID(region, zone string) string {
	parts := strings.Split(region, "-")
	short := parts[0]
	for _, p := range parts[1:] {
		short += p[:1]
	}
	letter := strings.TrimPrefix(zone, region)
	if len(letter) != 1 {
		return zone
	}
	return fmt.Sprintf("%s-az%d", short, letter[0]-'a'+1)
}

func (n *network) subnet(id string) *subnet {
	i := slices.IndexFunc(n.subnets, func(s *subnet) bool { return s.id == id })
	if i < 0 {
		return nil
	}
	return n.subnets[i]
}

func (n *network) group(id string) *group {
	i := slices.IndexFunc(n.groups, func(g *group) bool { return g.id == id })
	if i < 0 {
		return nil
	}
	return n.groups[i]
}

// size returns how many addresses instances can use.
func (s *subnet) size() int { return 1<<(32-s.cidr.Bits()) - 5 }

func (s *subnet) free() int { return max(0, s.size()-len(s.used)-s.taken) }

// SetFreeAddresses leaves n addresses free in the subnet of a zone, as if pods used the others.
func (s *Sim) SetFreeAddresses(zone string, n int) {
	s.with(func(w *world) {
		for _, sub := range w.network.subnets {
			if sub.zone == zone {
				sub.taken = max(0, sub.size()-len(sub.used)-n)
			}
		}
	})
}

// take returns a free address; the caller has made sure that there is one.
func (s *subnet) take() netip.Addr {
	if n := len(s.freed); s.lifo && n > 0 {
		a := s.freed[n-1]
		s.freed = s.freed[:n-1]
		s.used[a] = true
		return a
	}
	if a := s.next; s.cidr.Contains(a.Next()) { // the last address is the broadcast one
		s.next = a.Next()
		s.used[a] = true
		return a
	}
	a := s.freed[0]
	s.freed = s.freed[1:]
	s.used[a] = true
	return a
}

// keep takes an address that is free. Those below it that were never taken stay out of use.
func (s *subnet) keep(a netip.Addr) {
	s.used[a] = true
	if !a.Less(s.next) {
		s.next = a.Next()
	}
}

func (s *subnet) release(a netip.Addr) {
	delete(s.used, a)
	s.freed = append(s.freed, a)
}

// hostnameType returns how the subnets name their instances.
func (w *world) hostnameType() string {
	if w.cfg.ResourceNames {
		return "resource-name"
	}
	return "ip-name"
}

// dnsName returns the private DNS name of an instance, based on its ID or on its address.
func (w *world) dnsName(id string, a netip.Addr) string {
	if w.cfg.ResourceNames {
		return id + "." + w.cfg.Region + ".compute.internal"
	}
	domain := w.cfg.Region + ".compute.internal"
	if w.cfg.Region == "us-east-1" {
		domain = "ec2.internal"
	}
	return "ip-" + strings.ReplaceAll(a.String(), ".", "-") + "." + domain
}
