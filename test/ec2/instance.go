package ec2

import (
	"net/netip"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// States of an instance.
//
//	pending --1 to 3 s--> running --TerminateInstances, spot interruption--> shutting-down --10 to 40 s--> terminated --1 h--> (forgotten by Describe)
//	   \_____________________________________TerminateInstances____________________^
//	   \_______EC2 can't start it (EndNew)__________________________________________________________________^
//
// A running instance is billed, no other is.
const (
	pending      = "pending"
	running      = "running"
	shuttingDown = "shutting-down"
	terminated   = "terminated"
)

var stateCodes = map[string]int{pending: 0, running: 16, shuttingDown: 32, terminated: 48}

// Delays of an instance's state changes, before they are divided by the speed.
const (
	pendingMin, pendingMax   = time.Second, 3 * time.Second
	shutdownMin, shutdownMax = 10 * time.Second, 40 * time.Second
	terminatedVisible        = time.Hour
)

// Instance is an instance as the simulator knows it, regardless of what its API shows at the moment.
type Instance struct {
	ID             string            `json:"id"`
	Type           string            `json:"type"`
	Zone           string            `json:"zone"`
	CapacityType   string            `json:"capacityType"`
	State          string            `json:"state"`
	Price          float64           `json:"price"` // $/h
	ImageID        string            `json:"imageId"`
	SubnetID       string            `json:"subnetId"`
	PrivateIP      string            `json:"privateIp"`
	PrivateDNSName string            `json:"privateDnsName"`
	Profile        string            `json:"instanceProfile,omitempty"`
	Groups         []string          `json:"securityGroups,omitempty"`
	ClientToken    string            `json:"clientToken,omitempty"`
	Reservation    string            `json:"capacityReservation,omitempty"`
	Tags           map[string]string `json:"tags,omitempty"`
	// The launch options of the instance.
	Metadata             Metadata          `json:"metadata"`
	Volumes              []Volume          `json:"volumes,omitempty"`
	Interfaces           []Interface       `json:"interfaces,omitempty"`
	Placement            Placement         `json:"placement"`
	Monitoring           bool              `json:"monitoring,omitempty"`
	NestedVirtualization bool              `json:"nestedVirtualization,omitempty"`
	Enclave              bool              `json:"enclave,omitempty"`
	Market               string            `json:"market,omitempty"`
	Preference           string            `json:"capacityReservationPreference,omitempty"`
	SpotRequestTags      map[string]string `json:"spotRequestTags,omitempty"`
	// Launched is the time of the launch; Running, Ending (shutting-down) and Terminated are zero until that has happened.
	Launched   time.Time `json:"launched"`
	Running    time.Time `json:"running,omitzero"`
	Ending     time.Time `json:"ending,omitzero"`
	Terminated time.Time `json:"terminated,omitzero"`
	// Reason of the termination.
	Reason string `json:"reason,omitempty"`
}

type instance struct {
	Instance
	order     int
	typ       *catalog.Type
	userData  []byte
	addr      netip.Addr
	subnet    *subnet
	rootGiB   int64
	visible   time.Time // from when Describe and Terminate know it
	forgotten bool      // Describe no longer knows it
	booted    bool
	fleetRsv  string // EC2's "reservation": the launch
	template  string
	marked    bool // EC2 has announced that it takes its spot capacity back
	status    instanceStatus
}

// launch creates an instance, which may run in a reservation. The caller has made sure that there is capacity and an address.
func (w *world) launch(d *launchData, t *catalog.Type, s *subnet, capacityType string, rsv *reservation, token, launchID string) *instance {
	price, _ := w.price(t, s.zone, capacityType)
	addr := s.take()
	id := w.id("i")
	for w.byID[id] != nil { // one that was restored has it
		id = w.id("i")
	}
	in := &instance{
		Instance: Instance{
			ID: id, Type: t.Name, Zone: s.zone, CapacityType: capacityType, State: pending, Price: price, ImageID: d.image, SubnetID: s.id, PrivateIP: addr.String(),
			PrivateDNSName: w.dnsName(id, addr), Profile: d.profile, Groups: d.groups, ClientToken: token, Tags: merged(d.tags["instance"], nil), Launched: w.now,
			Market: d.market, Placement: d.placement,
		},
		order: len(w.instances), typ: t, userData: d.userData, addr: addr, subnet: s, visible: w.now, fleetRsv: launchID,
	}
	if rsv != nil {
		in.Reservation, in.Price = rsv.id, 0 // paid for by the reservation
	}
	if g, _ := w.placementGroup(d.placement); g != nil {
		in.Placement.Group, in.Placement.GroupID, in.Placement.Partition = g.name, g.id, w.partition(g, d.placement.Partition, s.zone)
	}
	if in.Placement.Tenancy == "" {
		in.Placement.Tenancy = "default"
	}
	w.equip(in, d)
	draw := w.draw("life", id)
	if lag := w.cfg.DescribeLag; lag > 0 {
		in.visible = w.now.Add(w.cfg.scaled(between(draw, lag/2, lag)))
	}
	w.instances = append(w.instances, in)
	w.byID[id] = in
	w.journal.change(w.now, in, "", pending, "")
	w.notifyState(in)
	started := between(draw, pendingMin, pendingMax)
	if reason := w.doom(); reason != "" {
		w.after(started/2, func() { w.fail(in, reason) })
	}
	w.after(started, func() { w.run(in) })
	return in
}

// doom returns why the instance that is being launched won't start; empty if it will.
func (w *world) doom() string {
	if w.doomed == 0 {
		return ""
	}
	if w.doomed > 0 {
		w.doomed--
	}
	return w.doomReason
}

// fail terminates an instance that EC2 can't start, without a shutdown phase.
func (w *world) fail(in *instance, reason string) {
	if in.State != pending {
		return
	}
	in.Ending, in.Reason = w.now, reason
	w.gone(in)
}

func (w *world) run(in *instance) {
	if in.State != pending {
		return
	}
	in.Running = w.now
	w.move(in, running, "")
	in.booted = true
	w.effects = append(w.effects, effect{boot: &Machine{
		ID: in.ID, Type: in.typ, Region: w.cfg.Region, Zone: in.Zone, ZoneID: in.subnet.zoneID, PrivateIP: in.PrivateIP, PrivateDNSName: in.PrivateDNSName,
		ImageID: in.ImageID, UserData: in.userData, CapacityType: in.CapacityType, LaunchedAt: in.Launched, RootGiB: in.rootGiB,
	}})
}

// end begins the shutdown. It has no effect on an instance that is already shutting down or terminated.
func (w *world) end(in *instance, reason string) {
	if in.State == shuttingDown || in.State == terminated {
		return
	}
	in.Ending, in.Reason = w.now, reason
	w.move(in, shuttingDown, reason)
	if in.booted {
		w.effects = append(w.effects, effect{halt: in.ID})
	}
	w.after(between(w.draw("end", in.ID), shutdownMin, shutdownMax), func() { w.gone(in) })
}

func (w *world) gone(in *instance) {
	in.Terminated = w.now
	w.move(in, terminated, in.Reason)
	in.subnet.release(in.addr)
	if rsv := w.reservation(in.Reservation); rsv != nil {
		rsv.used--
	}
	w.after(terminatedVisible, func() { in.forgotten = true })
}

func (w *world) move(in *instance, state, reason string) {
	w.journal.change(w.now, in, in.State, state, reason)
	in.State = state
	w.notifyState(in)
}

// EndNew makes EC2 terminate the next n launched instances while they are pending, as EC2 does with instances it can't start (-1: all
// from now on, 0: none any more). The reason begins with EC2's code: "Client.VolumeLimitExceeded: Volume limit exceeded".
func (s *Sim) EndNew(n int, reason string) {
	s.with(func(w *world) { w.doomed, w.doomReason = n, reason })
}

// Kill terminates an instance from outside, as a failing host would.
func (s *Sim) Kill(id string) {
	s.with(func(w *world) {
		if in := w.byID[id]; in != nil {
			w.end(in, "Server.InternalError: Internal error on launch or host failure")
		}
	})
}
