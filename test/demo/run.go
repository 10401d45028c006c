package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

// show is a running demonstration.
type show struct {
	*stage
	system   *sandbox.Sandbox
	audience *audience
	set      settings
	shapes   []shape
	bill     bill
	pools    []string        // names
	offered  []client.Object // the pools and their classes
	types    *catalog.Catalog
	faults   []string
}

// runDemo is the whole demonstration:
//  1. build the binaries and start everything,
//  2. create the workloads,
//  3. wait until every pod runs, and show why the misfit can't,
//  4. check where the pods are, and that instances and nodes match one to one,
//  5. scale workloads down, and wait until the empty nodes are terminated,
//  6. delete a node by hand, and wait until its pods run elsewhere and its instance is terminated,
//  7. let used nodes be consolidated, and compare the bill with one plan for the same pods,
//  8. change the node class, and wait until all nodes are replaced,
//  9. delete all workloads, and wait until the last instance is terminated,
//  10. print the bill and the faults found.
func runDemo(ctx context.Context, st *stage, set settings) error {
	return withSystem(ctx, st, set, func(ctx context.Context, system *sandbox.Sandbox) error {
		a, leave, err := newAudience(ctx, system.AdminConfig())
		if err != nil {
			return err
		}
		defer leave()
		s := &show{stage: st, system: system, audience: a, set: set, shapes: shapes(set.pods), pools: []string{"default", "arm64"}}
		if s.offered, err = pools(set); err != nil {
			return err
		}
		if s.types, err = instanceTypes(set); err != nil {
			return err
		}
		for _, part := range []func(context.Context) error{s.create, s.fill, s.explain, s.inspect, s.shrink, s.deleteNode, s.consolidate, s.rollOut, s.empty} {
			if err := part(ctx); interrupted(ctx) {
				return ctx.Err()
			} else if err != nil {
				return errors.Join(err, s.diagnose(ctx))
			}
		}
		return s.finish()
	})
}

func (s *show) create(ctx context.Context) error {
	s.act("%d pods, and one that fits nothing", s.set.pods)
	cast := append(s.shapes, misfit())
	objects := make([]client.Object, len(cast))
	for i, shape := range cast {
		s.say("  %s", shape.describe())
		objects[i] = shape.object()
	}
	s.say("")
	s.begin = time.Now()
	return s.system.Create(ctx, objects...)
}

// fill waits until every pod runs, counts the nodes without a pod, and waits until nothing changes any more.
func (s *show) fill(ctx context.Context) error {
	err := s.watch(ctx, "the pods get their nodes", 5*time.Minute, func(f snapshot, _ []ec2.Instance) string {
		if f.running == s.set.pods && f.pending == 0 && misfitPod(f) != nil {
			return ""
		}
		return fmt.Sprintf("%d of %d pods run", f.running, s.set.pods)
	})
	if err != nil {
		return err
	}
	f := s.audience.now()
	for _, n := range f.nodes {
		if podsOn(f, n.Name) == 0 {
			s.bill.empty++
		}
	}
	return s.watch(ctx, "machines and nodes are the same set", time.Minute, s.settled)
}

// explain waits until events state for each pool why the misfit gets no node, and prints them.
func (s *show) explain(ctx context.Context) error {
	var lines []string
	var name string
	err := s.watch(ctx, "the scheduler says why one pod can't run", time.Minute, func(f snapshot, _ []ec2.Instance) string {
		pod := misfitPod(f)
		if pod == nil {
			return "the pod doesn't exist"
		}
		name = pod.Name
		var err error
		if lines, err = reasons(ctx, s.system.AdminConfig(), pod); err != nil {
			return err.Error()
		}
		text := strings.Join(lines, " ")
		for _, o := range s.pools {
			if !strings.Contains(text, o+": ") {
				return fmt.Sprintf("no event says what stands in the way in pool %s", o)
			}
		}
		return ""
	})
	if err != nil {
		return err
	}
	s.say("\n  why %s can't run:", name)
	for _, line := range lines {
		s.say("    %s", line)
	}
	return nil
}

