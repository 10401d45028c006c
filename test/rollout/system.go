package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/outside"
	"github.com/dovetail-scheduler/dovetail/test/record"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

const (
	// speed divides the delays of instances and kubelets.
	speed = 20
	// heartbeat is how often nodes renew their leases: kube-controller-manager gives up a node after 50 seconds.
	heartbeat = 20 * time.Second
	// filling is how long it may take until all pods run on new nodes, settling how long until nothing is left of what has begun.
	filling, settling = 25 * time.Minute, 5 * time.Minute
)

// system is the running system.
type system struct {
	*sandbox.Sandbox
	set       settings
	recording *record.Recorder
	stopped   bool // the scheduler, on purpose
	// faults are what was wrong.
	faults []error
	said   time.Time
}

// begin starts everything but the scheduler. If it returns an error, nothing is left running.
func begin(ctx context.Context, dir string, set settings) (*system, error) {
	config := ec2.Config{Seed: 1, Speed: speed}
	box, err := sandbox.Start(ctx, sandbox.Options{
		Cluster: cluster.Options{Dir: dir, ControllerManager: true, ControllerManagerArgs: []string{"--kube-api-qps=100", "--kube-api-burst=200",
			"--controllers=deployment-controller,replicaset-controller,node-lifecycle-controller,pod-garbage-collector-controller,garbage-collector-controller,serviceaccount-controller"}},
		EC2: config, Kubelet: kubelet.Config{LeaseInterval: heartbeat}, Idle: true, Objects: []client.Object{},
		Progress: func(what string) { standalone.Say("starting %s", what) },
	})
	if err != nil {
		return nil, err
	}
	s := &system{Sandbox: box, set: set}
	recorded, cancel := context.WithCancel(context.Background())
	s.OnStop(cancel)
	s.recording, err = record.Start(recorded, s.Client(), &corev1.PodList{}, &corev1.NodeList{}, &karpv1.NodeClaimList{}, &karpv1.NodePoolList{})
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// wrong notes something that is wrong; the program goes on.
func (s *system) wrong(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	standalone.Say("WRONG: %v", err)
	s.faults = append(s.faults, err)
}

// look is what exists at a moment.
type look struct {
	claims []karpv1.NodeClaim
	nodes  []corev1.Node
	pods   []corev1.Pod
}

func (s *system) look(ctx context.Context) (look, error) {
	var claims karpv1.NodeClaimList
	var nodes corev1.NodeList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&claims, &nodes, &pods} {
		if err := s.Client().List(ctx, list); err != nil {
			return look{}, fmt.Errorf("listing: %w", err)
		}
	}
	return look{claims.Items, nodes.Items, pods.Items}, nil
}

// triesMost is how often in succession an API server may fail to answer. A slow one says so in many ways, down to a broken stream.
const triesMost = 10

// until looks every few seconds until missing returns "", at most for a time. Every minute it says what is missing, and at the end what was.
func (s *system) until(ctx context.Context, what string, most time.Duration, missing func(look) string) (done bool, err error) {
	tries := 0
	for begun := time.Now(); ; {
		if err := s.Failed(); err != nil && !s.stopped {
			return false, err
		}
		now, err := s.look(ctx)
		switch {
		case err != nil && ctx.Err() == nil && tries < triesMost: // the machine is busy
			tries++
			standalone.Say("%v; asking again", err)
			continue
		case err != nil:
			return false, err
		}
		tries = 0
		why := missing(now)
		if why == "" {
			return true, nil
		}
		if time.Since(s.said) >= time.Minute {
			s.said = time.Now()
			standalone.Say("%s: %s; %d claims, %d instances", what, why, len(now.claims), len(s.EC2.Live()))
		}
		if time.Since(begun) > most {
			s.wrong("%s: not within %s: %s", what, most, why)
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		case <-time.After(2 * time.Second):
		}
	}
}

// running returns how many pods of each app run and stay.
func (l look) running() map[string]int {
	out := map[string]int{}
	for i := range l.pods {
		if p := &l.pods[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			out[p.Labels["app"]]++
		}
	}
	return out
}

// allRun describes what is missing until these numbers of pods run, and no others are there.
func (l look) allRun(want map[string]int) string {
	have, sum := l.running(), 0
	for app, n := range want {
		if have[app] != n {
			return fmt.Sprintf("%d of %d pods of %s run", have[app], n, app)
		}
		sum += n
	}
	if len(l.pods) != sum {
		return fmt.Sprintf("%d pods, want %d", len(l.pods), sum)
	}
	return ""
}

// consistent describes what is missing until claims, Nodes and instances are the same machines, all in service.
func (s *system) consistent(l look) string {
	live := map[string]bool{}
	for _, in := range s.EC2.Live() {
		live[in.ID] = true
	}
	if len(l.claims) != len(live) || len(l.nodes) != len(live) {
		return fmt.Sprintf("%d claims, %d Nodes and %d instances", len(l.claims), len(l.nodes), len(live))
	}
	for i := range l.claims {
		c := &l.claims[i]
		if c.DeletionTimestamp != nil || !c.StatusConditions().IsTrue(karpv1.ConditionTypeInitialized) {
			return "claim " + c.Name + " isn't in service"
		}
	}
	return ""
}

// judge judges all that was written so far.
func (s *system) judge(ctx context.Context, reason karpv1.DisruptionReason) (*outside.Judge, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	events, err := s.recording.Events(ctx)
	if err != nil {
		return nil, err
	}
	j := outside.NewJudge(reason)
	for _, e := range events {
		j.Take(e)
	}
	return j, nil
}

// patch changes an object as kubectl patch --type merge would.
func (s *system) patch(ctx context.Context, o client.Object, format string, args ...any) error {
	if err := s.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))); err != nil {
		return fmt.Errorf("changing %T %s: %w", o, o.GetName(), err)
	}
	return nil
}
