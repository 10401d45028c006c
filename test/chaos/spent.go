package chaos

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Spending without any use, as it can be seen from outside.
//
// An instance has served when a pod has run on it for two minutes. One that ended before has failed, unless a user or the cloud ended
// it, or none of the pods it was launched for is waiting, so that perhaps it was no longer needed.
//
// How many may fail follows from the guard's rules. All instances that one plan launches for a key are a round, and fail as a whole;
// that may happen twice, because what was launched before the fault began serves while the first round of the fault is under way. Then
// instances are launched one by one for that key: at once, then at most one in ten minutes, whatever changes, and one more each when
// the fault ends, on the pool and on the class. While nothing changes the pauses double, from a quarter of an hour. Keys are the workloads
// that instances failed for, the image, and each of the three zones. The bound of instance hours is that number times the longest life of an instance that failed.
const (
	servedAfter  = 2*time.Minute - 2*step
	rounds       = 2
	probeSpacing = 10 * time.Minute
	firstPause   = 15 * time.Minute // each later one is twice as long
	machineKeys  = 4
)

// spent is what is known of instances and the pods they were launched for.
type spent struct {
	bought map[string]*bought        // by claim
	rounds map[string]map[string]int // by key and round: how many instances; the key of all is ""
	failed []*bought
	wanted map[string]time.Time // by app: when a user last deleted a pod of it
	paused []string             // texts of events about breakers whose probe failed
	// delayed is for how long the first probe of a breaker had to wait, at most.
	delayed time.Duration
	// ended are claims whose instances users or the cloud have terminated.
	ended map[string]bool
}

type bought struct {
	claim    string
	keys     []string
	launched time.Time
	life     time.Duration
	running  map[types.UID]time.Time
	over     bool // it has its verdict
}

func newSpent() *spent {
	return &spent{bought: map[string]*bought{}, rounds: map[string]map[string]int{}, wanted: map[string]time.Time{}, ended: map[string]bool{}}
}

// wants records that a user deletes a pod: an instance that was launched for such a pod may be terminated.
func (c *checker) wants(uid types.UID) {
	if c.last != nil && c.last.pods[uid] != nil {
		c.spent.wanted[c.last.pods[uid].Labels[appLabel]] = time.Now()
	}
}

// wasted: the hours of instances that failed stay within the bound.
func (c *checker) wasted(v *view, now time.Time) error {
	s := c.spent
	for _, claim := range v.claims {
		if err := s.take(claim); err != nil {
			return err
		}
	}
	s.look(v, now)
	for _, in := range v.instances {
		b := s.bought[in.Tags["karpenter.sh/nodeclaim"]]
		if b == nil || b.over {
			continue
		}
		b.launched = in.Launched
		if v.live[providerID(in)] {
			continue
		}
		b.over, b.life = true, in.Ending.Sub(in.Launched)
		if c.userClaims.Has(b.claim) || c.userEnded.Has(providerID(in)) || c.byCloud(providerID(in)) || !strings.HasPrefix(in.Reason, "Client.UserInitiatedShutdown") {
			continue
		}
		if c.unwanted(v, b) {
			continue
		}
		s.failed = append(s.failed, b)
		c.made["spending: machines that failed"]++
	}
	return c.bound(now)
}

// take records what a claim's instance was launched for.
func (s *spent) take(claim *karpv1.NodeClaim) error {
	value := claim.Annotations["dovetail.sh/purchase"]
	if s.bought[claim.Name] != nil || value == "" {
		return nil
	}
	r, err := unpacked(value)
	var p struct {
		Round     string              `json:"round"`
		Workloads []map[string]string `json:"workloads"`
	}
	if err == nil {
		err = json.NewDecoder(r).Decode(&p)
	}
	if err != nil {
		return fmt.Errorf("claim %s: what it was bought for can't be read: %w", claim.Name, err)
	}
	b := &bought{claim: claim.Name, running: map[types.UID]time.Time{}}
	for _, w := range p.Workloads {
		_, app, _ := strings.Cut(w["owner"], "/")
		b.keys = append(b.keys, app)
	}
	s.bought[claim.Name] = b
	for _, k := range append(slices.Clone(b.keys), "") {
		if s.rounds[k] == nil {
			s.rounds[k] = map[string]int{}
		}
		s.rounds[k][p.Round]++
	}
	return nil
}

// look marks instances as served on which a pod has run long enough.
func (s *spent) look(v *view, now time.Time) {
	on := map[string]*bought{}
	for name, claim := range v.claims {
		if b := s.bought[name]; b != nil && !b.over && claim.Status.NodeName != "" {
			on[claim.Status.NodeName] = b
		}
	}
	for uid, p := range v.pods {
		b := on[p.Spec.NodeName]
		if b == nil || p.Status.Phase != corev1.PodRunning || p.Labels[appLabel] == daemon {
			continue
		}
		if b.running[uid].IsZero() {
			b.running[uid] = now
		}
		b.over = b.over || now.Sub(b.running[uid]) >= servedAfter
	}
}

