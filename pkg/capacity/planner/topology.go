package planner

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// topology holds the topology groups of the demand and of existing pods.
type topology struct {
	groups []*group
	byID   map[string]*group
	// domains numbers the values of each key.
	domains map[string]map[string]int
	// keys are the topology keys of the groups, except the host name.
	keys []string
	// eligible are the existing nodes that count, by group; missing: all.
	eligible map[*group]packing.Bits
	// changes is the number of times that constraints came into or went out of force.
	changes int
	// opening are the groups that a new node changes before any pod is placed on it.
	opening []*group
}

func newTopology() *topology {
	return &topology{byID: map[string]*group{}, domains: map[string]map[string]int{}, eligible: map[*group]packing.Bits{}}
}

func (t *topology) group(id string, term *capacity.PodTerm) *group {
	g, ok := t.byID[id]
	if !ok {
		g = newGroup(id, term.TopologyKey, term)
		t.byID[id] = g
		t.groups = append(t.groups, g)
	}
	return g
}

// domain returns the number of a key's value.
func (t *topology) domain(key, value string) int {
	values, ok := t.domains[key]
	if !ok {
		values = map[string]int{}
		t.domains[key] = values
	}
	d, ok := values[value]
	if !ok {
		d = len(values)
		values[value] = d
	}
	return d
}

// constrain makes the groups of the batches' own constraints.
func (t *topology) constrain(podBatches []*podBatch) {
	for _, u := range podBatches {
		soft := 0
		var hardKeys []string
		for _, s := range u.Spread {
			if s.Hard {
				hardKeys = append(hardKeys, s.TopologyKey)
			}
		}
		for i := range u.Spread {
			s := &u.Spread[i]
			term := &capacity.PodTerm{TopologyKey: s.TopologyKey, Selector: s.Selector, Namespaces: []string{u.Namespace}}
			if s.Selector.Empty() {
				// PodTopologySpread counts no pods for a selector that matches all of them (countPodsMatchSelector). Only the requirement
				// that the node has the label is left of the constraint.
				term.Selector = labels.Nothing()
			}
			f := &nodeFilter{taints: s.NodeTaintsHonor, keys: hardKeys}
			if !s.Hard {
				f.keys = []string{s.TopologyKey}
			}
			if s.NodeAffinityHonor {
				f.terms = u.TermsWithoutVolumes()
			}
			if s.NodeTaintsHonor {
				f.tolerations = u.Tolerations
			}
			g := t.group("spread"+termID(term)+f.id(), term)
			g.filter = f
			o := owned{group: g, kind: spread, step: -1, skew: int(s.MaxSkew)}
			if s.Hard {
				o.minDomains = int(s.MinDomains)
			} else {
				o.step, o.rank = dropSoftSpread, soft
				soft++
			}
			u.all = append(u.all, o)
		}
		t.terms(u, u.Affinity, affinity, -1)
		t.terms(u, u.AntiAffinity, antiAffinity, -1)
		t.terms(u, u.PreferredAffinity, affinity, dropPreferredAffinity)
		t.terms(u, u.PreferredAntiAffinity, antiAffinity, dropPreferredAntiAffinity)
	}
	t.ports(podBatches)
}

func (t *topology) terms(u *podBatch, terms []capacity.PodTerm, k kind, s step) {
	for i := range terms {
		u.all = append(u.all, owned{group: t.group("term"+termID(&terms[i]), &terms[i]), kind: k, step: s, rank: i})
	}
}

// id is equal for equal filters.
func (f *nodeFilter) id() string {
	var b strings.Builder
	for _, term := range f.terms {
		fmt.Fprint(&b, term.Sorted())
	}
	fmt.Fprint(&b, f.taints, f.tolerations, slices.Sorted(slices.Values(f.keys)))
	return b.String()
}

// ports makes a group for each host port, or for each of its addresses if demand names addresses.
func (t *topology) ports(podBatches []*podBatch) {
	type port struct {
		protocol corev1.Protocol
		number   int32
	}
	addresses := map[port][]string{}
	for _, u := range podBatches {
		for i := range u.HostPorts {
			p := &u.HostPorts[i]
			k := port{p.Protocol, p.HostPort}
			if _, ok := addresses[k]; !ok {
				addresses[k] = nil
			}
			if !capacity.AnyHostIP(p.HostIP) && !slices.Contains(addresses[k], p.HostIP) {
				addresses[k] = append(addresses[k], p.HostIP)
			}
		}
	}
	for _, u := range podBatches {
		for i := range u.HostPorts {
			p := &u.HostPorts[i]
			k := port{p.Protocol, p.HostPort}
			ips := addresses[k]
			if len(ips) == 0 {
				ips = []string{""}
			}
			for _, ip := range ips {
				if !capacity.AnyHostIP(p.HostIP) && p.HostIP != ip {
					continue
				}
				g := t.group(fmt.Sprint("port ", k.protocol, k.number, ip), &capacity.PodTerm{TopologyKey: keyPorts})
				g.host, g.port = true, &corev1.ContainerPort{Protocol: k.protocol, HostPort: k.number, HostIP: ip}
				if !slices.ContainsFunc(u.all, func(o owned) bool { return o.group == g }) {
					u.all = append(u.all, owned{group: g, kind: hostPort, step: -1, self: true})
				}
			}
		}
	}
}

// join sets which groups each batch is a member of.
func (t *topology) join(podBatches []*podBatch, names capacity.NamespaceLabels) {
	anti := map[*group]bool{}
	for _, g := range t.groups {
		if len(g.owners)+len(g.repelling) > 0 {
			anti[g] = true
		}
	}
	for _, u := range podBatches {
		for _, o := range u.all {
			if o.kind == antiAffinity && o.hard() {
				anti[o.group] = true
			}
		}
	}
	for _, u := range podBatches {
		for _, g := range t.groups {
			var in bool
			if g.port != nil {
				in = slices.ContainsFunc(u.all, func(o owned) bool { return o.group == g })
			} else {
				in = g.matches(u.Namespace, u.Labels, names)
			}
			if !in {
				continue
			}
			u.member = append(u.member, g)
			if anti[g] {
				u.blocked = append(u.blocked, g)
			}
			for i := range u.all {
				if u.all[i].group == g {
					u.all[i].self = true
				}
			}
		}
	}
}