// inspect checks the cluster at its peak.
func (s *show) inspect(ctx context.Context) error {
	f, live := s.audience.now(), s.system.EC2.Live()
	s.check(f, live)
	s.bill.peak = machineRows(live, f.nodes, f.pods)
	s.bill.perHour = s.system.EC2.Bill().PerHour
	s.bill.waits = s.audience.waits(time.Time{})
	s.bill.pods, s.bill.bound = s.set.pods, f.bound
	plan, err := s.planAll(ctx, "peak")
	if err != nil {
		return err
	}
	s.bill.planned, s.bill.least = plan.TotalPerHour, plan.LowerBoundPerHour
	return nil
}

// planAll returns the plan that knows all pods of the shapes at once. name is for its files.
func (s *show) planAll(ctx context.Context, name string) (*offline.Report, error) {
	objects := slices.Clone(s.offered)
	for _, shape := range s.shapes {
		objects = append(objects, shape.object())
	}
	return sandbox.Planned(ctx, s.system.Dir, name, s.types, objects...)
}

// shrink scales two workloads to zero and one to a half.
func (s *show) shrink(ctx context.Context) error {
	s.act("scaling down: arm and cache to 0, web to a half; their nodes are empty and end")
	for i := range s.shapes {
		shape := &s.shapes[i]
		switch shape.name {
		case "arm", "cache":
			shape.pods = 0
		case "web":
			shape.pods /= 2
		default:
			continue
		}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: shape.name}}
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, shape.pods)
		if err := s.system.Client().Patch(ctx, deployment, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			return fmt.Errorf("scaling %s: %w", shape.name, err)
		}
	}
	if err := s.watch(ctx, "empty nodes end", 3*time.Minute, s.settled); err != nil {
		return err
	}
	s.check(s.audience.now(), s.system.EC2.Live())
	return nil
}

// deleteNode deletes the node with the most pods, as a user would.
func (s *show) deleteNode(ctx context.Context) error {
	f := s.audience.now()
	var victim *corev1.Node
	for _, n := range f.nodes {
		if victim == nil || podsOn(f, n.Name) > podsOn(f, victim.Name) {
			victim = n
		}
	}
	if victim == nil {
		return errors.New("no node is left to be deleted")
	}
	s.act("kubectl delete node %s (%d pods)", victim.Name, podsOn(f, victim.Name))
	if err := s.system.Client().Delete(ctx, victim.DeepCopy()); err != nil {
		return fmt.Errorf("deleting node %s: %w", victim.Name, err)
	}
	if err := s.watch(ctx, "the node's pods move and its instance ends", 3*time.Minute, func(f snapshot, live []ec2.Instance) string {
		for _, n := range f.nodes {
			if n.UID == victim.UID {
				return fmt.Sprintf("node %s is still there", n.Name)
			}
		}
		for _, in := range live {
			if providerID(in) == victim.Spec.ProviderID {
				return fmt.Sprintf("instance %s is still there", in.ID)
			}
		}
		return s.settled(f, live)
	}); err != nil {
		return err
	}
	s.check(s.audience.now(), s.system.EC2.Live())
	return nil
}

// empty deletes every workload and waits until the last instance is terminated.
func (s *show) empty(ctx context.Context) error {
	s.act("all workloads are deleted; the instances end")
	for _, shape := range append(s.shapes, misfit()) {
		object := shape.object()
		policy := &client.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
		if err := s.system.Client().Delete(ctx, object, policy); err != nil {
			return fmt.Errorf("deleting %s: %w", shape.name, err)
		}
	}
	return s.watch(ctx, "all instances end", 3*time.Minute, func(f snapshot, live []ec2.Instance) string {
		if len(f.pods)+f.leaving+len(f.nodes)+f.claims+len(live) == 0 {
			return ""
		}
		return fmt.Sprintf("%d pods, %d nodes, %d claims and %d instances are left", len(f.pods)+f.leaving, len(f.nodes), f.claims, len(live))
	})
}

