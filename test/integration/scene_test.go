package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// sceneLabel is a label on the nodes of a scene's pool; the scene's pods select it.
const sceneLabel = "scene"

// scene is one of several tests that share a cluster and run at the same time. Each has its own pool, and looks at nothing outside it.
type scene struct {
	*env
	name string
}

// scenes runs all scenes and returns when they have finished.
func (e *env) scenes(all map[string]sceneOf) {
	e.Run("scenes", func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		for title, s := range all {
			// Not by t.Parallel, which lets no more run than tests with a control plane of their own may: all of them are one cluster's.
			wg.Go(func() {
				t.Run(title, func(t *testing.T) {
					own := *e
					own.T = t
					sc := &scene{env: &own, name: strings.ReplaceAll(title, " ", "-")}
					text := strings.Replace(nodePool, "metadata: {name: default}\nspec:\n  template:\n", fmt.Sprintf(
						"metadata: {name: %[1]s}\nspec:\n  template:\n    metadata: {labels: {%[2]s: %[1]s}}\n", sc.name, sceneLabel), 1)
					for i := 0; i+1 < len(s.change); i += 2 {
						if !strings.Contains(text, s.change[i]) {
							t.Fatalf("the pool has no %q", s.change[i])
						}
						text = strings.Replace(text, s.change[i], s.change[i+1], 1)
					}
					sc.apply(text)
					s.play(sc)
				})
			})
		}
	})
}

// sceneOf describes a scene: the function that plays it, and how its pool's manifest differs from nodePool, as pairs of old and new
// text.
type sceneOf struct {
	change []string
	play   func(s *scene)
}

// until waits until ok returns true, for as long as the cluster lives: scenes share two cores, so no shorter time is certain to be
// enough.
func (s *scene) until(what string, ok func() (bool, string)) {
	s.Helper()
	said := ""
	if err := wait.PollUntilContextCancel(s.ctx, 200*time.Millisecond, true, func(context.Context) (done bool, _ error) {
		done, said = ok()
		return done, nil
	}); err != nil {
		s.Fatalf("waiting for %s: %s", what, said)
	}
}

// here restricts a pod to nodes of the scene.
func (s *scene) here(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{sceneLabel: s.name} }

// web creates a ReplicaSet of n small pods, which fit on one node together, and waits until they run.
func (s *scene) web(n int32, change ...func(*corev1.PodTemplateSpec)) []corev1.Pod {
	s.Helper()
	rs := replicas(s.name, n, "100m", "64Mi").(*appsv1.ReplicaSet)
	rs.Spec.Template.Spec.NodeSelector = map[string]string{sceneLabel: s.name}
	for _, f := range change {
		f(&rs.Spec.Template)
	}
	s.create(rs)
	return s.alive(int(n))
}

// alive waits until the scene has n running pods that are not being deleted, and returns them.
func (s *scene) alive(n int) (out []corev1.Pod) {
	s.Helper()
	s.until(fmt.Sprintf("%d running pods", n), func() (bool, string) {
		out = nil
		said := []string{}
		for _, p := range s.podsOf(s.name) {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				out = append(out, p)
			}
			said = append(said, fmt.Sprintf("%s %s on %q (ending: %v)", p.Name, p.Status.Phase, p.Spec.NodeName, p.DeletionTimestamp != nil))
		}
		return len(out) == n, strings.Join(said, ", ")
	})
	return out
}

// own returns the scene's NodeClaims.
func (s *scene) own() (out []*karpv1.NodeClaim) {
	s.Helper()
	for _, c := range s.claims() {
		if c.Labels[karpv1.NodePoolLabelKey] == s.name {
			out = append(out, c)
		}
	}
	return out
}

// machine waits until the scene has exactly one NodeClaim, initialized, and returns it.
func (s *scene) machine() (out *karpv1.NodeClaim) {
	s.Helper()
	s.until("one initialized machine", func() (bool, string) {
		all := s.own()
		if len(all) != 1 {
			return false, fmt.Sprintf("%d claims", len(all))
		}
		out = all[0]
		return initialized(out), fmt.Sprint(plain(out.GetConditions()))
	})
	return out
}

