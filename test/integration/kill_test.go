package integration

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// killed kills the scheduler once, at a moment that the test chooses.
type killed struct {
	e    *env
	once sync.Once
	done chan struct{}
}

func mortal(s *setting) { s.mortal = true }

func (e *env) killer() *killed { return &killed{e: e, done: make(chan struct{})} }

func (k *killed) now() {
	k.once.Do(func() {
		k.e.sched.Kill()
		close(k.done)
	})
}

func (k *killed) first() bool {
	select {
	case <-k.done:
		return false
	default:
		return true
	}
}

// afterwards waits for the kill, starts the scheduler again and checks that every pod is bound, and that exactly the needed instances
// are live.
func (k *killed) afterwards(pods int) {
	e := k.e
	e.Helper()
	select {
	case <-k.done:
	case <-e.wait().Done():
		e.Fatal("the moment to kill the scheduler never came")
	}
	if err := e.sched.Restart(e.ctx); err != nil {
		e.Fatal(err)
	}
	e.bound("web", pods)
	e.settled(len(e.claims()))
	used := map[string]bool{}
	for _, p := range e.podsOf("web") {
		used[p.Spec.NodeName] = true
	}
	if live := len(e.sim.Live()); live != len(used) {
		e.Errorf("%d instances live, pods run on %d nodes", live, len(used))
	}
	for token, ids := range e.sim.LaunchesByToken() {
		if token == "" {
			e.Errorf("instances without a token: %v", ids)
		}
	}
	if all, live := e.launches(), len(e.sim.Live()); all != live {
		e.Errorf("%d instances were launched, %d are needed", all, live)
	}
}

// anti puts every pod on its own node: 50 pods are 50 identical NodeClaims in one launch batch.
func anti(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}}}}}}
}

func TestKilledBetweenClaimAndFleet(t *testing.T) {
	t.Parallel()
	e := start(t, mortal)
	k := e.killer()
	e.sim.Before("CreateFleet", func(*ec2.Request) *ec2.Fault {
		if !k.first() {
			return nil
		}
		return &ec2.Fault{Call: k.now, Drop: true}
	})
	e.apply(nodeClass, nodePool)
	e.pods("web", 20, "1", "1Gi", anti)
	k.afterwards(20)
}

func TestKilledBetweenFleetAndItsRecord(t *testing.T) {
	t.Parallel()
	e := start(t, mortal)
	k := e.killer()
	e.sim.After("CreateFleet", func(*ec2.Request, *ec2.Answer) *ec2.Fault {
		if !k.first() {
			return nil
		}
		return &ec2.Fault{Call: k.now, Drop: true}
	})
	e.apply(nodeClass, nodePool)
	e.pods("web", 50, "1", "1Gi", anti)
	k.afterwards(50)
	for token, ids := range e.sim.LaunchesByToken() {
		if len(ids) != 50 {
			t.Errorf("token %s launched %d instances, want one wave of 50", token, len(ids))
		}
	}
}

func TestKilledBetweenFleetAndNode(t *testing.T) {
	t.Parallel()
	e := start(t, mortal)
	k := e.killer()
	e.sim.Before("DescribeInstances", func(*ec2.Request) *ec2.Fault {
		if !k.first() || len(e.sim.Live()) == 0 {
			return nil
		}
		return &ec2.Fault{Call: k.now, Drop: true}
	})
	e.apply(nodeClass, nodePool)
	e.pods("web", 20, "1", "1Gi", anti)
	k.afterwards(20)
}

func TestKilledBetweenNodeAndBind(t *testing.T) {
	t.Parallel()
	e := start(t, mortal)
	e.apply(nodeClass, nodePool)
	k := e.killer()
	// Bare pods are bound once their nodes have registered, so there is time between the creation of the Node and the binding.
	e.pods("web", 20, "1", "1Gi", anti, func(p *corev1.Pod) { p.OwnerReferences = nil })
	if _, err := cluster.Until(e.wait(), e.api, &corev1.NodeList{}, func(nodes []*corev1.Node) (bool, string, error) {
		return len(nodes) > 0, "a node", nil
	}); err != nil {
		t.Fatal(err)
	}
	k.now()
	k.afterwards(20)
}

// Pods that are deleted while no scheduler runs leave nothing behind, whatever the first leader had promised them.
func TestPodsDeletedWhileTheSchedulerIsDead(t *testing.T) {
	t.Parallel()
	e := start(t, mortal)
	e.apply(nodeClass, nodePool)
	k := e.killer()
	e.sim.Before("CreateFleet", func(*ec2.Request) *ec2.Fault {
		if !k.first() {
			return nil
		}
		return &ec2.Fault{Call: k.now, Drop: true}
	})
	e.pods("web", 10, "1", "1Gi", anti)
	<-k.done
	for _, p := range e.podsOf("web") {
		if err := e.api.Delete(e.ctx, &p); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.sched.Restart(e.ctx); err != nil {
		t.Fatal(err)
	}
	// Whether it was launched or not, the launch batch is resolved: NodeClaims and instances agree.
	_, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		return len(claims) == len(e.sim.Live()), fmt.Sprintf("as many instances (%d) as claims (%d)", len(e.sim.Live()), len(claims)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	e.noDoubles()
}
