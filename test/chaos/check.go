package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
	"github.com/dovetail-scheduler/dovetail/test/outside"
)

const (
	// ownerless is how long a live instance may be without an owner while a leader runs: longer than a launch may take to be recorded
	// or abandoned, plus a round of garbage collection.
	ownerless = 9 * time.Minute
	// mostLaunches in a history; its pods need a tenth of that. A launch loop makes more in minutes.
	mostLaunches = 300
)

// checker inspects the API objects and the EC2 journal after every step, remembers what it needs for the next step, and returns a
// violation if there is one. It knows what the harness itself has done: what a user deletes may be terminated.
type checker struct {
	reader reader
	steps  int
	last   *view
	at     time.Time

	pool        *karpv1.NodePool
	userEnded   sets.Set[string]    // provider IDs whose Node a user deleted
	userClaims  sets.Set[string]    // claims a user deleted
	userPods    sets.Set[types.UID] // pods a user or their controller deleted
	cloudEnded  sets.Set[string]    // provider IDs whose Node the cloud controller manager deleted
	mu          sync.Mutex          // guards cloudEnded and shared, which other goroutines write
	jumped      time.Duration       // how far clocks have been wrong, in all
	onlyLasting time.Time           // since when lasting faults go on after all others have ended; zero: they don't

	shared   map[string]int // claims per launch batch token, as recorded
	room     *room
	alone    map[string]time.Duration // by instance: how long it has had no owner while a leader ran
	occupied map[string]time.Time     // by node: when it last had pods of its own
	ended    map[string]string        // by claim: the apparent reason of its deletion
	spent    *spent
	edited   time.Time // when a user last edited what nodes come from
	lasting  *lasting
	emptied  *emptyings
	leads    leads
	extras   *extras
	buffered bool           // there are CapacityBuffers, which need nodes
	changes  int            // number of changes in the EC2 journal that have been checked
	made     map[string]int // number of checks, by rule
}

func newChecker() *checker {
	return &checker{
		reader: newReader(), userEnded: sets.New[string](), userClaims: sets.New[string](), userPods: sets.New[types.UID](),
		cloudEnded: sets.New[string](), made: map[string]int{},
		shared: map[string]int{}, room: newRoom(), alone: map[string]time.Duration{}, occupied: map[string]time.Time{}, ended: map[string]string{},
		spent: newSpent(),
	}
}

func (c *checker) learn(pool *karpv1.NodePool) { c.pool = pool.DeepCopy() }
func (c *checker) deletes(uid types.UID)       { c.userPods.Insert(uid); c.wants(uid) }
func (c *checker) userEnds(node *corev1.Node) {
	c.userEnded.Insert(node.Spec.ProviderID)
	c.ends(func(claim *karpv1.NodeClaim) bool { return claim.Status.NodeName == node.Name })
}
func (c *checker) cloudEnds(providerID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cloudEnded.Insert(providerID)
}

// writes is called with every object that a process has written on a claim, because a claim may be recorded and deleted between two
// steps.
func (c *checker) writes(body []byte) {
	var o struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(body, &o) != nil {
		return
	}
	if r, err := readRecord(o.Metadata.Annotations["dovetail.sh/launch-batch"]); err == nil && r.Token != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.shared[r.Token] = len(r.Claims)
	}
}

func (c *checker) userEndsClaim(name string) {
	c.userClaims.Insert(name)
	c.spent.ended[name] = true
	c.emptied.others(name)
}
func (c *checker) jumps(by time.Duration) {
	c.jumped += max(by, -by)
	c.emptied.jumps(max(by, -by))
}

// look checks the state of the cluster while this many leaders run, and watch events take up to lag.
func (c *checker) look(api *kubeapi.Server, sim *ec2.Sim, leaders int, lag time.Duration) error {
	v, err := c.reader.look(api, sim)
	if err != nil {
		return err
	}
	now := time.Now()
	c.steps++
	if leaders > 1 {
		if until := now.Add(2*step + lag); until.After(c.room.together) {
			c.room.together = until // the watches may have been slower in an earlier step
		}
	}
	for _, n := range v.nodes {
		if !c.empty(v, n.Name) {
			c.occupied[n.Name] = now
		}
	}
	var passed time.Duration
	if c.last != nil {
		passed = now.Sub(c.at)
	}
	nodes, err := c.room.look(v, now)
	c.made["room: no node has more pods than it holds"] += nodes
	c.leads.look(now, leaders, lag)
	errs := []error{c.launches(v), c.owners(v, passed, leaders > 0), err, c.emptied.look()}
	if c.last != nil {
		errs = append(errs, c.finalizers(v), c.endings(v, now), c.nodeEndings(v), c.terminations(v, sim.Changes()), c.protected(v), c.budget(v), c.plain(v), c.wasted(v, now), c.quiet(v), c.unchanged(v),
			c.emptied.since(func(claim string) bool { return c.ended[claim] == underutilized || c.ended[claim] == drifted }))
	}
	c.last, c.at = v, now
	return errors.Join(errs...)
}