func (s *show) finish() error {
	instances := s.system.EC2.Instances()
	s.faults = append(s.faults, checkLaunches(instances)...)
	s.bill.launches, s.bill.leaked, s.bill.spent = len(instances), len(s.system.EC2.Live()), s.system.EC2.Bill().Accrued
	if s.bill.leaked > 0 {
		s.fault("%d instances leaked", s.bill.leaked)
	}
	s.act("the bill")
	s.bill.write(s.out)
	if len(s.faults) > 0 {
		return fmt.Errorf("what is not as it should be:\n  %s", strings.Join(s.faults, "\n  "))
	}
	s.say("\nEvery pod was where it should be, nothing was launched twice, nothing is left.")
	return nil
}

// settled returns "" if every pod of the shapes runs, every node has pods, and there are as many instances as nodes; otherwise what is
// missing.
func (s *show) settled(f snapshot, live []ec2.Instance) string {
	want := 0
	for _, shape := range s.shapes {
		want += shape.pods
	}
	if f.running != want || f.pending+f.leaving > 0 {
		return fmt.Sprintf("%d of %d pods run, %d are pending, %d leaving", f.running, want, f.pending, f.leaving)
	}
	for _, n := range f.nodes {
		if n.DeletionTimestamp != nil || podsOn(f, n.Name) == 0 {
			return fmt.Sprintf("node %s is still there", n.Name)
		}
	}
	if len(live) != len(f.nodes) || f.claims != len(f.nodes) {
		return fmt.Sprintf("%d nodes, %d claims, %d instances", len(f.nodes), f.claims, len(live))
	}
	return ""
}

// check records faults while nothing changes.
func (s *show) check(f snapshot, live []ec2.Instance) {
	s.faults = append(s.faults, checkPlacement(s.shapes, f.pods, f.nodes)...)
	s.faults = append(s.faults, checkFleet(live, f.nodes)...)
}

func (s *show) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// watch plays a scene until missing returns "".
func (s *show) watch(ctx context.Context, what string, deadline time.Duration, missing func(snapshot, []ec2.Instance) string) error {
	return s.play(ctx, scene{
		what: what, deadline: deadline, failed: s.system.Failed,
		state: func() string {
			f, b := s.audience.now(), s.system.EC2.Bill()
			return fmt.Sprintf("pending %-4d claims %-3d launches %-3d instances %-3d nodes %-3d bound %-4d running %-4d $/h %.2f",
				f.pending, f.claims, len(s.system.EC2.Instances()), len(s.system.EC2.Live()), len(f.nodes), f.bound, f.running, b.PerHour)
		},
		done: func() (bool, string) {
			text := missing(s.audience.now(), s.system.EC2.Live())
			return text == "", text
		},
	})
}

// diagnose reports what a user would look at after a scene that didn't finish: some waiting pods with their reasons.
func (s *show) diagnose(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var lines []string
	for _, p := range s.audience.now().pods {
		if p.Status.Phase == corev1.PodRunning || p.Labels[appLabel] == misfit().name || len(lines) >= 15 {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s on %q", p.Name, p.Status.Phase, p.Spec.NodeName))
		if events, err := reasons(ctx, s.system.AdminConfig(), p); err == nil {
			lines = append(lines, events...)
		}
	}
	if len(s.faults) > 0 {
		lines = append(lines, "before that:")
		lines = append(lines, s.faults...)
	}
	if len(lines) == 0 {
		return nil
	}
	return errors.New(strings.Join(lines, "\n  "))
}

func misfitPod(f snapshot) *corev1.Pod {
	for _, p := range f.pods {
		if p.Labels[appLabel] == misfit().name {
			return p
		}
	}
	return nil
}

func podsOn(f snapshot, node string) int {
	n := 0
	for _, p := range f.pods {
		if p.Spec.NodeName == node {
			n++
		}
	}
	return n
}
