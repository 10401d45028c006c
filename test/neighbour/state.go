package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// state is what the API server and EC2 have at a moment.
type state struct {
	claims    map[types.UID]*karpv1.NodeClaim
	nodes     []corev1.Node
	pods      []corev1.Pod
	pools     map[string]*karpv1.NodePool
	class     *ec2nc.EC2NodeClass
	instances []string // IDs of those that are pending or running
}

func (s *system) state(ctx context.Context) (*state, error) {
	var claims karpv1.NodeClaimList
	var pools karpv1.NodePoolList
	var nodes corev1.NodeList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&claims, &pools, &nodes, &pods} {
		if err := s.Client().List(ctx, list); err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	out := &state{claims: map[types.UID]*karpv1.NodeClaim{}, pools: map[string]*karpv1.NodePool{}, nodes: nodes.Items, pods: pods.Items, class: &ec2nc.EC2NodeClass{}}
	if err := s.Client().Get(ctx, client.ObjectKey{Name: className}, out.class); err != nil {
		return nil, fmt.Errorf("reading the node class: %w", err)
	}
	for i := range claims.Items {
		out.claims[claims.Items[i].UID] = &claims.Items[i]
	}
	for i := range pools.Items {
		out.pools[pools.Items[i].Name] = &pools.Items[i]
	}
	for _, in := range s.EC2.Live() {
		out.instances = append(out.instances, in.ID)
	}
	return out, nil
}

// missing says what keeps the state from being so many nodes at rest, each with the DaemonSet's pod and one more: "" if nothing does.
func (st *state) missing(n int) string {
	running := 0
	for i := range st.pods {
		if p := &st.pods[i]; cluster.Running(p) && p.DeletionTimestamp == nil {
			running++
		}
	}
	initialized := 0
	for i := range st.nodes {
		if c := &st.nodes[i]; c.Labels[karpv1.NodeInitializedLabelKey] == "true" && cluster.Ready(c) && c.DeletionTimestamp == nil {
			initialized++
		}
	}
	if len(st.claims) == n && len(st.nodes) == n && initialized == n && len(st.instances) == n && running == 2*n && len(st.pods) == 2*n {
		return ""
	}
	return fmt.Sprintf("%d claims, %d of %d nodes initialized, %d instances, %d of %d pods running", len(st.claims), initialized, len(st.nodes), len(st.instances), running, len(st.pods))
}

// wrong returns what in the state contradicts itself: claims without a node or an instance, another instance profile than the
// class's, other hashes than those of pool and class.
func (st *state) wrong() (out []string) {
	nodes, live := map[string]string{}, map[string]bool{}
	for _, n := range st.nodes {
		nodes[n.Name] = n.Spec.ProviderID
	}
	for _, id := range st.instances {
		live[id] = true
	}
	for _, c := range st.claims {
		id := c.Status.ProviderID
		if nodes[c.Status.NodeName] != id {
			out = append(out, fmt.Sprintf("claim %s has instance %s, its node %s has %s", c.Name, id, c.Status.NodeName, nodes[c.Status.NodeName]))
		}
		if !live[id[strings.LastIndexByte(id, '/')+1:]] {
			out = append(out, fmt.Sprintf("claim %s has instance %s, which EC2 doesn't run", c.Name, id))
		}
		if p := st.pools[c.Labels[karpv1.NodePoolLabelKey]]; p == nil {
			out = append(out, fmt.Sprintf("claim %s has no pool", c.Name))
		} else {
			for _, key := range []string{karpv1.NodePoolHashAnnotationKey, karpv1.NodePoolHashVersionAnnotationKey} {
				if c.Annotations[key] != p.Annotations[key] || c.Annotations[key] == "" {
					out = append(out, fmt.Sprintf("%s of claim %s is %q, its pool's is %q", key, c.Name, c.Annotations[key], p.Annotations[key]))
				}
			}
		}
		if have, want := c.Annotations[ec2nc.AnnotationInstanceProfile], st.class.Status.InstanceProfile; have != want || have == "" {
			out = append(out, fmt.Sprintf("claim %s names the instance profile %q, its class %q: Karpenter would delete it after a change of the class's role", c.Name, have, want))
		}
		for _, key := range []string{ec2nc.AnnotationEC2NodeClassHash, ec2nc.AnnotationEC2NodeClassHashVersion} {
			if c.Annotations[key] != st.class.Annotations[key] || c.Annotations[key] == "" {
				out = append(out, fmt.Sprintf("%s of claim %s is %q, its class's is %q", key, c.Name, c.Annotations[key], st.class.Annotations[key]))
			}
		}
	}
	slices.Sort(out)
	return out
}

// hashes are the hashes that pools and class are annotated with.
func (st *state) hashes() map[string]string {
	out := map[string]string{"class " + st.class.Name: st.class.Annotations[ec2nc.AnnotationEC2NodeClassHashVersion] + "/" + st.class.Annotations[ec2nc.AnnotationEC2NodeClassHash]}
	for _, p := range st.pools {
		out["pool "+p.Name] = p.Annotations[karpv1.NodePoolHashVersionAnnotationKey] + "/" + p.Annotations[karpv1.NodePoolHashAnnotationKey]
	}
	return out
}

// conditions counts the claims by each condition's status, in one line.
func (st *state) conditions() string {
	counts := map[string]int{}
	for _, c := range st.claims {
		for _, condition := range c.Status.Conditions {
			counts[condition.Type+"="+string(condition.Status)]++
		}
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(out, ", ")
}

// without returns the claims that the other state doesn't have, by name.
func (st *state) without(other *state) (out []*karpv1.NodeClaim) {
	for uid, c := range st.claims {
		if other.claims[uid] == nil {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *karpv1.NodeClaim) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// pending describes the pods that have no node.
func (s *system) pending(st *state) (out string) {
	var events corev1.EventList
	if err := s.Client().List(context.Background(), &events); err != nil {
		return fmt.Sprintf("\nlisting events: %v", err)
	}
	for _, p := range st.pods {
		if cluster.Bound(&p) {
			continue
		}
		out += fmt.Sprintf("\n%s %+v", p.Name, p.Status.Conditions)
		for _, e := range events.Items {
			if e.InvolvedObject.UID == p.UID {
				out += fmt.Sprintf("\n  %s %s: %s", cmp.Or(e.ReportingController, e.Source.Component), e.Reason, e.Message)
			}
		}
	}
	return out
}

// settled waits until so many nodes are at rest, checks them, and returns the state.
func (s *system) settled(ctx context.Context, n int) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for said := time.Now(); ; {
		if err := s.failed(); err != nil {
			return nil, err
		}
		st, err := s.state(ctx)
		if err != nil {
			return nil, err
		}
		missing := st.missing(n)
		if missing == "" {
			for _, w := range st.wrong() {
				s.fault("%s", w)
			}
			return st, nil
		}
		if time.Since(said) >= 15*time.Second {
			standalone.Say("  waiting for %d nodes: %s", n, missing)
			said = time.Now()
		}
		select {
		case <-ctx.Done():
			return st, fmt.Errorf("waiting for %d nodes: %s: %w%s", n, missing, context.Cause(ctx), s.pending(st))
		case <-time.After(time.Second):
		}
	}
}