// launches: every instance was launched with a token that was recorded before, no token launched more instances than were recorded for
// it, no claim has two instances, and the number of launches is bounded.
func (c *checker) launches(v *view) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, claim := range v.claims {
		r, err := c.reader.recordOf(claim)
		if err != nil {
			return err
		}
		if r != nil {
			c.shared[r.Token] = len(r.Claims)
		}
	}
	c.made["launches: one instance per recorded claim at most, under a token"] += len(v.instances)
	byBatch := map[string][]string{}
	byClaim := map[string][]string{}
	for _, in := range v.instances {
		if in.ClientToken == "" {
			return fmt.Errorf("instance %s was launched without a client token", in.ID)
		}
		batch := in.Tags["dovetail.sh/launch-batch"]
		byBatch[batch] = append(byBatch[batch], in.ID)
		if claim := in.Tags["karpenter.sh/nodeclaim"]; claim != "" && v.live[providerID(in)] {
			byClaim[claim] = append(byClaim[claim], in.ID)
		}
	}
	for batch, ids := range byBatch {
		if n, ok := c.shared[batch]; !ok || len(ids) > n {
			return fmt.Errorf("launch %s was recorded for %d claims and has %d instances: %v", batch, n, len(ids), ids)
		}
	}
	for claim, ids := range byClaim {
		if len(ids) > 1 {
			return fmt.Errorf("claim %s has %d living instances: %v", claim, len(ids), ids)
		}
	}
	owner := map[string]string{}
	for name, claim := range v.claims {
		if id := claim.Status.ProviderID; id != "" {
			if other, ok := owner[id]; ok {
				return fmt.Errorf("claims %s and %s have the same instance %s", other, name, id)
			}
			owner[id] = name
		}
	}
	if len(v.instances) > mostLaunches {
		return fmt.Errorf("%d instances were launched: that is a loop", len(v.instances))
	}
	return nil
}

// owners: no instance lives for long without a claim that has it or is waiting for it.
func (c *checker) owners(v *view, passed time.Duration, up bool) error {
	owned := map[string]bool{}
	waiting := map[string]bool{}
	for _, claim := range v.claims {
		owned[claim.Status.ProviderID] = true
		if r, err := c.reader.recordOf(claim); err == nil && r != nil && claim.Status.ProviderID == "" {
			waiting[r.Token] = true
		}
	}
	c.made["owners: a living instance has a claim, or its launch is under way"] += len(v.instances)
	for _, in := range v.instances {
		if !v.live[providerID(in)] || owned[providerID(in)] || waiting[in.Tags["dovetail.sh/launch-batch"]] {
			delete(c.alone, in.ID)
			continue
		}
		if up {
			c.alone[in.ID] += passed
		}
		if c.alone[in.ID] > ownerless {
			return fmt.Errorf("instance %s has been running for %s and nobody owns it", in.ID, c.alone[in.ID])
		}
	}
	return nil
}

// empty reports whether the node has no pod of its own: only daemons and pods that have ended.
func (c *checker) empty(v *view, node string) bool {
	for _, p := range v.pods {
		if p.Spec.NodeName == node && p.Labels[appLabel] != daemon && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			return false
		}
	}
	return true
}

func (c *checker) podsOn(v *view, node string) string {
	var out []string
	for _, p := range v.pods {
		if p.Spec.NodeName == node {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// budget: no more empty nodes are terminated at the same time than the pool allows. Nodes with pods are judged when their claim is deleted.
func (c *checker) budget(v *view) error {
	going, nodes := 0, 0
	for name, claim := range v.claims {
		if condition(claim, karpv1.ConditionTypeInitialized) {
			nodes++
		}
		if claim.DeletionTimestamp != nil && c.ended[name] == "empty" && v.live[claim.Status.ProviderID] {
			going++
		}
	}
	c.made["budgets: no more empty nodes end at once than the pool allows"]++
	if allowed := outside.Allowed(c.pool.Spec.Disruption.Budgets, nodes, karpv1.DisruptionReasonEmpty); going > allowed {
		return fmt.Errorf("%d empty nodes are being ended at the same time, the budgets allow %d of %d", going, allowed, nodes)
	}
	return nil
}

// protected: a pod that asks not to be disrupted is only deleted by a user, with its instance, or at the end of a termination grace
// period.
func (c *checker) protected(v *view) error {
	for uid, was := range c.last.pods {
		if was.Annotations[karpv1.DoNotDisruptAnnotationKey] != "true" || was.Spec.NodeName == "" || was.DeletionTimestamp != nil || c.userPods.Has(uid) {
			continue
		}
		c.made["protection: a pod that asks not to be disrupted stays"]++
		if is := v.pods[uid]; is != nil && is.DeletionTimestamp == nil {
			continue
		}
		node := c.last.nodes[was.Spec.NodeName]
		if node != nil && c.extras.repaired(node.Spec.ProviderID, c.at.Add(step), c.jumped) {
			continue // a repair has a deadline
		}
		if node == nil || !outside.Ready(node) || !v.live[node.Spec.ProviderID] || c.pool.Spec.Template.Spec.TerminationGracePeriod != nil {
			continue
		}
		return fmt.Errorf("pod %s on node %s asks not to be disrupted and was deleted", was.Name, was.Spec.NodeName)
	}
	return nil
}