// over waits until a NodeClaim, its Node and its instance are terminated.
func (s *scene) over(claim *karpv1.NodeClaim) {
	s.Helper()
	s.until("the end of claim "+claim.Name, func() (bool, string) {
		for _, c := range s.own() {
			if c.UID == claim.UID {
				return false, fmt.Sprint(plain(c.GetConditions()))
			}
		}
		return true, ""
	})
	if n := s.nodes()[claim.Status.NodeName]; n != nil && n.Spec.ProviderID == claim.Status.ProviderID {
		s.Errorf("Node %s is left", n.Name)
	}
	if s.lives(claim) {
		s.Errorf("the instance of claim %s is left", claim.Name)
	}
}

func (s *scene) lives(claim *karpv1.NodeClaim) bool {
	for _, in := range s.sim.Live() {
		if strings.HasSuffix(claim.Status.ProviderID, "/"+in.ID) {
			return true
		}
	}
	return false
}

// node returns the NodeClaim's Node.
func (s *scene) node(claim *karpv1.NodeClaim) *corev1.Node {
	s.Helper()
	n := s.nodes()[claim.Status.NodeName]
	if n == nil {
		s.Fatalf("claim %s has no Node", claim.Name)
	}
	return n
}

func (s *scene) delete(o client.Object, opts ...client.DeleteOption) {
	s.Helper()
	if err := client.IgnoreNotFound(s.api.Delete(s.ctx, o, opts...)); err != nil {
		s.Fatal(err)
	}
}

// wantEvent waits for an event about a node's drain.
func (s *scene) wantEvent(node, reason, words string) {
	s.Helper()
	s.until(fmt.Sprintf("event %s of %s", reason, node), func() (bool, string) {
		var events corev1.EventList
		if err := s.api.List(s.ctx, &events, client.InNamespace("default")); err != nil {
			return false, err.Error()
		}
		last := "no such event"
		for _, v := range events.Items {
			if v.InvolvedObject.Name == node && v.Reason == reason {
				last = v.Message
				if strings.Contains(v.Message, words) {
					return true, ""
				}
			}
		}
		return false, last
	})
}

// untouched fails if one of these pods is being deleted or is gone.
func (s *scene) untouched(pods []corev1.Pod) {
	s.Helper()
	now := map[string]corev1.Pod{}
	for _, p := range s.podsOf(s.name) {
		now[string(p.UID)] = p
	}
	for _, p := range pods {
		if q, ok := now[string(p.UID)]; !ok || q.DeletionTimestamp != nil {
			s.Errorf("pod %s has been ended", p.Name)
		}
	}
}

// terminations records which pods were on the nodes of instances when TerminateInstances was called for those.
type terminations struct {
	mu   sync.Mutex
	pods map[string][]corev1.Pod // pods by instance, at the first call
}

func (e *env) terminations() *terminations {
	w := &terminations{pods: map[string][]corev1.Pod{}}
	e.sim.Before("TerminateInstances", func(r *ec2.Request) *ec2.Fault {
		var nodes corev1.NodeList
		var pods corev1.PodList
		if e.api.List(e.ctx, &nodes) != nil || e.api.List(e.ctx, &pods) != nil {
			return nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for name, ids := range r.Form {
			if !strings.HasPrefix(name, "InstanceId.") {
				continue
			}
			id := ids[0]
			if _, again := w.pods[id]; again {
				continue
			}
			w.pods[id] = nil
			for _, n := range nodes.Items {
				if !strings.HasSuffix(n.Spec.ProviderID, "/"+id) {
					continue
				}
				for _, p := range pods.Items {
					if p.Spec.NodeName == n.Name {
						w.pods[id] = append(w.pods[id], p)
					}
				}
			}
		}
		return nil
	})
	return w
}

// of returns the names of the pods that were on a NodeClaim's node when its instance was terminated.
func (w *terminations) of(claim *karpv1.NodeClaim) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods[claim.Status.ProviderID[strings.LastIndexByte(claim.Status.ProviderID, '/')+1:]] {
		out = append(out, p.Name)
	}
	return out
}
