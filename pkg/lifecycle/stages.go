package lifecycle

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/drift"
)

// addStages builds the stages, with what they share.
func (c *Controller) addStages(cfg *Config, seen *sightings) {
	core, storage := cfg.Informers.Core().V1(), cfg.Informers.Storage().V1()
	events, waits, reports, evictions := recorder{cfg.Recorder}, &waits{}, &reports{}, &evictions{}
	bound := &boundPods{kube: cfg.Kube, cache: c.watcher.pods.GetIndexer()}
	needs := requirements{expectedTaints: cfg.ExpectedTaints}
	giveUp := &surrender{nodes: c.nodes, claims: c.claims, reports: reports, recorder: events, requirements: needs,
		notRegistered: cfg.NotRegistered, givingUp: cfg.GivingUp}
	late := &lateInitialization{pods: bound, waits: waits, reports: reports, recorder: events, requirements: needs, surrender: giveUp,
		startupTimeout: cfg.StartupTimeout, awaited: cfg.Awaited}
	recreate := &recreation{nodes: c.nodes, sightings: seen, claims: c.claims, recorder: events, nodeFor: cfg.NodeFor}
	lease := &leases{kube: cfg.Kube, registrationTimeout: cfg.RegistrationTimeout}
	tag := &tagging{sightings: seen, cloud: cfg.Cloud, reports: reports, recorder: events}
	live := &liveness{nodes: c.nodes, sightings: seen, waits: waits, late: late, surrender: giveUp, registrationTimeout: cfg.RegistrationTimeout}
	c.drifting = &drifting{conditions: drift.New(c.claims, cfg.Kind, cfg.Cloud, cfg.Clock), queue: c.queue}
	c.alive = []stage{
		&registration{nodes: c.nodes, pods: bound, reports: reports, recorder: events, registering: cfg.Registering},
		&announcement{reports: reports, registered: cfg.Registered},
		&initialization{nodes: c.nodes, reports: reports, requirements: needs},
		&consistency{recorder: events},
		recreate,
		lease,
		&bootingPods{nodes: c.nodes, pods: bound},
		tag,
		&podActivity{podEvents: c.watcher.podEvents, index: c.index},
		&consolidatable{claims: c.claims, podEvents: c.watcher.podEvents},
		c.drifting,
		&cascade{claims: c.claims},
		live,
	}
	end := &termination{nodes: c.nodes, pods: bound, cloud: cfg.Cloud, sightings: seen, leases: lease, waits: waits, recorder: events, close: cfg.Close,
		drain: &drain{kube: cfg.Kube, pods: bound, waits: waits, evictions: evictions, recorder: events},
		volumes: &volumeDetachment{pods: bound, attached: storage.VolumeAttachments().Lister(), volumes: core.PersistentVolumes().Lister(),
			volClaims: core.PersistentVolumeClaims().Lister(), recorder: events},
	}
	without := &unlaunched{live: cfg.Live, cloud: cfg.Cloud, waits: waits}
	c.deleted = []stage{&finalization{pods: bound, reports: reports, recorder: events, termination: end, unlaunched: without}}
	c.unclaimed = &unclaimed{nodes: c.nodes, index: c.index, live: cfg.Live, termination: end, clock: cfg.Clock}
	c.garbage = &garbage{claims: c.claims, live: cfg.Live, cloud: cfg.Cloud, nodes: c.nodes, sightings: seen, evictions: evictions, brake: cfg.Brake,
		queue: c.queue, clock: cfg.Clock, reservations: &reservationEnd{nodes: c.nodes, claims: c.claims, recorder: events, clock: cfg.Clock}}
	c.forgotten = func(claim, providerID, nodeName string, nodes []*corev1.Node) {
		seen.seen.forget(capacity.InstanceID(providerID))
		c.watcher.podEvents.forget(nodeName)
		waits.forget(claim)
		c.drifting.conditions.Forget(claim)
		reports.forget(claim)
		recreate.booting.forget(claim)
		tag.later.forget(claim)
		without.forget(claim)
		live.missing.forget(claim)
		for _, n := range nodes {
			lease.written.forget(n.UID)
		}
	}
}