// unwanted reports whether the instance may no longer be needed.
func (c *checker) unwanted(v *view, b *bought) bool {
	if len(b.keys) == 0 && len(c.extras.buffers) > 0 { // it was bought for a buffer, which its user may have changed
		return true
	}
	for _, app := range b.keys {
		if !c.spent.wanted[app].Before(b.launched) {
			return true
		}
	}
	for _, p := range v.pods {
		if p.Spec.NodeName == "" && (len(b.keys) == 0 || slices.Contains(b.keys, p.Labels[appLabel])) {
			return false
		}
	}
	return true
}

// bound checks how many instances may have failed by now: since the first did, and since the lasting faults go on alone.
func (c *checker) bound(now time.Time) error {
	if len(c.spent.failed) == 0 {
		return nil
	}
	c.made["spending: looked at with machines that failed"]++
	if err := c.spent.within(time.Time{}, func(since time.Time) int { return 1 + int((now.Sub(since)+c.jumped)/probeSpacing) + 2 }); err != nil || c.onlyLasting.IsZero() {
		return err
	}
	c.made["spending: looked at while lasting faults go on alone"]++
	// Nothing changes any more, so that there are no early probes, but for one that was due already.
	return c.spent.within(c.onlyLasting, func(time.Time) int {
		probes := 2
		for pause := firstPause; pause <= now.Sub(c.onlyLasting)+c.jumped; pause = 2*pause + firstPause {
			probes++
		}
		return probes
	})
}

// within checks how many instances have failed that were launched after a moment. probes is how many may have been launched for a key of
// which instances have failed since then.
func (s *spent) within(after time.Time, probes func(since time.Time) int) error {
	since := map[string]time.Time{}
	var hours, longest time.Duration
	failed := 0
	for _, b := range s.failed {
		if !b.launched.After(after) {
			continue
		}
		failed++
		hours, longest = hours+b.life, max(longest, b.life)
		for _, k := range append(slices.Clone(b.keys), "") {
			if since[k].IsZero() {
				since[k] = b.launched
			}
		}
	}
	most := 0
	for k, at := range since {
		largest, n := 0, probes(at)
		for _, in := range s.rounds[k] {
			largest = max(largest, in)
		}
		if k == "" {
			n *= machineKeys
		}
		most += rounds*largest + n
	}
	if allowed := time.Duration(most) * longest; failed > most || hours > allowed {
		return fmt.Errorf("%d machines were bought in vain, %s in all, the longest for %s; no more than %d may be: %s of machine time", failed, hours, longest, most, allowed)
	}
	return nil
}

// hears is called with events that processes write: a failed probe is the beginning of a pause. Without a lasting fault this must not
// happen: when a breaker opens, a probe is launched at once, and that one registers. Only after users have deleted machines that had done no work
// does the first probe wait, too.
func (c *checker) hears(body []byte) {
	var e struct {
		Reason, Note, Message string
	}
	if json.Unmarshal(body, &e) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	said := e.Note + e.Message
	switch e.Reason {
	case "ProbeFailed":
		c.spent.paused = append(c.spent.paused, said)
	case "LaunchesPaused":
		if at := openedText.FindStringSubmatch(said); at != nil {
			since, err := time.Parse(time.RFC3339, at[1])
			from, err2 := time.Parse(time.RFC3339, at[2])
			if err == nil && err2 == nil {
				c.spent.delayed = max(c.spent.delayed, from.Sub(since))
			}
		}
	}
}

// openedText has since when launches are paused, and from when on one machine is tried.
var openedText = regexp.MustCompile(`paused since ([^ ;]+); one machine is tried from ([^ ,]+) on`)

// patience returns how long it may take until everything is consistent after the faults have stopped.
func (c *checker) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spent.paused) > 0 {
		return settleTime + pauseTime
	}
	return settleTime + min(c.spent.delayed, pauseTime)
}

// ends records whose instance it is when users or the cloud delete a Node, an instance or a claim.
func (c *checker) ends(is func(*karpv1.NodeClaim) bool) {
	if c.last == nil {
		return
	}
	for name, claim := range c.last.claims {
		if is(claim) {
			c.spent.ended[name] = true
		}
	}
}

// blamed matches the claim that a pause names.
var blamed = regexp.MustCompile(`NodeClaim (\S+): `)

// quiet: no pause begins before a lasting fault, unless the instance that failed was terminated by a user or the cloud, or is one of
// those that never register.
func (c *checker) quiet(v *view) error {
	for _, in := range v.instances {
		if c.userEnded.Has(providerID(in)) || c.byCloud(providerID(in)) || in.Reason != "" && !strings.HasPrefix(in.Reason, "Client.UserInitiatedShutdown") {
			c.spent.ended[in.Tags["karpenter.sh/nodeclaim"]] = true
			c.ends(func(claim *karpv1.NodeClaim) bool { return claim.Status.ProviderID == providerID(in) }) // its tags may not have been written
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made["pauses: none without a fault that lasts"]++
	if len(c.lasting.faults) > 0 && !c.lasting.began.IsZero() {
		return nil
	}
	for _, said := range c.spent.paused {
		claim := blamed.FindStringSubmatch(said)
		if claim == nil {
			return fmt.Errorf("a pause begins and names no claim: %s", said)
		}
		if c.lasting.never && strings.Contains(said, "no kubelet registered within") {
			continue
		}
		if !c.spent.ended[claim[1]] {
			return fmt.Errorf("a pause begins, though nothing lasts: %s", said)
		}
	}
	return nil
}
