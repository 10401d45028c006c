package topology

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// hostPort is the kind of constraint that a host port makes: only one pod on a node may use it.
type hostPort struct{}

// hostPorts makes a group for each host port, or for each of its addresses if demand names addresses.
func hostPorts(t *Groups, batches []*Batch) {
	type port struct {
		protocol corev1.Protocol
		number   int32
	}
	addresses := map[port][]string{}
	for _, u := range batches {
		for _, p := range u.HostPorts {
			k := port{p.Protocol, p.HostPort}
			if _, ok := addresses[k]; !ok {
				addresses[k] = nil
			}
			if !capacity.AnyHostIP(p.HostIP) && !slices.Contains(addresses[k], p.HostIP) {
				addresses[k] = append(addresses[k], p.HostIP)
			}
		}
	}
	if len(addresses) == 0 {
		return
	}
	type use struct {
		group *Group
		port  []corev1.ContainerPort
	}
	var used []use
	for _, u := range batches {
		for _, p := range u.HostPorts {
			k := port{p.Protocol, p.HostPort}
			ips := addresses[k]
			if len(ips) == 0 {
				ips = []string{""}
			}
			for _, ip := range ips {
				if !capacity.AnyHostIP(p.HostIP) && p.HostIP != ip {
					continue
				}
				g := t.group(fmt.Sprint("port ", k.protocol, k.number, ip), &capacity.PodTerm{TopologyKey: capacity.LabelHostname})
				if !g.byKind {
					g.byKind = true
					used = append(used, use{g, []corev1.ContainerPort{{Protocol: k.protocol, HostPort: k.number, HostIP: ip}}})
				}
				if !slices.ContainsFunc(u.All, func(o Constraint) bool { return o.Group == g }) {
					u.All = append(u.All, Constraint{Kind: hostPort{}, Group: g, Step: required, self: true})
				}
			}
		}
	}
	t.counters = append(t.counters, func(p *corev1.Pod, count func(*Group)) {
		if ports := capacity.HostPorts(p); len(ports) > 0 {
			for _, u := range used {
				if capacity.PortsConflict(ports, u.port) {
					count(u.group)
				}
			}
		}
	})
}

func (hostPort) Limit(*Constraint) (int, bool) { return 1, true }

func (hostPort) allows(*Constraint, *Batch, int, bool) bool { return true }

func (hostPort) room(o *Constraint, _ *Batch, node, k int, _ hosts) int { return o.within(1, node, k) }

func (hostPort) Refusal(*Constraint, *Batch) string { return "" } // a new node has all its ports

func (hostPort) Explain(*Constraint) string { return "host port" }
