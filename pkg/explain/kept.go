package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// NodeOutOfDate is the kind of answer about a node whose reason to be kept has been overtaken by what is in the cluster now.
const NodeOutOfDate = "OutOfDate"

// keptReason is why a node is kept, as the annotation of its NodeClaim says.
type keptReason struct {
	kind consolidation.Kind
	text string
	// written is when the annotation was written, which happens when the reason changes; zero: not known.
	written time.Time
}

// keptReasonOf reads the annotations; false: there are none.
func keptReasonOf(nc *karpv1.NodeClaim) (keptReason, bool) {
	kind, text, ok := strings.Cut(nc.Annotations[objects.AnnotationKept], ": ")
	k := keptReason{kind: consolidation.Kind(kind), text: text}
	if at, err := time.Parse(time.RFC3339, nc.Annotations[objects.AnnotationKeptSince]); err == nil {
		k.written = at
	}
	return k, ok
}

// keptState answers for a node that is kept.
func (c *Cluster) keptState(a *Answer, n *corev1.Node, k keptReason) {
	since := ""
	if !k.written.IsZero() {
		since = fmt.Sprintf(" (written %s ago)", c.ago(k.written))
	}
	why, late := overtaken(c, n, k)
	if why != "" {
		a.Kind, a.Summary = NodeOutOfDate, fmt.Sprintf("was kept for a reason that is out of date: %s. The reason%s: %s", why, since, k.text)
		a.section("What to do", overtakenAdvice)
		return
	}
	a.Kind, a.Summary = string(k.kind), "is kept: "+k.text+since
	if late > 0 {
		a.Summary += fmt.Sprintf("; that was %s ago, and what keeps it now is written within %s", Age(late), Age(doubtAfter(k.kind)))
	}
	a.adviseKept(k.kind)
}

const overtakenAdvice = "nothing: the scheduler's next passes decide anew. If it stays like this for minutes, does the scheduler run?"

var (
	endOfReason = regexp.MustCompile(`\bat (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)`)
	podInReason = regexp.MustCompile(`\bpod ([a-z0-9][a-z0-9.-]*)/([a-z0-9][a-z0-9.-]*[a-z0-9])`)
	// timed are the kinds whose text names when they end.
	timed = []consolidation.Kind{consolidation.NotQuiet, consolidation.Young, consolidation.Received, consolidation.WantOfSpot}
)

// doubtAfter is how long after its end a reason with a time may still be there while the scheduler runs: the annotation stays for a minute at least, and
// for a quarter of an hour if its text alone changes, as the end of NotQuiet does with each pod that comes or goes (pkg/disruption/kept); a minute more is
// for the pass that decides and writes.
func doubtAfter(k consolidation.Kind) time.Duration {
	if k == consolidation.NotQuiet {
		return 16 * time.Minute
	}
	return 2 * time.Minute
}

// overtaken says how the cluster contradicts a reason, which may be some passes old; empty: it doesn't. Without a contradiction, late is for how long the
// reason's time has been over.
func overtaken(c *Cluster, n *corev1.Node, k keptReason) (why string, late time.Duration) {
	if slices.Contains(timed, k.kind) {
		if m := endOfReason.FindStringSubmatch(k.text); m != nil {
			if end, err := time.Parse(time.RFC3339, m[1]); err == nil && end.Before(c.Now) {
				if late = c.Now.Sub(end); late > doubtAfter(k.kind) {
					return fmt.Sprintf("its time was over %s ago, so that the node is due to be looked at again", Age(late)), 0
				}
			}
		}
	}
	if k.kind == consolidation.NotReady && objects.Ready(n) && n.DeletionTimestamp.IsZero() {
		return "the node is initialized and Ready now", 0
	}
	on := c.podsOn(n.Name)
	if strings.HasPrefix(k.text, "the node is empty") {
		used := 0
		for _, pod := range on {
			if !objects.OfDaemonSet(pod) && pod.Annotations[corev1.MirrorPodAnnotationKey] == "" && pod.DeletionTimestamp == nil {
				used++
			}
		}
		if used > 0 {
			return "the node has " + plural(used, "pod") + " beside those of DaemonSets now", 0
		}
	}
	if m := podInReason.FindStringSubmatch(k.text); m != nil && !slices.ContainsFunc(on, func(p *corev1.Pod) bool { return p.Namespace == m[1] && p.Name == m[2] }) {
		return fmt.Sprintf("pod %s/%s isn't on the node any more", m[1], m[2]), 0
	}
	return "", late
}
