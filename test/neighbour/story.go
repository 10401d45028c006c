package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/karpenter"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// story is the list in doc.go.
func (s *system) story(ctx context.Context, hold time.Duration) error {
	ours, err := s.launch(ctx)
	if err != nil {
		return err
	}
	standalone.Say("Dovetail stops, Karpenter starts")
	s.Scheduler.Stop()
	s.Scheduler = nil
	if err := s.takeOver(ctx, ours); err != nil {
		return err
	}
	theirs, err := s.karpenterActs(ctx, ours)
	if err != nil {
		return err
	}
	standalone.Say("Karpenter holds the nodes for %s", hold)
	if err := s.hold(ctx, hold); err != nil {
		return err
	}
	if err := s.reportKarpenter(ctx); err != nil {
		return err
	}
	if err := s.giveBack(ctx); err != nil {
		return err
	}
	standalone.Say("Dovetail holds the nodes for %s", hold/10)
	if err := s.hold(ctx, hold/10); err != nil {
		return err
	}
	return s.dovetailActs(ctx, theirs)
}

// launch lets Dovetail launch the nodes.
func (s *system) launch(ctx context.Context) (*state, error) {
	standalone.Say("starting dovetail-scheduler")
	if err := s.StartScheduler(ctx); err != nil {
		return nil, err
	}
	if err := s.Create(ctx, agent()); err != nil {
		return nil, err
	}
	n := 0
	for i := range apps {
		n += int(apps[i].pods)
		if err := s.Create(ctx, apps[i].deployment()); err != nil {
			return nil, err
		}
	}
	st, err := s.settled(ctx, n)
	if err == nil {
		standalone.Say("Dovetail has launched %d nodes, of %d instance types", len(st.nodes), len(instanceTypes(st)))
	}
	return st, err
}

func instanceTypes(st *state) map[string]int {
	out := map[string]int{}
	for _, n := range st.nodes {
		out[n.Labels[corev1.LabelInstanceTypeStable]]++
	}
	return out
}

// takeOver starts Karpenter, and waits until its metrics count all nodes and claims.
func (s *system) takeOver(ctx context.Context, before *state) error {
	if err := s.startKarpenter(); err != nil {
		return err
	}
	n := len(before.nodes)
	counts := ""
	if err := s.await(ctx, 2*time.Minute, func() (bool, string, error) {
		m, err := s.karpenter.Metrics(ctx)
		if err != nil {
			return false, "", err
		}
		nodes, ready := m.Sum("karpenter_cluster_state_node_count"), claimsReady(m)
		counts = fmt.Sprintf("%d nodes, %d claims that are Ready", nodes, ready)
		return m.Sum("karpenter_cluster_state_synced") == 1 && nodes == n && ready == n, "Karpenter's metrics to count all, not " + counts, nil
	}); err != nil {
		return err
	}
	standalone.Say("Karpenter's metrics count %s", counts)
	st, err := s.settled(ctx, n)
	if err != nil {
		return err
	}
	if had, has := before.hashes(), st.hashes(); !maps.Equal(had, has) {
		s.fault("Dovetail has annotated pools and class with the hashes %v, Karpenter with %v", had, has)
	}
	return nil
}

func claimsReady(m karpenter.Metrics) int {
	return m.Sum("operator_status_condition_count", `kind="NodeClaim"`, `type="Ready"`, `status="True"`)
}

// karpenterActs lets Karpenter launch a node for a new pod, and end a node that has become empty. It returns the claim of the new node.
func (s *system) karpenterActs(ctx context.Context, before *state) (*karpv1.NodeClaim, error) {
	standalone.Say("a pod comes that fits on no node")
	late := app{"late", "web", corev1.DefaultSchedulerName, 1, "6500m", "8Gi"}
	if err := s.Create(ctx, late.deployment()); err != nil {
		return nil, err
	}
	grown, err := s.settled(ctx, len(before.claims)+1)
	if err != nil {
		return nil, err
	}
	if gone := before.without(grown); len(gone) > 0 {
		s.fault("%d claims were lost", len(gone))
	}
	theirs := grown.without(before)
	if len(theirs) != 1 {
		return nil, fmt.Errorf("%d claims are new instead of one", len(theirs))
	}
	standalone.Say("Karpenter has launched %s (%s)", theirs[0].Name, theirs[0].Labels[corev1.LabelInstanceTypeStable])
	standalone.Say("one of our nodes becomes empty")
	if err := s.scale(ctx, apps[0].name, int(apps[0].pods)-1); err != nil {
		return nil, err
	}
	st, err := s.settled(ctx, len(before.claims))
	if err != nil {
		return nil, err
	}
	gone := grown.without(st)
	if len(gone) != 1 || len(st.without(grown)) > 0 || gone[0].Labels[karpv1.NodePoolLabelKey] != apps[0].pool || gone[0].UID == theirs[0].UID {
		return nil, fmt.Errorf("%d claims have gone instead of the one whose pod was deleted", len(gone))
	}
	standalone.Say("Karpenter has ended %s", gone[0].Name)
	return theirs[0], nil
}

// giveBack starts Dovetail beside Karpenter, and stops Karpenter once Dovetail has seen it.
func (s *system) giveBack(ctx context.Context) error {
	standalone.Say("Dovetail starts beside Karpenter")
	if err := s.StartScheduler(ctx); err != nil {
		return err
	}
	if err := s.poolEvent(ctx, "HeldBack"); err != nil {
		return err
	}
	standalone.Say("Dovetail is paused, as long as Karpenter leads; Karpenter stops")
	stopped := time.Now()
	if !s.karpenter.Stop(30 * time.Second) {
		s.fault("Karpenter has not stopped within 30 seconds")
	}
	s.karpenter = nil
	if err := s.poolEvent(ctx, "Resumed"); err != nil {
		return err
	}
	standalone.Say("Dovetail has resumed after %s", time.Since(stopped).Round(time.Second))
	return nil
}

// poolEvent waits until all pools have an event with that reason.
func (s *system) poolEvent(ctx context.Context, reason string) error {
	return s.await(ctx, 2*time.Minute, func() (bool, string, error) {
		var events eventsv1.EventList
		if err := s.Client().List(ctx, &events); err != nil {
			return false, "", fmt.Errorf("listing events: %w", err)
		}
		have := map[string]bool{}
		for _, e := range events.Items {
			if e.Reason == reason && e.Regarding.Kind == "NodePool" {
				have[e.Regarding.Name] = true
			}
		}
		return len(have) == 3, fmt.Sprintf("the event %s of 3 pools, not of %v", reason, slices.Sorted(maps.Keys(have))), nil
	})
}

// dovetailActs lets Dovetail launch a node for a new pod, and end the node that Karpenter has launched once it is empty.
func (s *system) dovetailActs(ctx context.Context, theirs *karpv1.NodeClaim) error {
	before, err := s.state(ctx)
	if err != nil {
		return err
	}
	standalone.Say("a pod comes that fits on no node")
	later := app{"later", "web", corev1.DefaultSchedulerName, 1, "6500m", "8Gi"}
	if err := s.Create(ctx, later.deployment()); err != nil {
		return err
	}
	grown, err := s.settled(ctx, len(before.claims)+1)
	if err != nil {
		return err
	}
	if lost := before.without(grown); len(lost) > 0 {
		s.fault("%d claims were lost", len(lost))
	}
	standalone.Say("Dovetail has launched %s; the node that Karpenter has launched becomes empty", grown.without(before)[0].Name)
	if err := s.scale(ctx, "late", 0); err != nil {
		return err
	}
	st, err := s.settled(ctx, len(before.claims))
	if err != nil {
		return err
	}
	if gone := grown.without(st); len(gone) != 1 || gone[0].UID != theirs.UID {
		s.fault("the claims %v have gone, not %s", gone, theirs.Name)
	}
	standalone.Say("Dovetail has ended %s", theirs.Name)
	return nil
}

// await calls done every second until it returns true.
func (s *system) await(ctx context.Context, limit time.Duration, done func() (bool, string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		if err := s.failed(); err != nil {
			return err
		}
		ok, missing, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", missing, context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
}

// reportKarpenter prints what Karpenter has done, and what it has complained about.
func (s *system) reportKarpenter(ctx context.Context) error {
	m, err := s.karpenter.Metrics(ctx)
	if err != nil {
		return err
	}
	standalone.Say("  Karpenter's metrics: %d nodes, %d claims Ready, %d Drifted; %d claims created, %d terminated, %d disrupted", m.Sum("karpenter_cluster_state_node_count"), claimsReady(m),
		m.Sum("operator_status_condition_count", `kind="NodeClaim"`, `type="Drifted"`, `status="True"`), m.Sum("karpenter_nodeclaims_created_total"),
		m.Sum("karpenter_nodeclaims_terminated_total"), m.Sum("karpenter_nodeclaims_disrupted_total"))
	calls, refused := map[string]int{}, map[string]int{}
	for _, c := range s.EC2.Calls() {
		if c.Key != karpenterKey {
			continue
		}
		calls[c.Service+"."+c.Action]++
		if c.Code != "" {
			refused[c.Service+"."+c.Action+" "+c.Code]++
		}
	}
	standalone.Say("  its calls: %v", calls)
	standalone.Say("  refused: %v", refused)
	log, err := os.ReadFile(s.karpenter.LogPath)
	if err != nil {
		return fmt.Errorf("reading Karpenter's log: %w", err)
	}
	complaints := 0
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, `"level":"ERROR"`) {
			if complaints++; complaints <= 5 {
				standalone.Say("  it has logged: %.600s", strings.TrimSpace(line))
			}
		}
	}
	standalone.Say("  errors in its log: %d", complaints)
	return nil
}
